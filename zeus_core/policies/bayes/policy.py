"""The `bayes` policy: learn how cost follows batch size, and explore only what pays within the recurrences to come.

Where the paper's policy tries every batch size twice before it chooses, this one predicts untried sizes from tried
ones (see `model`), and tries a size only if what it teaches is worth more than it costs (see `decision`). It is a
pure function of what was learnt; nothing is drawn at random. In particular:

- The first trial is at the default batch size.
- The horizon is the number of recurrences left, or, where the job has no end, as many as there have been: whatever
  has lasted n times may be expected to last n times more. It is never below `LEAST_HORIZON`.
- While no size has reached the target, the one that is cheapest to try until it does is handed out.
- Sizes that ran out of memory, and all above, are left out; those that keep failing by themselves are passed over.
- Exploring never costs much more than the default batch size would have (see `purse`).
- A trial in flight counts as if it had ended as expected: it lowers the doubt, so that trials that run at the same
  time look in different places.
- The early-stop threshold is ``beta_knob`` times the cheapest recurrence, or times what the best size costs in a run
  that is one standard deviation unlucky where that is more: a lucky recurrence does not end all that come after it,
  and a trial that is given up just before its end has to be paid for twice.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.learnt import Learnt, memory_limit, required_fitting_sizes
from zeus_kfp.zeus_core.policies.bayes.decision import Outlook, cost_until_reached, outlook
from zeus_kfp.zeus_core.policies.bayes.model import CostBelief, cost_belief
from zeus_kfp.zeus_core.policies.bayes.purse import beyond_purse
from zeus_kfp.zeus_core.policies.interface import ArmPosterior, InFlight
from zeus_kfp.zeus_core.pruning import nearest_below
from zeus_kfp.zeus_core.trial import Purpose, Suggestion, finite_or_none

LEAST_HORIZON = 50.0
"""Recurrences that a job without an end is thought to have before it at least."""


class BayesPolicy:
    """Gaussian-process beliefs about epochs and their cost, knowledge-gradient decisions."""

    name = "bayes"

    def suggest(
        self, job: JobSpec, learnt: Learnt, in_flight: Sequence[InFlight], rng: np.random.Generator
    ) -> Suggestion:
        """Return the batch size of the next trial.

        Args:
            job: The job's knobs.
            learnt: What its finished trials taught.
            in_flight: Trials that were handed out and have not reported.
            rng: Random generator; never advanced.

        Raises:
            NoBatchSizeLeftError: If every size ran out of memory.
        """
        sizes = _usable_sizes(job, learnt)
        is_first = not in_flight and not any(_is_tried(learnt, size) for size in sizes)
        if is_first:
            size = nearest_below(sizes, job.default_batch_size)
            return _suggestion(job, size, _why_first(job, size), None)
        situation = _Situation.of(job, learnt, sizes, in_flight)
        index, why = situation.choice()
        return _suggestion(job, sizes[index], why, situation.threshold)

    def posterior(self, job: JobSpec, learnt: Learnt) -> tuple[ArmPosterior, ...]:
        """Return the belief about every batch size of the job, ascending."""
        believed = cost_belief(job, learnt, job.batch_sizes)
        is_known = any(arm.count for arm in learnt.arms.values())
        mean = np.exp(np.minimum(believed.log_cost.mean + believed.log_cost.variance / 2, _LARGEST_LOG))
        deviation = mean * np.sqrt(np.expm1(np.minimum(believed.log_cost.variance, _LARGEST_LOG)))
        return tuple(
            ArmPosterior(
                batch_size=size,
                mean_cost=float(mean[index]) if is_known else None,
                standard_deviation=float(deviation[index]) if is_known else None,
                count=learnt.arm(size).count,
                status=_status(learnt, size),
            )
            for index, size in enumerate(job.batch_sizes)
        )


_LARGEST_LOG = 300.0
"""A logarithm whose exponential, squared, does not overflow."""


@dataclass(frozen=True, slots=True)
class _Situation:
    """All that a choice rests on; searching while trials were given up and none reached."""

    sizes: Sequence[int]
    tried: Sequence[bool]
    waiting: Sequence[int]
    is_searching: bool
    threshold: float | None
    outlook: Outlook

    @classmethod
    def of(cls, job: JobSpec, learnt: Learnt, sizes: Sequence[int], in_flight: Sequence[InFlight]) -> "_Situation":
        flying = [sizes.index(trial.batch_size) for trial in in_flight if trial.batch_size in sizes]
        believed = _with_flying(cost_belief(job, learnt, sizes), flying)
        reached = [index for index, size in enumerate(sizes) if learnt.arm(size).evidence.reached_count]
        candidates = reached or list(range(len(sizes)))
        tried = [_is_tried(learnt, size) for size in sizes]
        # How trials are stopped depends on what a retry costs, and that on how they are stopped.
        expected = float(cost_until_reached(believed)[candidates].min())
        threshold = _threshold(job, learnt, expected * math.exp(math.sqrt(believed.noise_variance)))
        log_threshold = math.inf if threshold is None else math.log(threshold)
        seen = outlook(believed, log_threshold, candidates, _horizon(job, learnt))
        waiting = _waiting(job, sizes, reached, [trial.batch_size for trial in in_flight])
        if threshold is not None and job.default_batch_size in sizes:
            usual = float(seen.alone[sizes.index(job.default_batch_size)])
            waiting += beyond_purse(job, learnt, sizes, flying, seen.now, usual, threshold)
        return cls(sizes, tried, waiting, any(tried) and not reached, threshold, seen)

    def choice(self) -> tuple[int, str]:
        """Return the position of the size to try next, and why."""
        best = self.outlook.cheapest
        if len(self.sizes) == 1:
            return best, f"{self.sizes[best]} is the only batch size that works"
        if self.is_searching:
            return best, f"nothing has reached the target yet: {self.sizes[best]} is the cheapest to try until it does"
        index = self.outlook.choice(self.waiting)
        now = self.outlook.now
        if index in self.waiting and not self.tried[index] and any(self.tried):
            # In flight for the first time: no second trial there before the first has told.
            tried = [position for position, is_tried in enumerate(self.tried) if is_tried]
            index = best = min(tried, key=lambda position: float(now[position]))
        if index == best:
            kind = "known" if self.tried[index] else "predicted"
            return index, f"{self.sizes[index]} is {kind} to cost least: {now[index]:.4g} J a recurrence"
        return index, (
            f"exploring {self.sizes[index]}: expected to cost {now[index] / now[best] - 1:.0%} more now than "
            f"{self.sizes[best]}, and to save {self.outlook.gain[index]:.3g} J over the next "
            f"{self.outlook.horizon:.0f} recurrences"
        )


def _is_tried(learnt: Learnt, size: int) -> bool:
    evidence = learnt.arm(size).evidence
    return evidence.reached_count + evidence.unreached_count > 0


def _usable_sizes(job: JobSpec, learnt: Learnt) -> tuple[int, ...]:
    fitting = required_fitting_sizes(job, learnt)
    return tuple(size for size in fitting if not learnt.arm(size).keeps_failing) or fitting


def _waiting(job: JobSpec, sizes: Sequence[int], reached: Sequence[int], flying: Sequence[int]) -> list[int]:
    """Return the positions that trials in flight will tell about: their own, and those beyond them.

    Beyond means further away from the sizes that have reached the target, or from the default.
    """
    known = [sizes[index] for index in reached] or [job.default_batch_size]
    low, high = known[0], known[-1]
    return [
        index
        for index, size in enumerate(sizes)
        if any(size == one or size > one > high or size < one < low for one in flying)
    ]


def _with_flying(believed: CostBelief, flying: Sequence[int]) -> CostBelief:
    """Return the belief as if the trials in flight, at these positions, had cost what is expected of them."""
    expected = believed.log_cost.mean[list(flying)].tolist()
    log_cost = believed.log_cost.observed(flying, expected, [believed.noise_variance] * len(flying))
    return replace(believed, log_cost=log_cost)


def _threshold(job: JobSpec, learnt: Learnt, unlucky_cost: float) -> float | None:
    cheapest = learnt.min_recurrence_cost
    return None if cheapest is None else finite_or_none(job.beta_knob * max(cheapest, unlucky_cost))


def _horizon(job: JobSpec, learnt: Learnt) -> float:
    past = float(sum(arm.reached_count for arm in learnt.arms.values()))
    return max(job.num_recurrences - past - 1, 0.0) if job.num_recurrences else max(past, LEAST_HORIZON)


def _suggestion(job: JobSpec, size: int, why: str, threshold: float | None) -> Suggestion:
    factor = job.learning_rate_rule.factor(size, job.default_batch_size)
    return Suggestion(size, Purpose.SAMPLING, why, threshold, factor)


def _why_first(job: JobSpec, size: int) -> str:
    if size == job.default_batch_size:
        return f"nothing is known yet: the default batch size {size} comes first"
    return f"nothing is known yet: {size} is the nearest to the default that may work"


def _status(learnt: Learnt, size: int) -> str:
    arm, limit = learnt.arm(size), memory_limit(learnt)
    if limit is not None and size >= limit:
        return f"ruled out: out of memory at {limit}"
    if arm.keeps_failing:
        return f"ruled out: failed {arm.consecutive_failures} times in a row"
    if not arm.count:
        return "untried"
    return "sampled" if arm.reached_count else "ruled out: never reached the target"
