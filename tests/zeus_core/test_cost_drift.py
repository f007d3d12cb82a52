"""Whether a batch size's latest costs still fit the earlier ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus_kfp.zeus_core.cost_drift import LEAST_EARLIER, RECENT, cost_drift

STEADY = [100.0, 104.0, 96.0, 101.0, 99.0]


@pytest.mark.parametrize(
    ("recent", "ratio"),
    [
        ([130.0, 131.0, 129.0], 1.3),
        ([50.0, 50.0, 50.0], 0.5),
        ([130.0, 131.0, 104.0], None),
        ([130.0, 70.0, 130.0], None),
        ([105.0, 106.0, 105.0], None),
        ([130.0, 131.0], None),
    ],
)
def test_costs_drift_once_all_of_the_latest_are_off_on_one_side(recent, ratio):
    drift = cost_drift([*STEADY, *recent])
    assert (drift is None) if ratio is None else drift.ratio == pytest.approx(ratio)


def test_costs_that_never_varied_must_be_off_by_more_than_rounding():
    assert cost_drift([100.0] * 5 + [105.9] * 3) is None
    assert cost_drift([100.0] * 5 + [106.1] * 3).earlier_mean == 100.0


@given(st.lists(st.floats(1e-6, 1e12), max_size=LEAST_EARLIER + RECENT - 1))
def test_few_costs_never_drift(costs):
    assert cost_drift(costs) is None


@given(st.floats(1e-3, 1e9), st.integers(LEAST_EARLIER + RECENT, 30))
def test_equal_costs_never_drift(cost, count):
    assert cost_drift([cost] * count) is None


@pytest.mark.parametrize(("earlier", "at_most"), [(5, 0.004), (20, 0.0005)])
def test_normal_noise_is_hardly_ever_taken_for_drift(earlier, at_most):
    costs = np.random.default_rng(1).normal(100, 20, size=(10_000, earlier + RECENT))
    assert np.mean([cost_drift(row.tolist()) is not None for row in costs]) <= at_most


def test_a_shift_of_five_deviations_is_mostly_seen():
    costs = np.random.default_rng(1).normal(100, 10, size=(1000, 8 + RECENT))
    costs[:, -RECENT:] += 50
    assert np.mean([cost_drift(row.tolist()) is not None for row in costs]) > 0.8
