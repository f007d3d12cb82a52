"""What every batch-size policy is: a pure function of what was learnt."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.learnt import Learnt
from zeus_kfp.zeus_core.trial import Purpose, Suggestion

if TYPE_CHECKING:  # a pod that only reports needs no numpy
    import numpy as np


@dataclass(frozen=True, slots=True)
class InFlight:
    """A trial that was handed out and has not reported yet."""

    batch_size: int
    purpose: Purpose


@dataclass(frozen=True, slots=True)
class ArmPosterior:
    """The belief about the mean cost of one batch size, for people to read.

    Attributes:
        batch_size: Samples.
        mean_cost: Posterior mean in J; None before the first cost.
        standard_deviation: Posterior standard deviation in J; None where it is not defined yet.
        count: Costs that it rests on.
        status: "untried", "exploring", "sampled", or "ruled out: …" with the reason.
    """

    batch_size: int
    mean_cost: float | None
    standard_deviation: float | None
    count: int
    status: str


class Policy(Protocol):
    """A batch-size policy: ask (`suggest`) and tell (the fold of `learnt.observe`), no hidden state."""

    name: str

    def suggest(
        self, job: JobSpec, learnt: Learnt, in_flight: Sequence[InFlight], rng: "np.random.Generator"
    ) -> Suggestion:
        """Return the batch size of the next trial.

        Args:
            job: The job's knobs.
            learnt: What its finished trials taught.
            in_flight: Trials that were handed out and have not reported.
            rng: Random generator; advanced by the call, kept by the caller between calls.

        Raises:
            NoBatchSizeLeftError: If every size is ruled out.
        """
        ...

    def posterior(self, job: JobSpec, learnt: Learnt) -> tuple[ArmPosterior, ...]:
        """Return the belief about every batch size of the job, ascending."""
        ...
