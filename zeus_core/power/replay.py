"""A GPU that was recorded: what some work takes at each power limit, played back as if it were done now.

The recording is a table with one line a limit, as Zeus's monitor writes it: ``window_name`` ends with the limit in W,
``elapsed_time`` is in s, and each ``gpu<i>_energy`` in J.
"""

import csv
from collections.abc import Sequence
from pathlib import Path

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.power.interface import LimitRange
from zeus_kfp.zeus_core.power.selectors import SweepPoint


def read_sweep(path: str | Path) -> tuple[list[SweepPoint], int]:
    """Return a recorded sweep, energy summed over its GPUs, and how many GPUs there were.

    Raises:
        InvalidValueError: If the file holds none.
    """
    try:
        with open(path, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        gpus = [name for name in rows[0] if name.startswith("gpu") and name.endswith("_energy")]
        sweep = [
            SweepPoint(
                power_limit_w=float(row["window_name"].rpartition("_")[2]),
                energy_j=sum(float(row[gpu]) for gpu in gpus),
                time_s=float(row["elapsed_time"]),
            )
            for row in rows
        ]
    except (OSError, UnicodeDecodeError, csv.Error, LookupError, TypeError, ValueError, AttributeError) as error:
        raise InvalidValueError(f"{path} holds no recorded sweep of power limits: {error!r}") from None
    return sweep, len(gpus)


class RecordedGpu:
    """A meter, a limiter and a clock in one: only :meth:`work` moves them."""

    name = "replay"
    estimated = False
    shortest_window_s = 0.0
    settling_s = 0.0
    why_not = ""
    is_over = False

    def __init__(self, sweep: Sequence[SweepPoint], *, count: int = 1, accelerator: str = "recorded GPU") -> None:
        """Start at the highest limit of a recording.

        Args:
            sweep: What the recorded work took at each limit; at least one.
            count: How many GPUs it took.
            accelerator: Their model.

        Raises:
            InvalidValueError: If the sweep is empty.
        """
        if not sweep:
            raise InvalidValueError("an empty sweep can't be replayed: record at least one power limit")
        self._points = {point.power_limit_w: point for point in sweep}
        self.accelerator = accelerator
        self.accelerator_count = count
        self.found_w: float | None = max(self._points)
        self.power_limit_w: float | None = self.found_w
        self.max_power_w = max(self._points) * count
        self.allowed: LimitRange | None = LimitRange(min(self._points), max(self._points))
        self._standing = self._points[max(self._points)]
        self._energy_j = 0.0
        self._time_s = 0.0

    def work(self, share: float) -> None:
        """Do a share of the recorded work under the limit that stands."""
        self._energy_j += self._standing.energy_j * share
        self._time_s += self._standing.time_s * share

    def energy_j(self) -> float | None:
        """Return the energy in J of all work so far."""
        return self._energy_j

    def clock(self) -> float:
        """Return the time in s of all work so far."""
        return self._time_s

    def set(self, power_limit_w: float) -> float | None:
        """Set the recorded limit closest to the one asked for, and return it."""
        self._standing = self._points[min(self._points, key=lambda limit_w: abs(limit_w - power_limit_w))]
        return self.standing_w()

    def standing_w(self) -> float | None:
        """Return the limit that stands, in W."""
        return self._standing.power_limit_w

    def restore(self) -> None:
        """Go back to the highest limit."""
        self._standing = self._points[max(self._points)]

    def close(self) -> None:
        """Go back to the highest limit."""
        self.restore()
