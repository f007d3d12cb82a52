"""What a policy is told of a finished trial."""

from dataclasses import dataclass

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
    """

    batch_size: int
    purpose: Purpose
    state: TrialState
    cost: float | None = None
    recurrence_cost: float | None = None
    num_epochs: float | None = None
    epoch_cost: float | None = None
