"""What was learnt of a job, compactly: one summary per batch size, whatever the number of trials.

A summary is a fold over finished trials: the store keeps it up to date in the transaction that finishes the
trial, and the trial rows alone rebuild it. Policies read it and nothing else.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

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
    """

    batch_size: int
    purpose: Purpose
    state: TrialState
    cost: float | None = None
    recurrence_cost: float | None = None


@dataclass(frozen=True, slots=True)
class Exploration:
    """One result of the pruning walk: its cost in J and whether the target was reached."""

    cost: float
    reached: bool


@dataclass(frozen=True, slots=True)
class ArmSummary:
    """What was learnt of one batch size.

    Attributes:
        batch_size: Samples.
        count: Trials with a cost.
        reached_count: How many of them reached the target.
        mean_cost: Mean of their costs in J (0 without any).
        sum_squared_deviations: Sum of squared deviations from that mean, in J² (Welford's running sum).
        recent_costs: The latest costs in J, oldest first, as many as the job's window holds; empty without
            a window.
        min_cost: Lowest cost in J of a trial that reached the target; None without any.
        explorations: Results of the pruning walk at this size, in order.
        out_of_memory: Whether a trial at this size ran out of memory.
        consecutive_failures: Trials that failed by themselves since the last that ended otherwise.
    """

    batch_size: int
    count: int = 0
    reached_count: int = 0
    mean_cost: float = 0.0
    sum_squared_deviations: float = 0.0
    recent_costs: tuple[float, ...] = ()
    min_cost: float | None = None
    explorations: tuple[Exploration, ...] = ()
    out_of_memory: bool = False
    consecutive_failures: int = 0


@dataclass(frozen=True, slots=True)
class Learnt:
    """What was learnt of a job.

    Attributes:
        arms: Summary by batch size; a size that was never finished may be absent.
        min_recurrence_cost: Lowest cost in J of a recurrence that reached the target, over all its trials;
            None without any. The early-stop threshold is a multiple of it.
        best_batch_size: The batch size that ended that recurrence; None without any.
    """

    arms: Mapping[int, ArmSummary] = field(default_factory=dict)
    min_recurrence_cost: float | None = None
    best_batch_size: int | None = None

    def arm(self, batch_size: int) -> ArmSummary:
        """Return the summary of a batch size, an empty one if nothing was learnt of it."""
        return self.arms.get(batch_size, ArmSummary(batch_size))
