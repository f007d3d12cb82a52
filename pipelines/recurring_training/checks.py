"""What people give the recurring-training pipeline, checked before anything of it is built, sent or started."""

import json
import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any

from zeus_kfp.components.arguments import parse_arguments
from zeus_kfp.components.image import checked_image
from zeus_kfp.pipelines.recurring_training.entry import KFP_PLACEHOLDER
from zeus_kfp.pipelines.recurring_training.parameters import parameters
from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.policies import policy_named
from zeus_kfp.zeus_core.validation import text, truth

_ARGUMENTS = ("train_arguments", "preprocess_arguments")
_QUANTITY = re.compile(r"(\d+(\.\d*)?|\.\d+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d+)?", re.ASCII)
_KUBERNETES_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_LONGEST = 100_000
"""Characters of a parameter, which a real backend was seen to take."""


def checked_parameters(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values of the pipeline's parameters, each of the type that KFP wants; unknown names are left to KFP.

    Raises:
        InvalidValueError: If a knob is out of its range, arguments are no JSON object, or a value can't be what its
            parameter stands for.
    """
    checked = {**arguments_as_text(values), **_checked_knobs(values)}
    types = {parameter.name: parameter.annotation for parameter in parameters()}
    for name, value in checked.items():
        if types.get(name) is bool:
            truth(name, value)
        if types.get(name) is str:
            text(name, value, at_most=_LONGEST, allow_empty=True)
            _check_text(name, value)
    return checked


def arguments_as_text(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters, the user's own arguments as the JSON text that KFP carries where a mapping was given.

    Raises:
        InvalidValueError: If such a mapping holds what JSON can't.
    """
    return {name: _as_text(name, value) if name in _ARGUMENTS else value for name, value in values.items()}


def check_hook(name: str, hook: Callable[..., object] | None) -> None:
    """Refuse what can't be called.

    Raises:
        InvalidValueError: If it is neither None nor a function.
    """
    if hook is not None and not callable(hook):
        raise InvalidValueError(f"{name} must be a function that takes a task, or None, not {hook!r}")


def check_pipeline_name(name: Any) -> None:
    """Refuse what KFP can't name a pipeline: it keeps small letters, digits and dashes of a name.

    Raises:
        InvalidValueError: If it is no text, is too long, or nothing of it would be left.
    """
    text("name", name, at_most=128)
    if not re.search(r"[a-z0-9]", name, re.IGNORECASE | re.ASCII):
        raise InvalidValueError(f"name must hold letters a to z or digits, which are all that KFP keeps, not {name!r}")


def check_kubernetes_name(name: str, value: Any, kind: str, *, allow_empty: bool = False) -> None:
    """Refuse what can't be the name of an object in Kubernetes.

    Args:
        name: What the value is called, for the message.
        value: The name.
        kind: What it is the name of, for the message.
        allow_empty: Whether "" stands for none.

    Raises:
        InvalidValueError: If it can't be.
    """
    text(name, value, at_most=253, allow_empty=allow_empty)
    if value and not _KUBERNETES_NAME.fullmatch(value):
        raise InvalidValueError(f"{name} must be the name of {kind}, not {value!r}")


def _checked_knobs(values: Mapping[str, Any]) -> dict[str, Any]:
    knobs = {field.name: values[field.name] for field in fields(JobSpec) if field.name in values}
    if knobs.get("beta_knob") == math.inf:
        raise InvalidValueError("beta_knob can't be infinite in a pipeline: a number such as 1e9 never stops early")
    sizes = knobs.get("batch_sizes")
    if isinstance(sizes, Iterable) and not isinstance(sizes, str):
        knobs["batch_sizes"] = sizes = list(sizes)
    size = knobs.get("default_batch_size", sizes[0] if isinstance(sizes, list) and sizes else 1)
    placeholders = {"job_id": "job", "batch_sizes": [size], "target_metric": 0.0, "default_batch_size": size}
    spec = JobSpec.from_parameters(**placeholders | knobs)
    if "policy" in knobs:
        policy_named(spec.policy)
    return knobs | ({"batch_sizes": list(spec.batch_sizes)} if "batch_sizes" in knobs else {})


def _check_text(name: str, value: str) -> None:
    if KFP_PLACEHOLDER in value:
        raise InvalidValueError(
            f"{name} must not hold {KFP_PLACEHOLDER!r}, which KFP replaces by values of its own: {value!r}"
        )
    if name in _ARGUMENTS:
        parse_arguments(name, value)
    elif name == "train_entry_point":
        _check_entry_point(value)
    elif name == "training_image":
        checked_image(name, value)
    elif name in ("train_cpu_limit", "train_memory_limit") and value and not _QUANTITY.fullmatch(value):
        raise InvalidValueError(f"{name} must be a quantity of Kubernetes, such as 500m, 2 or 4Gi, not {value!r}")
    elif name == "on_knob_change":
        _check_on_knob_change(value)


def _check_entry_point(value: str) -> None:
    try:
        if shlex.split(value):
            return
        why = "is empty"
    except ValueError as error:
        why = f"can't be split into words ({error})"
    raise InvalidValueError(f"train_entry_point {value!r} {why}: give module:function, a script or a command")


def _check_on_knob_change(value: str) -> None:
    # Late: whoever builds a pipeline needs no database.
    from zeus_kfp.state_store.opening import ON_KNOB_CHANGE

    if value not in ON_KNOB_CHANGE:
        raise InvalidValueError(f"on_knob_change must be one of {', '.join(ON_KNOB_CHANGE)}, not {value!r}")


def _as_text(name: str, value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    try:
        return json.dumps(dict(value), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidValueError(f"{name} must hold what JSON can: {error}") from None
