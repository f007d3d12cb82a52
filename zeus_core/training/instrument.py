"""Read a clock and a meter together, after the work that was handed to the GPU is done."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from zeus_kfp.zeus_core.meters import Meter


@dataclass(frozen=True, slots=True)
class Spent:
    """Energy in J (None if it can't be known) and time in s."""

    energy_j: float | None
    time_s: float

    def __add__(self, other: "Spent") -> "Spent":
        """Return the sum; unknown plus anything is unknown."""
        known = self.energy_j is not None and other.energy_j is not None
        energy_j = (self.energy_j or 0.0) + (other.energy_j or 0.0) if known else None
        return Spent(energy_j, self.time_s + other.time_s)

    def less(self, other: "Spent") -> "Spent":
        """Return what is left of this without ``other``, never less than nothing; unknown stays unknown."""
        known = self.energy_j is not None and other.energy_j is not None
        energy_j = max((self.energy_j or 0.0) - (other.energy_j or 0.0), 0.0) if known else None
        return Spent(energy_j, max(self.time_s - other.time_s, 0.0))


NOTHING_SPENT = Spent(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Reading:
    """What clock and meter showed at one moment."""

    energy_j: float | None
    time_s: float

    def until(self, later: "Reading") -> Spent:
        """Return what was spent between this reading and a later one."""
        if self.energy_j is None or later.energy_j is None or later.energy_j < self.energy_j:
            return Spent(None, later.time_s - self.time_s)
        return Spent(later.energy_j - self.energy_j, later.time_s - self.time_s)


class Instrument:
    """A clock and a meter that are read together."""

    def __init__(self, meter: Meter, clock: Callable[[], float], synchronize: Callable[[], None]) -> None:
        """Join them.

        Args:
            meter: What measures energy.
            clock: Returns a time in s.
            synchronize: Waits for the GPU, whose work is only queued when a Python line returns.
        """
        self.meter = meter
        self._clock = clock
        self._synchronize = synchronize

    def read(self) -> Reading:
        """Return what both show now."""
        self._synchronize()
        return Reading(self.meter.energy_j(), self._clock())

    def now_s(self) -> float:
        """Return what the clock alone shows now, in s."""
        self._synchronize()
        return self._clock()


def synchronize_gpu() -> None:
    """Wait for every GPU that PyTorch uses in this process, if the user's code has imported it and put one to work."""
    torch: ModuleType | None = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return
    for index in range(cuda.device_count()):
        if _is_used(torch, index):
            cuda.synchronize(index)


def _is_used(torch: Any, index: int) -> bool:
    """Return whether this process has a context on a GPU: waiting for one without would make it, at some 100 MB."""
    has_context = getattr(torch._C, "_cuda_hasPrimaryContext", None)
    return bool(has_context(index)) if has_context else index == torch.cuda.current_device()
