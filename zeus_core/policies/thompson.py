"""Gaussian Thompson sampling with a learnt precision, over the mean cost of each batch size.

With n costs of mean m and population variance v, and a prior of mean p (as a cost) and precision q, the belief
about the mean cost is normal with

    precision = q + n / v,    mean = (q p + n m / v) / precision                           [1, algorithm 2]

that is, for the flat prior q = 0, mean m and standard deviation sqrt(v / n). One draw from each belief is taken,
and the batch size of the lowest drawn is used. With a window only the latest costs count.

It differs from the published implementation on purpose in this: equal costs have no variance, which there makes
a belief of infinite precision, so that of two such sizes the first always wins and the other is never tried
again. Here the standard deviation of a cost is never below `RELATIVE_NOISE_FLOOR` of the mean cost.

References:
    [1] You, Chung, Chowdhury. "Zeus: Understanding and Optimizing GPU Energy Consumption of DNN Training",
        NSDI 2023.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.learnt import ArmSummary

if TYPE_CHECKING:  # a pod that only reports needs no numpy
    import numpy as np

RELATIVE_NOISE_FLOOR = 1e-6
"""Far below the noise of any measurement, far above that of floating-point sums."""


class Belief(NamedTuple):
    """A normal distribution of a batch size's mean cost, in J."""

    mean_cost: float
    standard_deviation: float


def posterior(job: JobSpec, arm: ArmSummary) -> Belief | None:
    """Return the belief about the mean cost of a batch size.

    Args:
        job: Gives the prior and the window.
        arm: What was learnt of the batch size.

    Returns:
        The belief; None before the first cost where the prior is flat.
    """
    if not arm.count:
        if not job.prior_precision:
            return None
        return Belief(-job.prior_mean, 1 / math.sqrt(job.prior_precision))
    count, mean, measured = _moments(arm)
    deviation = max(measured, RELATIVE_NOISE_FLOOR * mean)
    if not job.prior_precision:
        return Belief(mean, deviation / math.sqrt(count))
    # The prior's precision over that of the costs, as a square root: nothing here overflows or cancels out.
    ratio = deviation * math.sqrt(job.prior_precision / count)
    length = math.hypot(1.0, ratio)
    costs_share, prior_share = (1.0 / length) ** 2, (ratio / length) ** 2
    return Belief(costs_share * mean - prior_share * job.prior_mean, deviation / math.sqrt(count) / length)


def lowest_draw(beliefs: Sequence[Belief], rng: "np.random.Generator") -> int:
    """Return the position of the belief whose drawn cost is lowest.

    Args:
        beliefs: At least one.
        rng: Gives one normal variate for each belief, in their order.
    """
    variates = rng.standard_normal(len(beliefs)).tolist()
    draws = [mean - deviation * z for (mean, deviation), z in zip(beliefs, variates, strict=True)]
    return draws.index(min(draws))


def _moments(arm: ArmSummary) -> tuple[int, float, float]:
    """Return count, mean in J and population standard deviation in J of the costs that count."""
    costs = arm.recent_costs
    if not costs:
        return arm.count, arm.mean_cost, math.sqrt(arm.sum_squared_deviations / arm.count)
    count = len(costs)
    mean = sum(costs) / count
    return count, mean, math.dist(costs, (mean,) * count) / math.sqrt(count)
