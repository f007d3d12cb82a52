"""Tells when the data has changed so much that earlier trials mislead.

A trial contradicts the n before it at its batch size if

    |ln epochs - mean| > 3 sqrt(noise (1 + 1/n)),    n >= 3

with the noise pooled over all sizes; a trial that was given up does if even its lower bound lies so far above the
mean. One such trial may be chance. Of two in a row at one size the data is to blame: then the epochs of every size
are forgotten, while the cost of an epoch is kept.
"""

import math
from collections.abc import Iterable

from zeus_kfp.zeus_core.evidence import Evidence, Moments, noise_variance

SURPRISE = 3.0
"""Standard deviations beyond which a trial contradicts those before it."""
PATIENCE = 2
"""How many such trials in a row are taken for a change."""
LEAST_TRIALS = 3
"""Trials at a size before one can contradict them."""


def surprises(
    evidence: Evidence, others: Iterable[Evidence], reached: bool, cost: float, num_epochs: float | None
) -> int:
    """Return how many trials in a row have contradicted those before them, with this one.

    Args:
        evidence: What the trials at its batch size taught before it.
        others: The evidence of every batch size, this one included.
        reached: Whether the trial reached the target.
        cost: Its cost in J.
        num_epochs: Its epochs; None if not known.
    """
    by_epochs = bool(num_epochs) and evidence.log_epochs.count >= evidence.log_cost.count
    seen = evidence.log_epochs if by_epochs else evidence.log_cost
    if seen.count < LEAST_TRIALS:
        return 0
    noise = noise_variance(_moments(other, by_epochs) for other in others)
    value = math.log(num_epochs if num_epochs and by_epochs else cost)
    deviation = (value - seen.mean) / math.sqrt(noise * (1 + 1 / seen.count))
    contradicts = abs(deviation) > SURPRISE if reached else deviation > SURPRISE
    return evidence.surprises + 1 if contradicts else 0


def _moments(evidence: Evidence, by_epochs: bool) -> Moments:
    return evidence.log_epochs if by_epochs else evidence.log_cost
