"""Two sources of the same energy beside each other: the first one counts, the second one checks it."""

import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from zeus_kfp.zeus_core.meters.interface import Meter

logger = logging.getLogger(__name__)

_LARGEST_DISAGREEMENT = 0.5
_LEAST_TIME_S = 10.0
"""Before that two meters may well differ: the second one is read once a second."""


def disagree(first_j: float, second_j: float, time_s: float) -> bool:
    """Return whether two energies in J of the same stretch differ by half or more of the larger one.

    Args:
        first_j: By one meter.
        second_j: By another.
        time_s: How long the stretch was in s; of one that is too short to tell, False is returned.
    """
    largest_j = max(first_j, second_j)
    return time_s >= _LEAST_TIME_S and abs(first_j - second_j) >= largest_j * _LARGEST_DISAGREEMENT > 0


class CheckedMeter:
    """A meter that says so when another one disagrees with it by half or more.

    Attributes:
        second: The meter that checks.
    """

    def __init__(self, first: Meter, second: Meter, clock: Callable[[], float] = time.monotonic) -> None:
        """Take both; they are closed together.

        Args:
            first: What counts.
            second: What checks.
            clock: Returns a time in s.
        """
        self.name = first.name
        self.estimated = first.estimated
        self.accelerator = first.accelerator
        self.accelerator_count = first.accelerator_count
        self.max_power_w = first.max_power_w
        self.power_limit_w = first.power_limit_w
        self.shortest_window_s = first.shortest_window_s
        self.settling_s = first.settling_s
        self.second: Meter = second
        self._first = first
        self._clock = clock
        self._start: tuple[float, float, float] | None = None
        self._has_warned = False

    def energy_j(self) -> float | None:
        """Return the first meter's energy in J."""
        energy_j = self._first.energy_j()
        if not self._has_warned and energy_j is not None:
            self._check(energy_j)
        return energy_j

    def close(self) -> None:
        """Close both."""
        self.second.close()
        self._first.close()

    def _check(self, first_j: float) -> None:
        second_j, now_s = self.second.energy_j(), self._clock()
        if second_j is None:
            return
        if self._start is None:
            self._start = (now_s, first_j, second_j)
            return
        start_s, first_start_j, second_start_j = self._start
        spent_j = (first_j - first_start_j, second_j - second_start_j)
        if disagree(*spent_j, now_s - start_s):
            self._has_warned = True
            logger.warning(
                "%s and %s disagree about the energy of %d x %s in %.3g s: %.4g J and %.4g J. The first one counts",
                self.name,
                self.second.name,
                self.accelerator_count,
                self.accelerator,
                now_s - start_s,
                *spent_j,
            )


class Second(NamedTuple):
    """What the meter that checks another one has to say.

    Attributes:
        energy_j: Energy in J; None if it can't be known, or there is no such meter.
        source: Its name; "" if there is none.
    """

    energy_j: float | None = None
    source: str = ""


class SecondCount:
    """Counts, from some moment, by the meter that checks another one."""

    def __init__(self, meter: Meter) -> None:
        """Begin to count; ``meter`` is the one that is checked, or one that nothing checks."""
        self._meter = meter.second if isinstance(meter, CheckedMeter) else None
        self._start_j = self._meter.energy_j() if self._meter else None

    @property
    def source(self) -> str:
        """Name of that meter; "" if there is none."""
        return "" if self._meter is None else self._meter.name

    def so_far(self) -> Second:
        """Return the energy since then."""
        if self._meter is None:
            return Second()
        now_j = self._meter.energy_j()
        known = now_j is not None and self._start_j is not None
        return Second((now_j or 0.0) - (self._start_j or 0.0) if known else None, self.source)
