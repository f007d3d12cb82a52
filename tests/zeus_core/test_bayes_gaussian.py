import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zeus_kfp.zeus_core.policies.bayes.gaussian import Normal, normal_cdf, normal_hazard


def prior(count: int = 4) -> Normal:
    x = np.arange(count, dtype=float)
    return Normal(0.5 * x, np.exp(-np.abs(x[:, None] - x[None, :]) / 2) + 0.3)


def test_observations_all_at_once_are_the_same_as_one_by_one_and_as_the_textbooks() -> None:
    before, indices, values, noise = prior(), [0, 3, 0], np.array([1.0, -2.0, 0.5]), 0.1
    at_once = before.observed(indices, values.tolist(), [noise] * 3)
    one_by_one = before
    for index, value in zip(indices, values.tolist(), strict=True):
        one_by_one = one_by_one.observed([index], [value], [noise])
    np.testing.assert_allclose(one_by_one.mean, at_once.mean, atol=1e-7)
    gram = before.covariance[np.ix_(indices, indices)] + noise * np.eye(3)
    weights = np.linalg.solve(gram, before.covariance[indices]).T
    np.testing.assert_allclose(at_once.mean, before.mean + weights @ (values - before.mean[indices]), atol=1e-7)
    np.testing.assert_allclose(at_once.covariance, before.covariance - weights @ before.covariance[indices], atol=1e-7)


@pytest.mark.parametrize("bound", [-3.0, 0.0, 1.0, 4.0])
def test_a_lower_bound_gives_the_moments_of_the_truncated_normal(bound: float) -> None:
    before = prior()
    after = before.above(2, bound, 0.0)
    grid = np.linspace(-12, 12, 400_001) + before.mean[2]
    weights = np.exp(-((grid - before.mean[2]) ** 2) / (2 * before.covariance[2, 2])) * (grid > bound)
    mean = np.average(grid, weights=weights)
    assert after.mean[2] == pytest.approx(mean, abs=1e-3)
    assert after.variance[2] == pytest.approx(np.average((grid - mean) ** 2, weights=weights), abs=1e-3)


@given(bound=st.floats(-50, 50), index=st.integers(0, 3), noise=st.floats(0, 10))
@settings(max_examples=200, deadline=None)
def test_a_lower_bound_only_raises_the_mean_and_only_lowers_the_variance(bound, index, noise) -> None:
    before = prior()
    after = before.above(index, bound, noise)
    assert np.all(after.mean >= before.mean - 1e-12)
    assert np.all(after.variance <= before.variance + 1e-12)
    assert np.linalg.eigvalsh(after.covariance).min() > -1e-9


@pytest.mark.parametrize("z", [-40.0, -8.0, -1.0, 0.0, 0.5, 3.0, 20.0])
def test_the_distribution_function_is_the_standard_normal_one(z: float) -> None:
    assert normal_cdf(np.array([z]))[0] == pytest.approx(0.5 * math.erfc(-z / math.sqrt(2)), abs=1.5e-7)


def test_the_hazard_does_not_jump_where_its_formula_changes() -> None:
    assert normal_hazard(0.0) == pytest.approx(math.sqrt(2 / math.pi))
    assert normal_hazard(30.0) == pytest.approx(normal_hazard(30.0 + 1e-9), rel=1e-3)
    assert normal_hazard(-50.0) == 0.0
    assert normal_hazard(1e6) == pytest.approx(1e6)


def test_sums_add_means_and_covariances() -> None:
    total = prior() + prior()
    np.testing.assert_array_equal(total.mean, 2 * prior().mean)
    np.testing.assert_array_equal(total.covariance, 2 * prior().covariance)
