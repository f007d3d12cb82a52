"""The fields of a flat dataclass by name, without the deep copies that dataclasses.asdict makes of each."""

from typing import Any


def field_values(instance: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name, in their order; the values are its own."""
    return {name: getattr(instance, name) for name in field_names(instance)}


def field_names(kind: Any) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass, or of one of its instances, in their order."""
    return tuple(kind.__dataclass_fields__)
