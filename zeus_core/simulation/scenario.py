"""What happens to a simulated job beside its recorded truth: overlap, failures, memory, noise, change."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.simulation.truth import JobTruth
from zeus_kfp.zeus_core.validation import integer, number, truth


class ChangeKind(StrEnum):
    """What changes midway."""

    DRIFT = "drift"
    """The data: epochs and costs follow another trace, and nobody tells the policy."""
    GPU = "gpu"
    """The GPU model, which is known: epochs learnt stay, costs are forgotten and profiled anew."""
    GPU_FORGETTING_ALL = "gpu_forgetting_all"
    """The GPU model, where everything learnt is thrown away."""


@dataclass(frozen=True, slots=True)
class Change:
    """From a recurrence on, another truth.

    Attributes:
        recurrence: The first recurrence that it holds for, from 1.
        truth: What training takes from then on; it must have the batch sizes of the job.
        kind: What changes.
    """

    recurrence: int
    truth: JobTruth
    kind: ChangeKind = ChangeKind.DRIFT


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a simulated job meets.

    Attributes:
        overlap: Recurrences that run at the same time; the next starts when one ends.
        failure_probability: Chance that a trial fails by itself, anywhere in its run, 0 to below 1.
        fits_up_to: Largest batch size in samples that fits in memory; None if all do.
        noise: Standard deviation of ln(epochs to the target), beside what the recorded runs differ by.
        changes: What changes midway, in the order of their recurrences.
        slow_start: Whether a job that overlaps begins with one at a time, and another for every two results, as in the
            pipeline.

    Raises:
        InvalidValueError: If any of them is out of its range.
    """

    overlap: int = 1
    failure_probability: float = 0.0
    fits_up_to: int | None = None
    noise: float = 0.0
    changes: tuple[Change, ...] = ()
    slow_start: bool = True

    def __post_init__(self) -> None:
        """Check every value."""
        truth("slow_start", self.slow_start)
        integer("overlap", self.overlap, at_least=1, at_most=1000)
        number("failure_probability", self.failure_probability, at_least=0, at_most=0.99)
        number("noise", self.noise, at_least=0, at_most=10)
        if self.fits_up_to is not None:
            integer("fits_up_to", self.fits_up_to, at_least=1)
        starts = [integer("the recurrence of a change", change.recurrence, at_least=1) for change in self.changes]
        if starts != sorted(set(starts)):
            raise InvalidValueError(f"changes must come in the order of their recurrences, not {starts}")

    def check_sizes(self, batch_sizes: Sequence[int]) -> None:
        """Make sure that the job can run throughout.

        Raises:
            InvalidValueError: If a change lacks a batch size of the job, or no size fits in memory.
        """
        for change in self.changes:
            missing = sorted(set(batch_sizes) - set(change.truth.sizes))
            if missing:
                raise InvalidValueError(
                    f"the change at recurrence {change.recurrence} has no trace of the batch sizes {missing}: "
                    "leave them out of the job's"
                )
        if self.fits_up_to is not None and self.fits_up_to < batch_sizes[0]:
            raise InvalidValueError(
                f"fits_up_to must be at least the smallest batch size {batch_sizes[0]}, not {self.fits_up_to}"
            )


PLAIN = Scenario()
