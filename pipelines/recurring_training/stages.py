"""The builder's own stages, which come after the winner: evaluate, deploy, …, each as often as it says."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kfp.dsl.base_component import BaseComponent

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.job import ONCE
from zeus_kfp.zeus_core.validation import integer, text

_WORDS = {"new data": 0, "once": ONCE}


@dataclass(frozen=True, slots=True)
class Stage:
    """Steps that come after the winner, and how often they run.

    Attributes:
        build: Adds the steps: a function that takes the winner's model (a Model artifact), or a KFP component whose
            only required input is an artifact named ``model``.
        every: 1 runs it in each recurrence, N in every N-th that has a winner; "new data" once for each data epoch,
            when the data changes or is preprocessed again (0 says the same); "once" in a single recurrence of the job.

    Raises:
        InvalidValueError: If build can't be called with a model, or every is none of these.
    """

    build: Callable[..., object]
    every: int | str = 1

    def __post_init__(self) -> None:
        """Check both."""
        if isinstance(self.every, str) and self.every not in _WORDS:
            raise InvalidValueError(
                f"every of a stage must be 1 for each recurrence, a number of them, or one of {list(_WORDS)}, not "
                f"{self.every!r}"
            )
        integer("every of a stage", self.turns, at_least=ONCE, at_most=10**9)
        if not callable(self.build):
            raise InvalidValueError(f"a stage must be a function or a KFP component, not {self.build!r}")
        if isinstance(self.build, BaseComponent):
            _check_component(self.build)

    @property
    def turns(self) -> int:
        """How often it runs, as stage_turn is told."""
        return _WORDS[self.every] if isinstance(self.every, str) else self.every

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
    if not isinstance(stages, Mapping | None):
        raise InvalidValueError(f"stages must be a mapping of names to stages, not {stages!r}")
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
