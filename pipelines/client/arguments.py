"""The arguments of a run: checked against what the pipeline declares before the cluster sees them."""

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from zeus_kfp.pipelines.recurring_training.checks import arguments_as_text, checked_parameters
from zeus_kfp.pipelines.recurring_training.parameters import knob_names
from zeus_kfp.zeus_core.errors import InvalidValueError

_KINDS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "STRING": (str, "text"),
    "NUMBER_INTEGER": (int, "an integer"),
    "NUMBER_DOUBLE": ((int, float), "a number"),
    "BOOLEAN": (bool, "true or false"),
    "LIST": ((list, tuple), "a list"),
    "STRUCT": (dict, "a mapping"),
}


def given(parameters: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return parameters that somebody gave, none for None.

    Raises:
        InvalidValueError: If they are no mapping.
    """
    if not isinstance(parameters, Mapping | None):
        raise InvalidValueError(f"parameters must be a mapping of values by name, not {parameters!r}")
    return parameters or {}


def checked_arguments(declared: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments that the pipeline takes.

    Args:
        declared: The pipeline's parameters, as its specification has them.
        arguments: Values by parameter; every parameter without a default needs one.

    Raises:
        InvalidValueError: If the pipeline lacks a parameter, one is missing, or a value is not of its type or, for the
            knobs of recurring training, out of its range.
    """
    is_recurring_training = set(knob_names()) <= set(declared)
    if is_recurring_training:
        arguments = arguments_as_text(arguments)
    for name in arguments:
        if name not in declared:
            close = difflib.get_close_matches(str(name), declared, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it has {sorted(declared)}"
            raise InvalidValueError(f"the pipeline has no parameter {name!r}: {hint}")
    missing = [n for n, spec in declared.items() if n not in arguments and not _has_default(spec)]
    if missing:
        raise InvalidValueError(f"the pipeline's parameters {missing} have no default: give each a value")
    checked = {name: _checked(name, declared[name]["parameterType"], value) for name, value in arguments.items()}
    if is_recurring_training:
        held = {n: spec["defaultValue"] for n, spec in declared.items() if "defaultValue" in spec}
        defaults = {n: _checked(n, declared[n]["parameterType"], value) for n, value in held.items()}
        checked_parameters(defaults | checked)
    return checked


def read_arguments(declared: Mapping[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """Return the arguments that a command line gives as name=value, each of its parameter's type.

    Raises:
        InvalidValueError: If one is no name=value, is given twice, or its value can't be read as its type.
    """
    arguments: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals or not name:
            raise InvalidValueError(f"{assignment!r} is no name=value")
        if name in arguments:
            raise InvalidValueError(f"the parameter {name!r} is given twice")
        arguments[name] = _read(name, declared.get(name, {}).get("parameterType", "STRING"), text)
    return arguments


def _read(name: str, kind: str, text: str) -> Any:
    if kind == "STRING":
        return text
    try:
        value = json.loads(text)
    except ValueError:
        raise _wrong(name, kind, text) from None
    return _checked(name, kind, value)


def _checked(name: str, kind: str, value: Any) -> Any:
    if kind not in _KINDS:
        raise InvalidValueError(f"the parameter {name} is of KFP's type {kind}, which takes no value of an argument")
    types, _ = _KINDS[kind]
    if kind == "NUMBER_INTEGER" and isinstance(value, float) and value.is_integer():
        value = int(value)  # KFP's API may hand a parameter back as 8.0
    if kind == "NUMBER_DOUBLE" and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)  # and a number such as 2.0 as 2
    if not isinstance(value, types) or (isinstance(value, bool) and kind != "BOOLEAN"):
        raise _wrong(name, kind, value)
    value = list(value) if isinstance(value, tuple) else value
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidValueError(f"the parameter {name} = {value!r} can't be sent as JSON: {error}") from None
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 2**53:
        raise InvalidValueError(f"the parameter {name} = {value} is too large: KFP keeps integers up to 2**53")
    return value


def _wrong(name: str, kind: str, value: Any) -> InvalidValueError:
    example = ", such as [8, 16, 32]" if kind == "LIST" else ""
    return InvalidValueError(f"the parameter {name} must be {_KINDS[kind][1]}{example}, not {value!r}")


def _has_default(spec: Mapping[str, Any]) -> bool:
    return "defaultValue" in spec or bool(spec.get("isOptional"))
