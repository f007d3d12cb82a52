"""Which batch size to try next: the cheapest now, and the value of what it would teach later.

A trial at batch size b costs min(C_b, T_b), with T_b what its threshold and max_epochs allow; if it is given up, a
retry at the best known size follows, which costs R. With ln C_b ~ N(m_b, v_b + noise) the expected cost now is

    now_b = E[min(C_b, T_b)] + P(C_b > T_b) R
          = exp(m + w/2) Phi((t - m - w) / sqrt w) + (T_b + R) (1 - Phi((t - m) / sqrt w)),    w = v + noise, t = ln T_b

What it teaches is worth something in the H recurrences to come: the posterior mean after it, seen from now, is
m + k_b z with z standard normal, so that

    total_b = now_b + H E_z[min over sizes j of exp(m_j + k_bj z + v'_j / 2 + noise / 2)]

is the cost of trying b and then using the best forever, and the least total is chosen: the knowledge gradient for
on-line learning [1] with correlated beliefs [2]. Exploration stops by itself once nothing pays within H.

References:
    [1] Ryzhov, Powell, Frazier, "The knowledge gradient algorithm for a general class of online learning
        problems", Operations Research 60(1), 2012.
    [2] Frazier, Powell, Dayanik, "The knowledge-gradient policy for correlated normal beliefs", INFORMS Journal
        on Computing 21(4), 2009.
"""

import math
from dataclasses import dataclass

import numpy as np

from zeus_kfp.zeus_core.policies.bayes.gaussian import Array, Normal, normal_cdf
from zeus_kfp.zeus_core.policies.bayes.model import CostBelief

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(15)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


@dataclass(frozen=True, slots=True)
class Costs:
    """Expected costs in J of each batch size, all of shape (n,).

    Attributes:
        now: Of the recurrence that tries it next.
        total: Of that one and the best use of the horizon after it.
    """

    now: Array
    total: Array


def expected_costs(believed: CostBelief, log_threshold: float, retry_cost: float, horizon: float) -> Costs:
    """Return the expected costs of trying each batch size next."""
    now = _now(believed, believed.log_cost, log_threshold, retry_cost)
    return Costs(now, now + horizon * _later(believed, log_threshold, retry_cost))


def _now(believed: CostBelief, log_cost: Normal, log_threshold: float, retry_cost: float) -> Array:
    variance = log_cost.variance + believed.noise_variance
    return _capped_mean(log_cost.mean, variance, np.minimum(log_threshold, believed.log_most), retry_cost)


def _capped_mean(mean: Array, variance: Array, log_cap: Array, retry_cost: float) -> Array:
    deviation = np.sqrt(variance)
    # The largest finite logarithm: an uncapped trial is never given up.
    cap = np.minimum(log_cap, 600.0)
    within = np.exp(mean + variance / 2) * normal_cdf((cap - mean - variance) / deviation)
    beyond = 1.0 - normal_cdf((cap - mean) / deviation)
    return within + np.where(np.isfinite(log_cap), (np.exp(cap) + retry_cost) * beyond, 0.0)


def _later(believed: CostBelief, log_threshold: float, retry_cost: float) -> Array:
    """Return the expected least cost of a recurrence after trying each batch size, shape (n,)."""
    covariance = believed.log_cost.covariance
    spread = np.sqrt(believed.log_cost.variance + believed.noise_variance)
    steps = covariance / spread[:, None]
    left = np.maximum(believed.log_cost.variance[None, :] - steps**2, 0.0) + believed.noise_variance
    means = believed.log_cost.mean[None, :, None] + steps[:, :, None] * _NODES[None, None, :]
    cap = np.minimum(log_threshold, believed.log_most)
    costs = _capped_mean(means, left[:, :, None], cap[None, :, None], retry_cost)
    return np.asarray(costs.min(axis=1) @ _WEIGHTS)
