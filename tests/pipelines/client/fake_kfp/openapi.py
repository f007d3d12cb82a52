"""Checks requests and responses against KFP's published description of its API (Swagger 2.0)."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from jsonschema import Draft4Validator
from jsonschema.validators import extend
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT4

_TYPES = {"integer": int, "boolean": lambda text: {"true": True, "false": False}[text], "string": str}


class NotDescribedError(Exception):
    """A request or a response that the description does not allow."""


@dataclass(frozen=True)
class Route:
    """One operation of the API, and the values of its path's parameters."""

    operation: dict[str, Any]
    path_values: dict[str, str]

    @property
    def name(self) -> str:
        return self.operation["operationId"]


class ApiDescription:
    """The description of the API, read once."""

    def __init__(self, file: Path) -> None:
        document = _strict(json.loads(file.read_text()))
        self._registry = Registry().with_resource("urn:api", Resource.from_contents(document, DRAFT4))
        self._routes = [
            (method.upper(), re.compile(_pattern(path)), operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
        ]

    def route(self, method: str, path: str) -> Route:
        """Return the operation that answers a request.

        Raises:
            NotDescribedError: If the API has none.
        """
        for verb, pattern, operation in self._routes:
            match = pattern.fullmatch(path)
            if verb == method and match:
                return Route(operation, {k: unquote(v) for k, v in match.groupdict().items()})
        raise NotDescribedError(f"the API has no {method} {path}")

    def check_query(self, route: Route, query: dict[str, str]) -> None:
        """Refuse a query parameter that the operation does not have, or that is not of its type."""
        known = {p["name"]: p for p in route.operation.get("parameters", []) if p["in"] == "query"}
        for name, value in query.items():
            if name not in known:
                raise NotDescribedError(f"{route.name} has no query parameter {name!r}: it has {sorted(known)}")
            try:
                _TYPES[known[name]["type"]](value)
            except (KeyError, ValueError):
                raise NotDescribedError(f"{name}={value!r} is no {known[name]['type']}") from None

    def check_body(self, route: Route, body: Any) -> None:
        """Refuse a request's body that is not of the operation's type."""
        (schema,) = [p["schema"] for p in route.operation.get("parameters", []) if p["in"] == "body"] or [None]
        if schema is None:
            if body is not None:
                raise NotDescribedError(f"{route.name} takes no body, not {body!r}")
        else:
            # A request may give a 64-bit integer as a number; a response has it as text.
            self._check(f"request of {route.name}", schema, body, lenient=True)

    def check_response(self, route: Route, status: int, body: Any) -> None:
        """Refuse a response that is not of the operation's type for its status."""
        responses = route.operation["responses"]
        self._check(
            f"response {status} of {route.name}", responses.get(str(status), responses["default"])["schema"], body
        )

    def _check(self, what: str, schema: dict[str, Any], body: Any, lenient: bool = False) -> None:
        absolute = json.loads(json.dumps(schema).replace('"#/', '"urn:api#/'))
        validator = _Lenient if lenient else Draft4Validator
        errors = list(validator(absolute, registry=self._registry).iter_errors(body))
        if errors:
            raise NotDescribedError(f"{what}: " + "; ".join(f"{e.json_path}: {e.message}" for e in errors))


def _type(validator: Any, types: Any, instance: Any, schema: dict[str, Any]) -> Any:
    whole = isinstance(instance, int) and not isinstance(instance, bool)
    if whole and schema.get("format") == "int64":
        return []
    return Draft4Validator.VALIDATORS["type"](validator, types, instance, schema)


_Lenient = extend(Draft4Validator, {"type": _type})


def _strict(node: Any) -> Any:
    """Return the description with objects that have named fields closed to any other."""
    if isinstance(node, list):
        return [_strict(item) for item in node]
    if not isinstance(node, dict):
        return node
    closed = {key: _strict(value) for key, value in node.items()}
    if isinstance(node.get("properties"), dict) and node.get("type") == "object":
        closed.setdefault("additionalProperties", False)
    return closed


def _pattern(path: str) -> str:
    parts = re.split(r"\{([^}]*)\}", path)
    return "".join(f"(?P<{_identifier(p)}>[^/:]+)" if i % 2 else re.escape(p) for i, p in enumerate(parts))


def _identifier(name: str) -> str:
    return name.replace(".", "_")
