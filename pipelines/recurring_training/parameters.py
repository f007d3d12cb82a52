"""The runtime parameters of the recurring-training pipeline, taken from the components that use them.

Every knob of open_recurrence is a parameter of the pipeline, with the same type, default and description, so
that it stands in one place. KFP reads a pipeline's parameters from the signature and docstring of a function;
both are made here.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, List

from kfp import dsl

from zeus_kfp.components.image import IMAGE
from zeus_kfp.components.open_recurrence import open_recurrence

_DESCRIPTION = "Retrain once, at the batch size that earlier recurrences found cheapest in energy and time."
_KIND = inspect.Parameter.POSITIONAL_OR_KEYWORD
_REQUIRED = inspect.Parameter.empty
_OWN = (
    (
        "train_entry_point",
        str,
        _REQUIRED,
        "Training code: module:function, a script, or any command.",
    ),
    ("train_arguments", str, "{}", "JSON object that the training code finds in trial.arguments."),
    ("preprocess_entry_point", str, "", "Preprocessing: module:function; empty for none."),
    ("preprocess_arguments", str, "{}", "JSON object of keyword arguments for the preprocessing."),
    (
        "training_image",
        str,
        IMAGE,
        "Image that preprocessing and training run in; holds zeus-kfp and their code.",
    ),
    ("train_cpu_limit", str, "2", "CPU limit of the training pod."),
    (
        "train_memory_limit",
        str,
        "4Gi",
        "Memory limit of the training pod; beyond it a trial is out of memory.",
    ),
    ("checkpoint_dir", str, "", "Folder on a volume that outlives a training pod; empty for none."),
)
_NOT_PARAMETERS = ("run_id", "notice")


TRIAL_PARAMETERS = tuple(row[0] for row in _OWN if not row[0].startswith("preprocess"))
"""The pipeline's parameters that each of its trials needs."""


def parameters() -> list[inspect.Parameter]:
    """Return the pipeline's parameters, with their types and usual defaults."""
    own = [inspect.Parameter(name, _KIND, default=default, annotation=t) for name, t, default, _ in _OWN]
    return [*own, *_knobs()]


def knob_names() -> list[str]:
    """Return the names of the parameters that go to open_recurrence."""
    return [p.name for p in _knobs()]


def with_pipeline_parameters(function: Callable[..., Any], defaults: Mapping[str, Any]) -> Callable[..., Any]:
    """Return a function that KFP sees with the recurring-training pipeline's parameters.

    Args:
        function: Called with every parameter as a keyword argument.
        defaults: Defaults that replace the usual ones, by parameter.

    Raises:
        TypeError: If a default is given for a parameter that the pipeline doesn't have.
    """
    usual = parameters()
    unknown = sorted(set(defaults) - {p.name for p in usual})
    if unknown:
        raise TypeError(f"the pipeline has no parameter {unknown}: it has {[p.name for p in usual]}")
    given = [p.replace(default=defaults.get(p.name, p.default)) for p in usual]
    given.sort(key=lambda p: p.default is not _REQUIRED)
    return _with_signature(function, inspect.Signature(given), _docstring([p.name for p in given]))


def with_trial_parameters(function: Callable[..., Any], returns: Any) -> Callable[..., Any]:
    """Return a function that KFP sees with the parameters of a pipeline of trials.

    Args:
        function: Called with every parameter as a keyword argument.
        returns: The pipeline's output type, or inspect.Signature.empty.
    """
    types = {"job_id": str, "run_id": str, "slots": List[int], "data": dsl.Input[dsl.Dataset]}
    types |= dict.fromkeys(TRIAL_PARAMETERS, str)
    parameters = [inspect.Parameter(name, _KIND, annotation=annotation) for name, annotation in types.items()]
    return _with_signature(function, inspect.Signature(parameters, return_annotation=returns), "")


def _with_signature(function: Callable[..., Any], signature: inspect.Signature, doc: str) -> Callable[..., Any]:
    def pipeline(*values: Any) -> Any:
        return function(**dict(zip(signature.parameters, values, strict=True)))

    pipeline.__doc__ = doc
    # inspect.signature, by which KFP reads a pipeline, prefers this attribute; mypy knows functions without it.
    vars(pipeline)["__signature__"] = signature
    return pipeline


def _knobs() -> list[inspect.Parameter]:
    signature = inspect.signature(open_recurrence.python_func)
    return [p for p in signature.parameters.values() if p.name not in _NOT_PARAMETERS]


def _docstring(names: list[str]) -> str:
    inputs = open_recurrence.component_spec.inputs
    texts = {name: spec.description for name, spec in inputs.items()} | {row[0]: row[3] for row in _OWN}
    lines = [f"    {name}: {texts[name]}" for name in names]
    return "\n".join([_DESCRIPTION, "", "Args:", *lines])
