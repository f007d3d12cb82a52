"""Two sources of the same energy beside each other: the first one counts, the second one checks it."""

import logging
import time
from collections.abc import Callable

from zeus_kfp.zeus_core.meters.interface import Meter

logger = logging.getLogger(__name__)

_LARGEST_DISAGREEMENT = 0.5


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
        is_long = now_s - start_s >= max(self.shortest_window_s, self.second.shortest_window_s) * 5
        if is_long and max(spent_j) > 0 and abs(spent_j[0] - spent_j[1]) >= max(spent_j) * _LARGEST_DISAGREEMENT:
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
