"""How power limits are profiled: what people may set, and the defaults."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.power.selectors import checked_objective
from zeus_kfp.zeus_core.validation import integer, number

_PREFIX = "ZEUS_KFP_POWER_"


@dataclass(frozen=True, slots=True)
class ProfilingOptions:
    """How power limits are profiled.

    Each is set by an environment variable of its name, such as ZEUS_KFP_POWER_PROFILE_STEPS.

    Attributes:
        warmup_steps: Training steps after a change of the limit that aren't measured.
        profile_steps: Training steps that are measured at each limit, at least; more where they are too short.
        step_w: Distance in W between two limits.
        lowest_w: Lowest limit to try in W; None for the lowest that the GPU takes.
        highest_w: Highest limit to try in W; None for the one found, which may be the machine's own cap.
        objective: What the best limit is: "cost", "energy", "time", or "slowdown:1.1"; "" as the trial's plan says.
    """

    warmup_steps: int = 10
    profile_steps: int = 40
    step_w: float = 25.0
    lowest_w: float | None = None
    highest_w: float | None = None
    objective: str = ""

    def __post_init__(self) -> None:
        """Check every value.

        Raises:
            InvalidValueError: If one is out of its range.
        """
        integer("warmup_steps", self.warmup_steps, at_least=0)
        integer("profile_steps", self.profile_steps, at_least=1)
        number("step_w", self.step_w, at_least=1)
        for name in ("lowest_w", "highest_w"):
            if getattr(self, name) is not None:
                number(name, getattr(self, name), above=0)
        if self.lowest_w is not None and self.highest_w is not None and self.lowest_w > self.highest_w:
            raise InvalidValueError(f"lowest_w {self.lowest_w:g} must not be above highest_w {self.highest_w:g}")
        if self.objective:
            checked_objective(self.objective)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """Return the options that the environment sets; "" is as good as unset.

        Raises:
            InvalidValueError: If one has a value that it can't have.
        """
        kinds = {"warmup_steps": int, "profile_steps": int, "step_w": float, "lowest_w": float, "highest_w": float}
        told = {name: environ.get(_PREFIX + name.upper(), "").strip() for name in (*kinds, "objective")}
        try:
            return cls(**{name: kinds.get(name, str)(text) for name, text in told.items() if text})
        except ValueError as error:
            shown = ", ".join(f"{_PREFIX}{name.upper()}={text!r}" for name, text in told.items() if text)
            raise InvalidValueError(f"the options of power profiling ({shown}) can't be used: {error}") from None
