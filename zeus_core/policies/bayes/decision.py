"""Which batch size to try next: what it costs now, and what it teaches for later.

**Now.** A trial at batch size b costs C_b, ln C_b ~ N(m, w), unless its threshold or ``max_epochs`` end it at the cap
T_b; then a retry follows, which costs R. With z = (ln T_b - m) / sqrt w,

    reach_b = Phi(z)
    cost_b  = E[C_b | C_b <= T_b] = exp(m + w / 2) Phi(z - sqrt w) / Phi(z)
    now_b   = (1 - fail_b) cost_b + fail_b (T_b + R),    fail_b = (1 - reach_b + failures_b) / (1 + trials_b)

so that what the model says of failing counts as one trial beside those seen. R is what it costs to use the best size
over and over until it reaches: the least cost_b + T_b fail_b / (1 - fail_b).

**Later.** Seen from now, m trials at b move the posterior mean to mean + k z with z standard normal. The expected
least cost of a recurrence after them is

    later_b = E_z[min over j of now_j given z],        gain_b = H (1 - fail_b) (min now - later_b)

over the H recurrences to come: the knowledge gradient [1] with correlated beliefs [2], scaled by the chance that the
trial ends with an observation. Several m are looked at, since one noisy trial may be worth nothing and five a lot.

**Choice.** A trial is worth its price if gain_b > excess_b = now_b - min now. Of those that are, all would be made
in the end; the one with the least price for what it gains goes first, where each also delays the greatest gain by
one recurrence:

    argmin (excess_b + max gain / H) / gain_b

If none is, the size that is cheapest now is used: exploration stops by itself.

References:
    [1] Ryzhov, Powell, Frazier, "The knowledge gradient algorithm for a general class of online learning
        problems", Operations Research 60(1), 2012.
    [2] Frazier, Powell, Dayanik, "The knowledge-gradient policy for correlated normal beliefs", INFORMS Journal
        on Computing 21(4), 2009.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from zeus_kfp.zeus_core.policies.bayes.gaussian import Array, normal_cdf
from zeus_kfp.zeus_core.policies.bayes.model import CostBelief

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(5)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_REPEATS = (1, 5)
_LARGEST_LOG = 600.0
"""Twice the logarithm of the highest cost that can be; its exponential does not overflow."""
_LEAST_REACH = 1e-4
"""Chances below this are not told from those of the approximation of the normal distribution."""


class _Attempt(NamedTuple):
    """What a trial at each size is expected to do: cost in J if it reaches, chance to be given up, cost then."""

    cost: Array
    failing: Array
    cap: Array

    def with_retry(self, retry_cost: float) -> Array:
        """Return the expected cost in J of the recurrence."""
        return (1 - self.failing) * self.cost + self.failing * (self.cap + retry_cost)

    def alone(self) -> Array:
        """Return the expected cost in J of trying each size until it reaches."""
        return self.cost + self.cap * self.failing / np.maximum(1 - self.failing, 1e-6)


@dataclass(frozen=True, slots=True)
class Outlook:
    """What each batch size promises; every array has shape (n,).

    Attributes:
        now: Expected cost in J of a recurrence that tries it next.
        gain: Expected saving in J over the recurrences to come of what that would teach.
        alone: Expected cost in J of using it over and over until it reaches.
        horizon: How many recurrences to come are counted.
    """

    now: Array
    gain: Array
    alone: Array
    horizon: float

    @property
    def cheapest(self) -> int:
        """Position of the size that is expected to cost least now."""
        return int(np.argmin(self.now))

    @property
    def excess(self) -> Array:
        """Expected cost in J above the cheapest now, shape (n,)."""
        return np.asarray(self.now - self.now.min())

    def choice(self, waiting: Sequence[int] = ()) -> int:
        """Return the position of the size to try next; those that wait are not explored for the time being."""
        excess = self.excess
        is_worth = self.gain > excess
        is_worth[[self.cheapest, *waiting]] = False
        worth = np.flatnonzero(is_worth)
        if not len(worth):
            return self.cheapest
        delay = self.gain[worth].max() / max(self.horizon, 1.0)
        return int(worth[np.argmin((excess[worth] + delay) / self.gain[worth])])


def cost_until_reached(believed: CostBelief) -> Array:
    """Return the expected cost in J of using each batch size over and over until it reaches, if none stops early.

    Its shape is (n,).
    """
    log_cap = _log_cap(believed, math.inf)
    return _attempt(believed, believed.log_cost.mean, believed.trial_variance, log_cap).alone()


def outlook(believed: CostBelief, log_threshold: float, candidates: Sequence[int], horizon: float) -> Outlook:
    """Return what each batch size promises.

    Args:
        believed: The belief about every size.
        log_threshold: ln of the cost in J at which trials stop early; infinity for never.
        candidates: Positions of the sizes of which one is used after a trial that is given up.
        horizon: Recurrences to come after this one.
    """
    log_cap = _log_cap(believed, log_threshold)
    attempt = _attempt(believed, believed.log_cost.mean, believed.trial_variance, log_cap)
    alone = attempt.alone()
    retry = float(alone[candidates].min())
    now = attempt.with_retry(retry)
    repeats = np.array([one for one in _REPEATS if one <= max(horizon, 1.0)])[:, None]
    saving = (1 - attempt.failing) * np.maximum(now.min() - _later(believed, log_cap, retry, repeats), 0.0)
    # Repeats are paid for and end before the rest of the horizon begins to gain.
    gains = (horizon + 1 - repeats) * saving - (repeats - 1) * (now - now.min())
    return Outlook(now, np.maximum(gains.max(axis=0), 0.0), alone, horizon)


def _log_cap(believed: CostBelief, log_threshold: float) -> Array:
    """Return ln of the cost in J at which a trial of each size is given up: it always has one epoch."""
    cap = np.maximum(np.minimum(log_threshold, believed.log_most), believed.log_epoch)
    return np.minimum(cap, _LARGEST_LOG)


def _attempt(believed: CostBelief, mean: Array, variance: Array, log_cap: Array) -> _Attempt:
    """Return what trials do whose ln(cost) is normal; ``mean`` may have more axes before the last."""
    deviation = np.sqrt(variance)
    z = (log_cap - mean) / deviation
    reach, share = normal_cdf(np.stack((z, z - deviation)))
    within = np.exp(np.minimum(mean + variance / 2, _LARGEST_LOG)) * share
    cap = np.exp(log_cap)
    # What hardly ever reaches does so just below the cap; the ratio would be one of rounding errors.
    cost = np.where(reach > _LEAST_REACH, np.minimum(within / np.maximum(reach, _LEAST_REACH), cap), cap)
    failing = (1 - reach + believed.failures) / (1 + believed.trials)
    return _Attempt(cost, np.where(failing > 1e-9, failing, 0.0), cap)


def _later(believed: CostBelief, log_cap: Array, retry: float, repeats: NDArray[np.int_]) -> Array:
    """Return the expected least cost in J of a recurrence after so many trials at each size.

    ``repeats`` has shape (r, 1), the costs (r, n); on the way the axes are repeats, nodes, the size tried, and the size
    that is used then.
    """
    variance = believed.log_cost.variance
    spread = np.sqrt(variance + believed.noise_variance / repeats)
    steps = (believed.log_cost.covariance / spread[:, :, None])[:, None]
    left = np.maximum(variance - steps**2, 0.0) + believed.noise_variance
    means = believed.log_cost.mean + _NODES[:, None, None] * steps
    costs = _attempt(believed, means, left, log_cap).with_retry(retry)
    return np.asarray(np.einsum("m,rmi->ri", _WEIGHTS, costs.min(axis=3)))
