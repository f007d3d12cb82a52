"""The user's arguments, which travel as a JSON object: KFP turns integers inside a dict parameter into floats."""

import json
from typing import Any

from zeus_kfp.zeus_core.errors import InvalidValueError


def parse_arguments(name: str, document: str) -> dict[str, Any]:
    """Return a JSON object as a dict.

    Args:
        name: What the parameter is called, for the message.
        document: JSON text; an empty one is an empty object.

    Raises:
        InvalidValueError: If it is anything else than a JSON object.
    """
    try:
        values = json.loads(document or "{}", parse_constant=_refuse)
    except (TypeError, ValueError, RecursionError) as error:
        values = error
    if not isinstance(values, dict):
        raise InvalidValueError(f'{name} must be a JSON object such as {{"learning_rate": 0.1}}, not {document!r}')
    return values


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
