"""A joint normal belief about one number for each batch size, and what evidence does to it.

Observing the numbers I as y with variances s² changes the belief N(m, K) to

    m' = m + K_:I G⁻¹ (y - m_I),    K' = K - K_:I G⁻¹ K_I:,    G = K_II + diag(s²)               [1, eq. 2.25-26]

Knowing only that number i lies above a bound turns its
marginal into a truncated normal; the belief is moved to the normal that has this mean and variance there, which
is assumed density filtering [1, section 3.6; 2].

References:
    [1] Rasmussen, Williams, "Gaussian Processes for Machine Learning", MIT Press 2006.
    [2] Groot, Lucas, "Gaussian process regression with censored data using expectation propagation", PGM 2012.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LEAST_VARIANCE = 1e-9
"""Variances of logarithms below this are rounding error."""


@dataclass(frozen=True, slots=True)
class Normal:
    """A joint normal distribution.

    Attributes:
        mean: Shape (n,).
        covariance: Shape (n, n).
    """

    mean: Array
    covariance: Array

    def __add__(self, other: "Normal") -> "Normal":
        """Return the distribution of the sum of two independent ones."""
        return Normal(self.mean + other.mean, self.covariance + other.covariance)

    @property
    def variance(self) -> Array:
        """Variance of each number, shape (n,)."""
        return np.maximum(np.diagonal(self.covariance), LEAST_VARIANCE)

    def observed(self, indices: Sequence[int], values: Sequence[float], variances: Sequence[float]) -> "Normal":
        """Return the belief once the numbers at ``indices`` were seen as ``values`` with noise of ``variances``."""
        if not indices:
            return self
        rows = self.covariance[list(indices)]
        gram = rows[:, list(indices)] + np.diag(np.array(variances) + LEAST_VARIANCE)
        gains = np.linalg.solve(gram, rows)
        mean = self.mean + (np.array(values) - self.mean[list(indices)]) @ gains
        return Normal(mean, self.covariance - rows.T @ gains)

    def above(self, index: int, bound: float, variance: float) -> "Normal":
        """Return the belief once number ``index`` with noise of ``variance`` is known to lie above ``bound``."""
        column = self.covariance[:, index]
        total = max(column[index], LEAST_VARIANCE) + variance
        deviation = math.sqrt(total)
        hazard = normal_hazard((bound - self.mean[index]) / deviation)
        shift = hazard / deviation
        shrink = hazard * (hazard - (bound - self.mean[index]) / deviation) / total
        return Normal(self.mean + column * shift, self.covariance - np.outer(column, column) * shrink)


def normal_hazard(z: float) -> float:
    """Return density over upper tail of the standard normal at ``z``; by its expansion where the tail vanishes."""
    if z > 30.0:
        return z + 1.0 / z - 2.0 / z**3
    return math.exp(-0.5 * z * z) / (math.sqrt(0.5 * math.pi) * math.erfc(z / math.sqrt(2.0)))


def normal_cdf(z: Array) -> Array:
    """Return the standard normal distribution function of every element (absolute error below 1.5e-7 [3, 7.1.26]).

    References:
        [3] Abramowitz, Stegun, "Handbook of Mathematical Functions", 1964.
    """
    x = np.abs(z) / math.sqrt(2.0)
    t = 1.0 / (1.0 + 0.3275911 * x)
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    upper = 0.5 * series * np.exp(-x * x)
    return np.where(z >= 0, 1.0 - upper, upper)
