"""What was learnt of a job, compactly: one summary per batch size, whatever the number of trials.

A summary is a fold over finished trials: the store keeps it up to date in the transaction that finishes the
trial, and the trial rows alone rebuild it. Policies read it and nothing else.

A variance is kept as Welford's running sum, so that a suggestion costs the same after ten trials and after a
hundred thousand. Where the published implementation lets any trial set the cheapest cost, only one that reached
the target does here: a trial that was given up is cheap since it was given up.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from zeus_kfp.zeus_core.drift import Result, with_result
from zeus_kfp.zeus_core.errors import InvalidValueError, NoBatchSizeLeftError
from zeus_kfp.zeus_core.evidence import Evidence
from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.learning_curve import Curve
from zeus_kfp.zeus_core.observation import Observation
from zeus_kfp.zeus_core.pruning import Exploration, Walk, replay
from zeus_kfp.zeus_core.trial import Purpose, TrialState
from zeus_kfp.zeus_core.validation import number

__all__ = [
    "ArmSummary",
    "Exploration",
    "Learnt",
    "Observation",
    "fitting_sizes",
    "forget_costs",
    "memory_limit",
    "observe",
    "rebuild",
    "required_fitting_sizes",
    "walk_of",
]

MAX_CONSECUTIVE_FAILURES = 3
"""A size whose trials failed so often in a row, by themselves, is passed over."""

MOST_CURVES_OF_A_SIZE = 3
"""Learning curves that are kept of a batch size: they differ little."""

MAX_COST = 1e100
"""Costs in J up to here can be squared and summed without overflow; no training costs more."""


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
        consecutive_failures: Trials that failed by themselves since the last that ended otherwise, or since
            the policy started over.
        evidence: What they say of its epochs and of their cost.
        curves: How its latest trials that did so reached the target, oldest first, `MOST_CURVES_OF_A_SIZE` at most.
        hopeless_in_row: Trials in a row, the latest among them, that were stopped as hopeless.
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
    evidence: Evidence = Evidence()
    curves: tuple[Curve, ...] = ()
    hopeless_in_row: int = 0

    @property
    def keeps_failing(self) -> bool:
        """Whether its trials failed so often in a row that the size is passed over for now."""
        return self.consecutive_failures >= MAX_CONSECUTIVE_FAILURES


@dataclass(frozen=True, slots=True)
class Learnt:
    """What was learnt of a job.

    Attributes:
        arms: Summary by batch size; a size that was never finished may be absent.
        min_recurrence_cost: Lowest cost in J of a recurrence that reached the target, over all its trials;
            None without any. The early-stop threshold is a multiple of it.
        best_batch_size: The batch size that ended that recurrence; None without any.
        accelerators: Models of the accelerators that were learnt on, in the order in which the job moved there.
        newcomer: A model that none of them is, which the latest trial that tells of its model ran on; else "".
    """

    arms: Mapping[int, ArmSummary] = field(default_factory=dict)
    min_recurrence_cost: float | None = None
    best_batch_size: int | None = None
    accelerators: tuple[str, ...] = ()
    newcomer: str = ""

    def arm(self, batch_size: int) -> ArmSummary:
        """Return the summary of a batch size, an empty one if nothing was learnt of it."""
        return self.arms.get(batch_size) or ArmSummary(batch_size)


def observe(job: JobSpec, learnt: Learnt, observation: Observation) -> Learnt:
    """Return what is known once a finished trial is counted in.

    An expired trial is as if it never ran. A failed one only adds to the failures in a row of its size. One that
    ran out of memory rules out its size and all above, unless one of them has reached the target before: then it lacked
    memory for another reason, and failed. The others count with their cost, whether or not they
    reached the target, but only one that reached it can become the cheapest. One that was stopped as hopeless counts
    with what it would have cost at least.

    Args:
        job: The job's knobs.
        learnt: What the trials before taught.
        observation: The finished trial.

    Raises:
        InvalidValueError: If the trial is not finished, or lacks a usable cost that its state calls for.
    """
    if observation.state is TrialState.EXPIRED:
        return learnt
    if observation.state is TrialState.ISSUED:
        raise InvalidValueError(
            f"a trial in state {observation.state.value!r} teaches nothing yet: report it once it has finished"
        )
    if observation.state is not TrialState.FAILED:
        learnt = _on_accelerator(learnt, observation.accelerator)
    arm = learnt.arm(observation.batch_size)
    if observation.state is TrialState.OOM and not _has_fitted(learnt, observation.batch_size):
        return _settled(job, _with_arm(learnt, replace(arm, out_of_memory=True, consecutive_failures=0)))
    if observation.state in (TrialState.FAILED, TrialState.OOM):
        return _settled(job, _with_arm(learnt, replace(arm, consecutive_failures=arm.consecutive_failures + 1)))
    return _with_cost(job, learnt, observation)


def rebuild(job: JobSpec, observations: Iterable[Observation]) -> Learnt:
    """Return what the finished trials taught, given in the order in which they finished.

    Raises:
        InvalidValueError: As :func:`observe` does.
    """
    learnt = Learnt()
    for observation in observations:
        learnt = observe(job, learnt, observation)
    return learnt


def forget_costs(learnt: Learnt) -> Learnt:
    """Return what stays true on another accelerator: the epochs that each batch size takes; no cost, nor what fits."""
    arms = (
        ArmSummary(
            arm.batch_size,
            evidence=arm.evidence.on_another_accelerator(),
            curves=arm.curves,
            hopeless_in_row=arm.hopeless_in_row,
        )
        for arm in learnt.arms.values()
    )
    return Learnt({arm.batch_size: arm for arm in arms}, accelerators=learnt.accelerators)


def fitting_sizes(job: JobSpec, learnt: Learnt) -> tuple[int, ...]:
    """Return the job's batch sizes below the smallest that ran out of memory, ascending; maybe none."""
    limit = memory_limit(learnt)
    return job.batch_sizes if limit is None else tuple(size for size in job.batch_sizes if size < limit)


def required_fitting_sizes(job: JobSpec, learnt: Learnt) -> tuple[int, ...]:
    """Return the job's batch sizes below the smallest that ran out of memory, ascending; at least one.

    Raises:
        NoBatchSizeLeftError: If the smallest batch size ran out of memory.
    """
    sizes = fitting_sizes(job, learnt)
    if not sizes:
        raise NoBatchSizeLeftError(
            f"job {job.job_id!r}: the smallest batch size {job.batch_sizes[0]} ran out of memory, so that all of "
            f"{list(job.batch_sizes)} are ruled out. Start a new job with smaller batch sizes, or on accelerators "
            "with more memory"
        )
    return sizes


def memory_limit(learnt: Learnt) -> int | None:
    """Return the smallest batch size that ran out of memory; None if none did."""
    return min((size for size, arm in learnt.arms.items() if arm.out_of_memory), default=None)


def walk_of(job: JobSpec, learnt: Learnt) -> Walk:
    """Return where the job's pruning walk stands.

    Raises:
        NoBatchSizeLeftError: If the smallest batch size ran out of memory.
    """
    sizes = required_fitting_sizes(job, learnt)
    arms = learnt.arms.values()
    results = {arm.batch_size: arm.explorations for arm in arms if arm.explorations}
    failing = [arm.batch_size for arm in arms if arm.keeps_failing]
    return replay(sizes, job.default_batch_size, job.num_pruning_rounds, results, failing)


def _on_accelerator(learnt: Learnt, model: str) -> Learnt:
    """Return what is known before a trial is counted in that ran on an accelerator of some model.

    Costs, and which sizes ran out of memory, are forgotten once two trials in a row ran on the same new model. In a
    pool of several models that happens once a model, and never on the way back.
    """
    if not model or model in learnt.accelerators:
        return replace(learnt, newcomer="") if learnt.newcomer else learnt
    if learnt.accelerators and model != learnt.newcomer:
        return replace(learnt, newcomer=model)
    moved = forget_costs(learnt) if learnt.accelerators else learnt
    return replace(moved, accelerators=(*learnt.accelerators, model))


def _with_arm(learnt: Learnt, arm: ArmSummary) -> Learnt:
    return replace(learnt, arms={**learnt.arms, arm.batch_size: arm})


def _with_cost(job: JobSpec, learnt: Learnt, observation: Observation) -> Learnt:
    """Count in a trial that has a cost."""
    is_hopeless, observation = observation.is_hopeless, observation.as_predicted()
    cost = number("cost", observation.cost, above=0, at_most=MAX_COST)
    reached = observation.state is TrialState.REACHED
    explored = observation.purpose is Purpose.EXPLORATION
    if _nothing_left_works(job, learnt):
        # Where all sizes kept failing, the script was broken rather than the sizes; now it is mended.
        learnt = _with_every_arm(learnt, consecutive_failures=0)
    learnt = _with_second_chances(learnt, observation.batch_size, reached)
    arm = _with_result(job, learnt.arm(observation.batch_size), cost, reached, explored)
    arm = _with_curve(arm, observation.curve, is_hopeless=is_hopeless)
    learnt = _with_evidence(_with_arm(learnt, arm), observation, cost)
    if reached:
        return _with_cheapest(learnt, observation)
    return _settled(job, learnt) if explored else learnt


def _has_fitted(learnt: Learnt, batch_size: int) -> bool:
    """Return whether a trial at a batch size, or a larger one, has reached the target on this accelerator."""
    return any(arm.reached_count for size, arm in learnt.arms.items() if size >= batch_size)


def _with_second_chances(learnt: Learnt, batch_size: int, reached: bool) -> Learnt:
    """Return what is known of the other sizes once a trial has trained at one: what it disproves is taken back.

    It had memory enough, and so have the smaller sizes. Where it reached the target, what made the others fail may be
    over: a size that has worked before is tried once more, so that an outage does not rule it out for good.
    """
    arms = dict(learnt.arms)
    for size, arm in learnt.arms.items():
        if arm.out_of_memory and size <= batch_size:
            arms[size] = replace(arm, out_of_memory=False)
        elif reached and size != batch_size and arm.reached_count and arm.keeps_failing:
            arms[size] = replace(arm, consecutive_failures=MAX_CONSECUTIVE_FAILURES - 1)
    return replace(learnt, arms=arms)


def _with_evidence(learnt: Learnt, observation: Observation, cost: float) -> Learnt:
    """Count in what the trial says of epochs and of their cost.

    Where it tells that the data has changed, no curve from before is kept either.
    """
    size, reached = observation.batch_size, observation.state is TrialState.REACHED
    result = Result(size, reached, cost, observation.num_epochs, observation.epoch_cost)
    evidences, has_changed = with_result({size: arm.evidence for size, arm in learnt.arms.items()}, result)
    if has_changed:
        learnt = _with_every_arm(learnt, curves=())
        learnt = _with_arm(learnt, replace(learnt.arm(size), curves=(observation.curve,) if observation.curve else ()))
    changed = {
        size: replace(arm, evidence=evidences[size])
        for size, arm in learnt.arms.items()
        if evidences[size] is not arm.evidence
    }
    return replace(learnt, arms={**learnt.arms, **changed})


def _with_result(job: JobSpec, arm: ArmSummary, cost: float, reached: bool, explored: bool) -> ArmSummary:
    count = arm.count + 1
    deviation = cost - arm.mean_cost
    mean_cost = arm.mean_cost + deviation / count
    # A size has one result a round: more are of a trial that came late, and would only pile up.
    explored = explored and len(arm.explorations) < job.num_pruning_rounds
    return replace(
        arm,
        count=count,
        reached_count=arm.reached_count + reached,
        mean_cost=mean_cost,
        sum_squared_deviations=arm.sum_squared_deviations + deviation * (cost - mean_cost),
        recent_costs=(*arm.recent_costs, cost)[-job.window_size :] if job.window_size else (),
        min_cost=min(cost, math.inf if arm.min_cost is None else arm.min_cost) if reached else arm.min_cost,
        explorations=(*arm.explorations, Exploration(cost, reached)) if explored else arm.explorations,
        consecutive_failures=0,
    )


def _with_curve(arm: ArmSummary, curve: Curve, *, is_hopeless: bool) -> ArmSummary:
    curves = (*arm.curves, curve)[-MOST_CURVES_OF_A_SIZE:] if curve else arm.curves
    return replace(arm, curves=curves, hopeless_in_row=arm.hopeless_in_row + 1 if is_hopeless else 0)


def _with_cheapest(learnt: Learnt, observation: Observation) -> Learnt:
    cost = number("recurrence_cost", observation.recurrence_cost, above=0)
    if learnt.min_recurrence_cost is not None and cost >= learnt.min_recurrence_cost:
        return learnt
    return replace(learnt, min_recurrence_cost=cost, best_batch_size=observation.batch_size)


def _nothing_left_works(job: JobSpec, learnt: Learnt) -> bool:
    """Return whether all sizes that the walk left over keep failing."""
    if not any(arm.keeps_failing for arm in learnt.arms.values()) or not fitting_sizes(job, learnt):
        return False
    return all(learnt.arm(size).keeps_failing for size in walk_of(job, learnt).candidates)


def _settled(job: JobSpec, learnt: Learnt) -> Learnt:
    """Let an exhausted walk start over: drop its results, and the failures that it passed over."""
    if not fitting_sizes(job, learnt) or not walk_of(job, learnt).exhausted:
        return learnt
    return _with_every_arm(learnt, explorations=(), consecutive_failures=0)


def _with_every_arm(learnt: Learnt, **changes: Any) -> Learnt:
    return replace(learnt, arms={size: replace(arm, **changes) for size, arm in learnt.arms.items()})
