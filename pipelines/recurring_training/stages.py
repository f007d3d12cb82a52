"""The builder's own stages, which come after the winner: evaluate, deploy, …, each as often as it says."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kfp.dsl.base_component import BaseComponent

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.validation import integer, text


@dataclass(frozen=True, slots=True)
class Stage:
    """Steps that come after the winner, and how often they run.

    Attributes:
        build: Adds the steps: a function that takes the winner's model (a Model artifact), or a KFP component whose
            only required input is an artifact named ``model``.
        every: 1 runs it in each recurrence, N in every N-th that has a winner, 0 once for each data epoch: when the
            data changes or is preprocessed again, else once per job.

    Raises:
        InvalidValueError: If build can't be called with a model, or every is no integer of 0 or more.
    """

    build: Callable[..., object]
    every: int = 1

    def __post_init__(self) -> None:
        """Check both."""
        integer("every of a stage", self.every, at_least=0, at_most=10**9)
        if not callable(self.build):
            raise InvalidValueError(f"a stage must be a function or a KFP component, not {self.build!r}")
        if isinstance(self.build, BaseComponent):
            _check_component(self.build)

    def add(self, model: Any) -> None:
        """Trace its steps."""
        if isinstance(self.build, BaseComponent):
            self.build(model=model)
        else:
            self.build(model)


def checked_stages(stages: Mapping[str, Any] | None) -> dict[str, Stage]:
    """Return stages by name, where each may be given as what it builds alone.

    Raises:
        InvalidValueError: If a name is no text or a stage can't be built.
    """
    found = {text("the name of a stage", name): stage for name, stage in (stages or {}).items()}
    return {name: stage if isinstance(stage, Stage) else Stage(stage) for name, stage in found.items()}


def _check_component(component: Any) -> None:
    inputs = component.component_spec.inputs or {}
    required = {name for name, spec in inputs.items() if not spec.optional}
    if "model" not in inputs or required - {"model"}:
        raise InvalidValueError(
            f"a component that is a stage must have the input 'model' and no other required one, not {sorted(inputs)}: "
            "give a function that takes the model and calls the component with all it needs"
        )
