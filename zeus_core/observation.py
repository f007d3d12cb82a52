"""What a policy is told of a finished trial."""

from dataclasses import dataclass, replace

from zeus_kfp.zeus_core.learning_curve import Curve
from zeus_kfp.zeus_core.trial import Purpose, TrialState


@dataclass(frozen=True, slots=True)
class Observation:
    """A finished trial, as far as a policy learns from it.

    Attributes:
        batch_size: Samples.
        purpose: Why the size was handed out.
        state: How the trial ended.
        cost: Cost in J; None where the trial has none (oom, failed, expired).
        recurrence_cost: Cost in J of the recurrence up to and with this trial: what its trials with a cost
            sum up to. None where the trial has no cost.
        num_epochs: Epochs that it trained; None if not known.
        epoch_cost: Cost in J of an epoch at its size once the power limit has settled; None if not known.
        least_epochs: Epochs that it very likely needed at least, where it was stopped as hopeless; else None.
        curve: How it reached the target; empty if it did not, or that is not known.
        accelerator: Model of the accelerator that it ran on; "" if not known.
    """

    batch_size: int
    purpose: Purpose
    state: TrialState
    cost: float | None = None
    recurrence_cost: float | None = None
    num_epochs: float | None = None
    epoch_cost: float | None = None
    least_epochs: float | None = None
    curve: Curve = ()
    accelerator: str = ""

    @property
    def is_hopeless(self) -> bool:
        """Whether it was stopped early since it would have taken too many epochs."""
        return self.least_epochs is not None

    def as_predicted(self) -> "Observation":
        """Return a hopeless trial as one that was given up after the epochs that it would have needed at least.

        What it cost up to its early end says nothing of its batch size, which would look cheap by it.
        """
        if self.least_epochs is None or self.cost is None or not self.num_epochs:
            return self
        cost = self.cost / self.num_epochs * self.least_epochs
        return replace(self, cost=cost, num_epochs=self.least_epochs)
