"""The batch-size policy of the Zeus paper: a pruning walk, then Gaussian Thompson sampling [1].

A pure function of what was learnt, the trials in flight and the random generator. While the walk lasts, nothing
is drawn; then each suggestion draws one random order of the sizes left, takes the first that has too few
observations, and otherwise the lowest of one normal draw for each size. Fed with the same costs, it suggests what
the published in-process implementation suggests from the same seed.

It differs from that on purpose where that loses something:

- Out of memory: the size and all above are ruled out, in the walk and after it, unless one of them has reached the
  target before. If the default is among them, the walk starts at the largest size left below it.
- Poisoned minimum: only trials that reached the target set the cheapest cost (see `learnt`).
- Zero variance: equal costs don't make a belief of infinite precision (see `thompson`).
- Dead trials: one that expired is as if it never ran. A size whose trials failed three times in a row is passed
  over until one of them ends otherwise; one that has worked before gets another chance after each trial that
  reached the target; if all that is left keeps failing, the default is handed out, and once anything works again
  all of them are back.
- A round in which nothing reached the target: the walk goes on to the sizes it has not tried, and starts over
  with the default once all were tried (see `pruning`).
- Trials in flight count as observations while a size still has too few, so that the last one it needs is never
  handed out twice; and only a step of the walk moves the walk on, never a concurrent trial that happens to have
  the same size.

References:
    [1] You, Chung, Chowdhury. "Zeus: Understanding and Optimizing GPU Energy Consumption of DNN Training",
        NSDI 2023.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.learnt import ArmSummary, Learnt, fitting_sizes, memory_limit, walk_of
from zeus_kfp.zeus_core.policies.interface import ArmPosterior, InFlight
from zeus_kfp.zeus_core.policies.thompson import lowest_draw, posterior
from zeus_kfp.zeus_core.pruning import Step, Walk, nearest_below
from zeus_kfp.zeus_core.trial import Purpose, Suggestion, finite_or_none

if TYPE_CHECKING:  # a pod that only reports needs no numpy
    import numpy as np


class ZeusPolicy:
    """Pruning walk, then Gaussian Thompson sampling with a learnt precision."""

    name = "zeus"

    def suggest(
        self, job: JobSpec, learnt: Learnt, in_flight: Sequence[InFlight], rng: "np.random.Generator"
    ) -> Suggestion:
        """Return the batch size of the next trial.

        Args:
            job: The job's knobs.
            learnt: What its finished trials taught.
            in_flight: Trials that were handed out and have not reported.
            rng: Random generator; advanced by the call in the sampling stage, untouched during the walk.

        Raises:
            NoBatchSizeLeftError: If every size ran out of memory.
        """
        walk = walk_of(job, learnt)
        if walk.step is None and not walk.exhausted:
            return _sampled(job, learnt, walk.candidates, in_flight, rng)
        for trial in in_flight:
            if trial.purpose is Purpose.EXPLORATION:
                return _concurrent(job, learnt, f"another trial explores {trial.batch_size}")
        if walk.step is None:
            size = nearest_below(fitting_sizes(job, learnt), job.default_batch_size)
            why = f"no batch size works at present: {size} is tried again"
            return _suggestion(job, learnt, size, Purpose.EXPLORATION, why)
        return _suggestion(job, learnt, walk.step.batch_size, Purpose.EXPLORATION, _why_next(job, learnt, walk.step))

    def posterior(self, job: JobSpec, learnt: Learnt) -> tuple[ArmPosterior, ...]:
        """Return the belief about every batch size of the job, ascending."""
        walk = walk_of(job, learnt) if fitting_sizes(job, learnt) else Walk(None, ())
        return tuple(_arm_posterior(job, learnt, walk, size) for size in job.batch_sizes)


def _suggestion(job: JobSpec, learnt: Learnt, size: int, purpose: Purpose, why: str) -> Suggestion:
    cheapest = learnt.min_recurrence_cost
    factor = job.learning_rate_rule.factor(size, job.default_batch_size)
    threshold = None if cheapest is None else finite_or_none(job.beta_knob * cheapest)
    return Suggestion(size, purpose, why, threshold, factor)


def _why_next(job: JobSpec, learnt: Learnt, step: Step) -> str:
    size, where = step.batch_size, f"round {step.round_number} of {job.num_pruning_rounds}"
    if size != step.start:
        direction = "downwards" if size < step.start else "upwards"
        why = f"exploring {direction} from {step.start}: {size} is next ({where})"
    elif step.round_number > 1:
        why = f"exploring from {size}, the cheapest of the round before ({where})"
    elif size == job.default_batch_size:
        why = f"exploring from the default batch size {size} ({where})"
    else:
        why = f"exploring from {size}, the largest that may fit below the default ({where})"
    failures = learnt.arm(size).consecutive_failures
    return f"{why}, again since {failures} of its trials failed" if failures else why


def _concurrent(job: JobSpec, learnt: Learnt, reason: str) -> Suggestion:
    size = _best_known(job, learnt)
    known = "the cheapest so far" if learnt.arm(size).reached_count else "not yet known to be bad"
    return _suggestion(job, learnt, size, Purpose.CONCURRENT, f"{reason}: meanwhile {size}, {known}")


def _best_known(job: JobSpec, learnt: Learnt) -> int:
    """Return the size that is safest to use now: the cheapest that works, or else the default."""
    fitting = fitting_sizes(job, learnt)
    working = [size for size in fitting if not learnt.arm(size).keeps_failing]
    if learnt.best_batch_size in working:
        return learnt.best_batch_size
    costs = {size: cost for size in working if (cost := learnt.arm(size).min_cost) is not None}
    return min(costs, key=costs.__getitem__) if costs else nearest_below(working or fitting, job.default_batch_size)


def _sampled(
    job: JobSpec,
    learnt: Learnt,
    candidates: Sequence[int],
    in_flight: Sequence[InFlight],
    rng: "np.random.Generator",
) -> Suggestion:
    arms = [arm for arm in map(learnt.arm, candidates) if not arm.keeps_failing]
    if not arms:
        size = nearest_below(fitting_sizes(job, learnt), job.default_batch_size)
        why = f"every batch size left keeps failing: falling back to {size}"
        return _suggestion(job, learnt, size, Purpose.SAMPLING, why)
    # The order is drawn even where no size has too few observations: the published generator is advanced by it.
    order = rng.choice(len(arms), len(arms), replace=False).tolist()
    for arm in [arms[index] for index in order]:
        missing = job.num_explorations - arm.count
        if missing > 0 and missing > sum(trial.batch_size == arm.batch_size for trial in in_flight):
            why = f"{arm.batch_size} has {arm.count} of the {job.num_explorations} observations it needs"
            return _suggestion(job, learnt, arm.batch_size, Purpose.SAMPLING, why)
    return _drawn(job, learnt, arms, rng)


def _drawn(job: JobSpec, learnt: Learnt, arms: Sequence[ArmSummary], rng: "np.random.Generator") -> Suggestion:
    sizes, beliefs = [], []
    for arm in arms:
        belief = posterior(job, arm)
        if belief is not None:
            sizes.append(arm.batch_size)
            beliefs.append(belief)
    if not beliefs:
        return _concurrent(job, learnt, "every batch size is being tried for the first time")
    index = lowest_draw(beliefs, rng)
    size, chosen = sizes[index], beliefs[index]
    expected = f"{chosen.mean_cost:.6g} ± {chosen.standard_deviation:.2g} J"
    why = f"lowest of one draw for each of {len(beliefs)} batch sizes: {size}, expected to cost {expected}"
    return _suggestion(job, learnt, size, Purpose.SAMPLING, why)


def _arm_posterior(job: JobSpec, learnt: Learnt, walk: Walk, size: int) -> ArmPosterior:
    arm = learnt.arm(size)
    belief = posterior(job, arm) if arm.count else None
    # One cost alone says nothing of the noise.
    spread_known = belief is not None and (arm.count > 1 or job.prior_precision > 0)
    return ArmPosterior(
        batch_size=size,
        mean_cost=belief.mean_cost if belief else None,
        standard_deviation=belief.standard_deviation if belief and spread_known else None,
        count=arm.count,
        status=_status(job, learnt, walk, size),
    )


def _status(job: JobSpec, learnt: Learnt, walk: Walk, size: int) -> str:
    arm, limit = learnt.arm(size), memory_limit(learnt)
    if limit is not None and size >= limit:
        return f"ruled out: out of memory at {limit}"
    if arm.keeps_failing:
        return f"ruled out: failed {arm.consecutive_failures} times in a row"
    if size in walk.not_reached:
        return f"ruled out: did not reach the target in round {walk.not_reached[size]}"
    if size not in walk.candidates:
        return "ruled out: beyond a size that did not reach the target"
    if not arm.count:
        return "untried"
    return "exploring" if walk.step or arm.count < job.num_explorations else "sampled"
