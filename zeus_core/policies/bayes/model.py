"""The belief about what a trial costs at every batch size, tried or not.

The cost of a trial is the number of epochs to the target times the cost of an epoch. Over u = log2(b / b0), octaves
from the default batch size b0, both logarithms are smooth and nearly convex:

    f(u) = ln epochs      flat while larger batches are as good a sample of the gradient, then rising towards
                          ln 2 an octave beyond the critical batch size [1]
    g(u) = ln epoch cost  falling by ln 2 an octave while the accelerator is half idle, then flat

Each is a Gaussian process: a parabola with normal coefficients plus a smooth remainder,

    f(u) = a + s u + c u² / 2 + r(u),    r ~ GP(0, q² exp(-(u - u')² / 2 l²))

whose prior means say "nearly convex, no slope known", in units in which every job looks alike. Where a job's
epochs are not known the two can't be told apart, and ln cost = f + g is modelled with the sum of both priors.

Trials that reached the target observe f as the mean of ln(epochs), with the job's noise over their number; the
noise's variance is pooled over all sizes with a weak prior. The cost of an epoch is known after one trial. A trial
that was given up is censored evidence: f lies above the logarithm of the epochs that it had.

References:
    [1] McCandlish, Kaplan, Amodei, "An Empirical Model of Large-Batch Training", 2018.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zeus_kfp.zeus_core.evidence import Evidence, Moments
from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.learnt import Learnt
from zeus_kfp.zeus_core.policies.bayes.gaussian import Array, Normal


@dataclass(frozen=True, slots=True)
class Prior:
    """A parabola with normal coefficients plus a smooth remainder, over octaves from the default batch size.

    Attributes:
        level_deviation: Standard deviation of the value at the default batch size.
        slope: Mean and standard deviation of the slope there, per octave.
        curvature: Mean and standard deviation of the second derivative, per octave squared.
        remainder_deviation: Standard deviation of the smooth remainder.
        remainder_length: Octaves over which the remainder stays alike.
    """

    level_deviation: float
    slope: tuple[float, float]
    curvature: tuple[float, float]
    remainder_deviation: float
    remainder_length: float

    def normal(self, octaves: Array, level: float) -> Normal:
        """Return the prior belief at ``octaves`` (shape (n,)), ``level`` being its mean at the default."""
        bend = octaves**2 / 2
        distance = (octaves[:, None] - octaves[None, :]) / self.remainder_length
        covariance = (
            self.level_deviation**2
            + self.slope[1] ** 2 * np.outer(octaves, octaves)
            + self.curvature[1] ** 2 * np.outer(bend, bend)
            + self.remainder_deviation**2 * np.exp(-(distance**2) / 2)
        )
        return Normal(level + self.slope[0] * octaves + self.curvature[0] * bend, covariance)


LEVEL_DEVIATION = 3.0
EPOCHS_PRIOR = Prior(LEVEL_DEVIATION, (0.15, 0.3), (0.08, 0.08), 0.2, 2.0)
EPOCH_COST_PRIOR = Prior(LEVEL_DEVIATION, (-0.25, 0.25), (0.06, 0.05), 0.08, 2.0)

NOISE_DEVIATION = 0.1
"""Prior standard deviation of ln(epochs) from run to run."""
NOISE_WEIGHT = 3.0
"""Observations that this prior is worth."""
EPOCH_COST_DEVIATION = 0.02
"""Standard deviation of a measured ln(epoch cost)."""


@dataclass(frozen=True, slots=True)
class CostBelief:
    """The belief about ln(cost of a trial) at every batch size.

    Attributes:
        log_cost: Of the mean over trials, shape (n,).
        noise_variance: Variance of a single trial's ln(cost) around it.
        log_most: Logarithm of the cost in J that ``max_epochs`` would take, shape (n,); infinity if not known.
    """

    log_cost: Normal
    noise_variance: float
    log_most: Array


def belief(job: JobSpec, learnt: Learnt, sizes: Sequence[int]) -> CostBelief:
    """Return the belief about the cost of a trial at each of ``sizes``.

    Args:
        job: Gives the default batch size and ``max_epochs``.
        learnt: What its finished trials taught.
        sizes: Batch sizes that may be used, ascending, at least one.
    """
    octaves = np.log2(np.array(sizes) / job.default_batch_size)
    evidence = [learnt.arm(size).evidence for size in sizes]
    if any(one.log_cost.count > one.log_epochs.count for one in evidence):
        return _from_costs_alone(job, learnt, octaves, evidence)
    noise = _noise_variance([one.log_epochs for one in evidence])
    epochs = _epochs(job, octaves, evidence, noise)
    epoch_cost = _epoch_cost(octaves, evidence)
    log_most = epoch_cost.mean + math.log(job.max_epochs)
    return CostBelief(epochs + epoch_cost, noise, log_most)


def _epochs(job: JobSpec, octaves: Array, evidence: Sequence[Evidence], noise: float) -> Normal:
    counted = [(index, one.log_epochs) for index, one in enumerate(evidence) if one.log_epochs.count]
    level = _level([moments.mean for _, moments in counted], math.log(job.max_epochs) - 1.5)
    believed = EPOCHS_PRIOR.normal(octaves, level)
    for index, moments in counted:
        believed = believed.observed(index, moments.mean, noise / moments.count)
    for index, one in enumerate(evidence):
        if one.unreached_epochs:
            believed = believed.above(index, math.log(one.unreached_epochs), noise)
    return believed


def _epoch_cost(octaves: Array, evidence: Sequence[Evidence]) -> Normal:
    known = [(index, math.log(one.epoch_cost)) for index, one in enumerate(evidence) if one.epoch_cost]
    believed = EPOCH_COST_PRIOR.normal(octaves, _level([value for _, value in known], 0.0))
    for index, value in known:
        believed = believed.observed(index, value, EPOCH_COST_DEVIATION**2)
    return believed


def _from_costs_alone(job: JobSpec, learnt: Learnt, octaves: Array, evidence: Sequence[Evidence]) -> CostBelief:
    noise = _noise_variance([one.log_cost for one in evidence])
    counted = [(index, one.log_cost) for index, one in enumerate(evidence) if one.log_cost.count]
    level = _level([moments.mean for _, moments in counted], 0.0)
    believed = EPOCHS_PRIOR.normal(octaves, level) + EPOCH_COST_PRIOR.normal(octaves, 0.0)
    for index, moments in counted:
        believed = believed.observed(index, moments.mean, noise / moments.count)
    threshold = job.beta_knob * (learnt.min_recurrence_cost or math.inf)
    for index, one in enumerate(evidence):
        if one.unreached_cost:
            # A trial whose threshold allowed no epoch is told as a penalty far above what it showed.
            believed = believed.above(index, math.log(min(one.unreached_cost, threshold)), noise)
    return CostBelief(believed, noise, np.full(len(octaves), math.inf))


def _level(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _noise_variance(moments: Sequence[Moments]) -> float:
    freedom = sum(max(one.count - 1, 0) for one in moments)
    squares = sum(one.sum_squared_deviations for one in moments)
    return (NOISE_WEIGHT * NOISE_DEVIATION**2 + squares) / (NOISE_WEIGHT + freedom)
