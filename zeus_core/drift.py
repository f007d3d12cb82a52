"""Counts a trial in, and forgets what earlier trials said of epochs once the data has changed too much.

A trial contradicts the n before it at its batch size if

    |ln epochs - mean| > 3 sqrt(noise (1 + 1/n)),    n >= 5

with the noise pooled over all sizes; a trial that was given up does if even its lower bound lies so far above the
mean. One or two such trials may be chance, since epochs are whole numbers and jump: they are held back, so that they
don't hide the next. For three in a row at one size the data is to blame: then the epochs of every size are forgotten,
while the cost of an epoch is kept.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from zeus_kfp.zeus_core.evidence import Evidence, noise_variance

SURPRISE = 3.0
"""Standard deviations beyond which a trial contradicts those before it."""
PATIENCE = 3
"""How many such trials in a row are taken for a change."""
LEAST_TRIALS = 5
"""Trials at a size before one can contradict them."""


@dataclass(frozen=True, slots=True)
class Result:
    """A trial with a cost, as far as it is evidence.

    Attributes:
        batch_size: Samples.
        reached: Whether it reached the target.
        cost: What it cost in J, above 0.
        num_epochs: Epochs that it trained; None if not known.
        epoch_cost: Cost in J of an epoch once the power limit has settled; None if not known.
    """

    batch_size: int
    reached: bool
    cost: float
    num_epochs: float | None = None
    epoch_cost: float | None = None

    def added_to(self, evidence: Evidence) -> Evidence:
        """Return the evidence of its size with it counted in."""
        return evidence.with_trial(self.reached, self.cost, self.num_epochs, self.epoch_cost)

    def held_back_from(self, evidence: Evidence) -> Evidence:
        """Return the evidence of its size with it held back; what it says of the epoch cost counts at once."""
        epoch_cost = self.added_to(Evidence()).epoch_cost or evidence.epoch_cost
        return replace(evidence, epoch_cost=epoch_cost, held=(*evidence.held, (self.cost, self.num_epochs)))


def with_result(evidences: Mapping[int, Evidence], result: Result) -> tuple[dict[int, Evidence], bool]:
    """Return the evidence of every batch size once a trial is counted in, and whether the data has changed by that.

    Args:
        evidences: By batch size; that of the trial must be among them.
        result: The trial.

    Raises:
        InvalidValueError: If its epochs or epoch cost is out of its range.
    """
    size, after = result.batch_size, dict(evidences)
    surprises = evidences[size].surprises + 1 if contradicts(evidences, result) else 0
    has_changed = surprises >= PATIENCE
    if has_changed:
        after = {other: evidence.on_other_data() for other, evidence in after.items()}
        surprises = 0
    before = replace(after[size], surprises=surprises)
    is_held = surprises and result.reached
    after[size] = result.held_back_from(before) if is_held else result.added_to(before.released())
    return after, has_changed


def contradicts(evidences: Mapping[int, Evidence], result: Result) -> bool:
    """Return whether a trial can't well be one more of those that its batch size had before."""
    own = evidences[result.batch_size]
    by_epochs = bool(result.num_epochs) and own.log_epochs.count >= own.log_cost.count
    seen = own.log_epochs if by_epochs else own.log_cost
    if seen.count < LEAST_TRIALS:
        return False
    every = evidences.values()
    noise = noise_variance(one.log_epochs if by_epochs else one.log_cost for one in every)
    value = math.log(result.num_epochs if by_epochs and result.num_epochs else result.cost)
    deviation = (value - seen.mean) / math.sqrt(noise * (1 + 1 / seen.count))
    return abs(deviation) > SURPRISE if result.reached else deviation > SURPRISE
