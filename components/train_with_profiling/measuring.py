"""What a trial took: as its own process tells, or as seen from outside."""

from dataclasses import dataclass, replace
from typing import Self

from zeus_kfp.zeus_core.meters import Meter
from zeus_kfp.zeus_core.meters.checked import Second
from zeus_kfp.zeus_core.meters.estimate import DEFAULT_CORE_POWER_W
from zeus_kfp.zeus_core.training.instrument import Spent
from zeus_kfp.zeus_core.training.summary import Summary


@dataclass(frozen=True, slots=True)
class Measured:
    """Energy and time of one attempt, and what measured them.

    Attributes:
        energy_j: Energy in J, above 0; None if it can't be known.
        time_s: Time in s.
        energy_source: Name of the meter.
        energy_estimated: Whether the energy is an estimate.
        max_power_w: Rated power in W; 0 if unknown.
        accelerator: Model of the GPU, or of the CPU.
        accelerator_count: How many of them.
        second: The energy of this attempt by the meter that checks the first one.
    """

    energy_j: float | None
    time_s: float
    energy_source: str
    energy_estimated: bool
    max_power_w: float
    accelerator: str
    accelerator_count: int
    second: Second = Second()

    @classmethod
    def from_outside(cls, seen: Spent, meter: Meter, second: Second) -> Self:
        """Return what the supervisor's meter, and the one that checks it, saw around the process.

        Where it saw nothing, the rated power over the whole time stands in, as an estimate.
        """
        if seen.energy_j:
            return cls._of(seen.energy_j, seen.time_s, meter.name, meter.estimated, meter, second)
        rated_j = rated_power_w(meter) * seen.time_s
        return cls._of(rated_j or None, seen.time_s, "rated power", True, meter, second)

    @classmethod
    def from_inside(cls, told: Summary, seen: Spent) -> Self | None:
        """Return what the process told of its epochs; None if it told nothing usable.

        Args:
            told: The process's summary.
            seen: What was seen from outside; no process can have trained for longer.
        """
        if not told.energy_j or not 0 < told.time_s <= seen.time_s * 1.01 + 0.1:
            return None
        return cls(
            told.energy_j,
            told.time_s,
            told.energy_source,
            told.energy_estimated,
            told.max_power_w,
            told.accelerator,
            told.accelerator_count,
            Second(told.second_energy_j, told.second_energy_source),
        )

    def with_earlier(self, earlier: Spent, *, is_known: bool) -> Self:
        """Return what all attempts took.

        Args:
            earlier: What those before this one took.
            is_known: Whether their energy was measured; if not, rated power stands in for some of it.
        """
        energy_j = None if self.energy_j is None or earlier.energy_j is None else self.energy_j + earlier.energy_j
        total = replace(self, energy_j=energy_j, time_s=self.time_s + earlier.time_s)
        if is_known:
            return total
        return replace(total, energy_source=f"{self.energy_source} and rated power", energy_estimated=True)

    @classmethod
    def _of(
        cls, energy_j: float | None, time_s: float, source: str, estimated: bool, meter: Meter, second: Second
    ) -> Self:
        hardware = (meter.max_power_w, meter.accelerator, meter.accelerator_count)
        return cls(energy_j, time_s, source, estimated, *hardware, second)


def rated_power_w(meter: Meter) -> float:
    """Return the power in W that stands in where nothing was measured, for an estimate."""
    return max(meter.max_power_w, DEFAULT_CORE_POWER_W)
