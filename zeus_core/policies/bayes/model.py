"""The belief about what a trial costs at every batch size, tried or not.

The cost of a trial is the number of epochs to the target times the cost of an epoch. Over u = log2(b / b0), octaves
from the default batch size b0, both logarithms are smooth and nearly convex:

    f(u) = ln epochs        flat while a larger batch averages the gradient's noise as well, then rising towards
                            ln 2 an octave beyond the critical batch size [1]
    g(u) = ln epoch cost    falling by up to ln 2 an octave while the accelerator is half idle, then flat

Each is a Gaussian process: a parabola with normal coefficients plus a rough remainder,

    f(u) = a + s u + c u² / 2 + r(u),    r ~ GP(0, q² exp(-|u - u'| / l))

whose means say "no slope known, bent upwards" in units in which every job looks alike. The remainder's kernel is
that of Brownian motion at short range, so that a truth with kinks or ripples is not smoothed away. Where the
epochs of a job's trials are not known, ln cost = f + g is modelled with the sum of both priors.

Trials that reached the target observe f as the mean of ln epochs, with the noise's variance over their number. That
variance is pooled over all sizes with a weak prior, and is doubted where a size has few trials (Student's t), since
its own may be another. The cost of an epoch is known after one trial. A trial that was given up is censored evidence:
f lies above the logarithm of the epochs that it had. How often trials of a size are given up is counted besides, since
some sizes reach the target by luck only.

References:
    [1] McCandlish, Kaplan, Amodei, "An Empirical Model of Large-Batch Training", 2018.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from zeus_kfp.zeus_core.evidence import NOISE_WEIGHT, Evidence, Moments, noise_variance
from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.learnt import Learnt
from zeus_kfp.zeus_core.policies.bayes.gaussian import Array, Normal


@dataclass(frozen=True, slots=True)
class Prior:
    """A parabola with normal coefficients plus a rough remainder, over octaves from the default batch size.

    Attributes:
        slope: Mean and standard deviation of the slope at the default, per octave.
        curvature: Mean and standard deviation of the second derivative, per octave squared.
        remainder_deviation: Standard deviation of the remainder.
        remainder_length: Octaves over which the remainder stays alike.
    """

    slope: tuple[float, float]
    curvature: tuple[float, float]
    remainder_deviation: float
    remainder_length: float

    def normal(self, octaves: Array, level: float) -> Normal:
        """Return the belief at ``octaves`` (shape (n,)) before any evidence, ``level`` being the mean at 0."""
        shape = _shape(self, tuple(octaves.tolist()))
        return Normal(level + shape.mean, shape.covariance)


@lru_cache(maxsize=64)
def _shape(prior: Prior, octaves: tuple[float, ...]) -> Normal:
    """Return a prior's belief with level 0: a job asks for it again and again."""
    at = np.array(octaves)
    bend = at**2 / 2
    distance = np.abs(at[:, None] - at[None, :]) / prior.remainder_length
    covariance = (
        LEVEL_DEVIATION**2
        + prior.slope[1] ** 2 * np.outer(at, at)
        + prior.curvature[1] ** 2 * np.outer(bend, bend)
        + prior.remainder_deviation**2 * np.exp(-distance)
    )
    return Normal(prior.slope[0] * at + prior.curvature[0] * bend, covariance)


LEVEL_DEVIATION = 3.0
"""Standard deviation of the logarithms at the default batch size: a factor of twenty either way."""
EPOCHS_PRIOR = Prior((0.2, 0.3), (0.08, 0.08), 0.2, 3.0)
EPOCH_COST_PRIOR = Prior((-0.22, 0.25), (0.06, 0.05), 0.1, 3.0)
EPOCH_COST_DEVIATION = 0.02
"""Standard deviation of a measured ln epoch cost: energy meters agree to about a hundredth."""
EARLIER_DEVIATION = 0.2
"""How much a ratio of epoch costs differs, as a standard deviation of its logarithm, between accelerators."""
TYPICAL_SHARE = 0.25
"""Share of ``max_epochs`` that a job is thought to take before anything is known."""


@dataclass(frozen=True, slots=True)
class CostBelief:
    """The belief about the cost of a trial; every array has shape (n,), one element for each batch size.

    Attributes:
        log_cost: Of ln(cost in J), its mean over trials.
        noise_variance: Variance of a single trial's ln(cost) around that.
        log_epoch: Expected ln(cost in J of an epoch); minus infinity where epochs are not known.
        log_most: Expected ln(cost in J of ``max_epochs`` epochs); infinity where epochs are not known.
        trials: Trials with a cost.
        failures: How many of them were given up.
    """

    log_cost: Normal
    noise_variance: float
    log_epoch: Array
    log_most: Array
    trials: Array
    failures: Array

    @property
    def trial_variance(self) -> Array:
        """Variance of the next trial's ln(cost), shape (n,)."""
        return self.log_cost.variance + self.noise_variance


def cost_belief(job: JobSpec, learnt: Learnt, sizes: Sequence[int]) -> CostBelief:
    """Return the belief about the cost of a trial at each of ``sizes``.

    Args:
        job: Gives the default batch size, ``max_epochs`` and ``beta_knob``.
        learnt: What its finished trials taught.
        sizes: Batch sizes that may be used, ascending, at least one.
    """
    octaves = np.log2(np.array(sizes) / job.default_batch_size)
    evidence = [learnt.arm(size).evidence for size in sizes]
    trials = np.array([float(one.reached_count + one.unreached_count) for one in evidence])
    failures = np.array([float(one.unreached_count) for one in evidence])
    if any(one.log_cost.count > one.log_epochs.count for one in evidence):
        cost, noise = _cost_alone(job, learnt, octaves, evidence)
        unknown = np.full(len(octaves), math.inf)
        return CostBelief(cost, noise, -unknown, unknown, trials, failures)
    epochs, noise = _epochs(job, octaves, evidence)
    epoch = _epoch_cost(octaves, evidence)
    log_most = epoch.mean + math.log(job.max_epochs)
    return CostBelief(epochs + epoch, noise, epoch.mean, log_most, trials, failures)


def _epochs(job: JobSpec, octaves: Array, evidence: Sequence[Evidence]) -> tuple[Normal, float]:
    """Return the belief about ln epochs, and the variance of a single trial's."""
    moments = [one.log_epochs for one in evidence]
    prior = EPOCHS_PRIOR.normal(octaves, _level(moments, math.log(TYPICAL_SHARE * job.max_epochs)))
    bounds = [None if one.unreached_epochs is None else max(one.unreached_epochs, 1.0) for one in evidence]
    return _with_evidence(prior, moments, bounds)


def _cost_alone(job: JobSpec, learnt: Learnt, octaves: Array, evidence: Sequence[Evidence]) -> tuple[Normal, float]:
    """Return the belief about ln cost where epochs are not known, and the variance of a single trial's."""
    moments = [one.log_cost for one in evidence]
    prior = EPOCHS_PRIOR.normal(octaves, _level(moments, 0.0)) + EPOCH_COST_PRIOR.normal(octaves, 0.0)
    # A trial whose threshold allowed no epoch may be told with a penalty far above anything that it showed.
    threshold = job.beta_knob * (learnt.min_recurrence_cost or math.inf)
    bounds = [None if one.unreached_cost is None else min(one.unreached_cost, threshold) for one in evidence]
    return _with_evidence(prior, moments, bounds)


def _with_evidence(prior: Normal, moments: Sequence[Moments], bounds: Sequence[float | None]) -> tuple[Normal, float]:
    noise = noise_variance(moments)
    seen = [index for index, one in enumerate(moments) if one.count]
    means, variances = (
        [moments[index].mean for index in seen],
        [_variance(noise, moments[index].count) for index in seen],
    )
    believed = prior.observed(seen, means, variances)
    for index, bound in enumerate(bounds):
        if bound is not None:
            believed = believed.above(index, math.log(bound), noise)
    return believed, noise


def _variance(noise: float, count: int) -> float:
    """Return the variance of the mean of a size's trials, whose own noise may be other than that of all.

    Student's t for the degrees of freedom that the noise of all is worth, and those of the size's own trials.
    """
    degrees = NOISE_WEIGHT + count - 1
    return noise / count * degrees / (degrees - 2)


def _epoch_cost(octaves: Array, evidence: Sequence[Evidence]) -> Normal:
    """Return the belief about ln epoch cost; on another accelerator its shape is much alike, its level is open."""
    known = {index: math.log(one.epoch_cost) for index, one in enumerate(evidence) if one.epoch_cost}
    earlier = {index: math.log(one.earlier_epoch_cost) for index, one in enumerate(evidence) if one.earlier_epoch_cost}
    hints = list(known.values()) or list(earlier.values())
    believed = EPOCH_COST_PRIOR.normal(octaves, sum(hints) / len(hints) if hints else 0.0)
    believed = believed.observed(list(earlier), list(earlier.values()), [EARLIER_DEVIATION**2] * len(earlier))
    if known and earlier:
        believed = Normal(believed.mean, believed.covariance + LEVEL_DEVIATION**2)
    return believed.observed(list(known), list(known.values()), [EPOCH_COST_DEVIATION**2] * len(known))


def _level(moments: Sequence[Moments], otherwise: float) -> float:
    means = [seen.mean for seen in moments if seen.count]
    return sum(means) / len(means) if means else otherwise
