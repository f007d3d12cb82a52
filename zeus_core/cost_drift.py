"""Whether a batch size's latest costs, or metrics, still fit what was believed of it before.

Each of the RECENT latest costs lies on the same side of the earlier ones' mean m, further from it than

    LIMIT * max(s, LEAST_RELATIVE_DEVIATION * |m|)

with s the earlier ones' sample standard deviation. That all of them must do so keeps a single outlier from being taken
for drift; the floor does so where costs hardly vary. The test needs no prior, so that it means the same
under every batch-size policy. In normal noise it errs at most twice in a thousand reports (five earlier costs).
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

RECENT = 3
"""Latest costs that must all be off."""

LEAST_EARLIER = 5
"""Costs before those without which nothing is believed."""

LIMIT = 3.0
"""Deviations from the earlier mean beyond which a cost is off."""

LEAST_RELATIVE_DEVIATION = 0.02
"""Share of the earlier mean that a deviation is taken to be at least."""


@dataclass(frozen=True, slots=True)
class CostDrift:
    """How a batch size's latest costs, or metrics, differ from its earlier ones.

    Attributes:
        earlier_mean: Mean of the earlier costs in J, or of the metrics.
        recent_mean: Mean of the latest.
    """

    earlier_mean: float
    recent_mean: float

    @property
    def ratio(self) -> float:
        """Latest mean cost as a multiple of the earlier one."""
        return self.recent_mean / self.earlier_mean

    @property
    def rises(self) -> bool:
        """Whether the latest are higher."""
        return self.recent_mean > self.earlier_mean


def cost_drift(costs: Sequence[float]) -> CostDrift | None:
    """Return how the latest costs differ from the earlier ones, None while they fit.

    Args:
        costs: Costs in J of the trials at one batch size, oldest first, finite and above 0; or metrics, of any sign.
    """
    earlier, recent = costs[:-RECENT], costs[-RECENT:]
    if len(earlier) < LEAST_EARLIER:
        return None
    mean = statistics.fmean(earlier)
    margin = LIMIT * max(statistics.stdev(earlier), LEAST_RELATIVE_DEVIATION * abs(mean))
    if min(recent) > mean + margin or max(recent) < mean - margin:
        return CostDrift(mean, statistics.fmean(recent))
    return None
