import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.learnt import ArmSummary, Observation, rebuild
from zeus_kfp.zeus_core.policies.thompson import RELATIVE_NOISE_FLOOR, Belief, lowest_draw, posterior
from zeus_kfp.zeus_core.trial import Purpose, TrialState


def job(**knobs: float) -> JobSpec:
    return JobSpec("job", (8, 16), 8, target_metric=0.9, **knobs)


def arm(spec: JobSpec, *costs: float) -> ArmSummary:
    trials = [Observation(8, Purpose.SAMPLING, TrialState.REACHED, cost, cost) for cost in costs]
    return rebuild(spec, trials).arm(8)


def test_under_a_flat_prior_the_belief_is_that_of_the_sample_mean() -> None:
    belief = posterior(job(), arm(job(), 90.0, 110.0, 100.0, 100.0))
    assert belief == pytest.approx(Belief(100.0, math.sqrt(50) / 2))


def test_a_prior_pulls_the_mean_and_narrows_the_belief() -> None:
    spec = job(prior_mean=-200.0, prior_precision=0.04)
    precision = 0.04 + 2 / 25
    belief = posterior(spec, arm(spec, 95.0, 105.0))
    assert belief == pytest.approx(Belief((0.04 * 200 + 2 / 25 * 100) / precision, precision**-0.5))


def test_before_the_first_cost_there_is_only_the_prior() -> None:
    assert posterior(job(), ArmSummary(8)) is None
    assert posterior(job(prior_mean=-50.0, prior_precision=0.25), ArmSummary(8)) == Belief(50.0, 2.0)


def test_only_costs_in_the_window_count() -> None:
    spec = job(window_size=2)
    assert posterior(spec, arm(spec, 9000.0, 90.0, 110.0)) == pytest.approx(Belief(100.0, 10 / math.sqrt(2)))


@pytest.mark.parametrize("costs", [(70.0,), (70.0, 70.0, 70.0, 70.0)])
def test_equal_costs_leave_a_narrow_belief_that_is_not_infinitely_so(costs: tuple[float, ...]) -> None:
    expected = 70 * RELATIVE_NOISE_FLOOR / math.sqrt(len(costs))
    for spec in (job(), job(window_size=10)):
        assert posterior(spec, arm(spec, *costs)) == pytest.approx(Belief(70.0, expected))


@given(
    st.lists(st.floats(1e-90, 1e90), min_size=1, max_size=8),
    st.sampled_from([0, 4]),
    st.floats(0, 1e90),
    st.floats(-1e90, 1e90),
)
@settings(deadline=None)
def test_a_belief_is_finite_and_has_a_spread(costs: list[float], window: int, precision: float, mean: float) -> None:
    spec = job(window_size=window, prior_precision=precision, prior_mean=mean)
    belief = posterior(spec, arm(spec, *costs))
    assert belief is not None
    assert math.isfinite(belief.mean_cost)
    assert 0 < belief.standard_deviation < math.inf


@given(st.integers(0, 2**32), st.lists(st.tuples(st.floats(1, 1e9), st.floats(1e-6, 1e9)), min_size=1))
@settings(deadline=None)
def test_the_draws_are_those_of_one_normal_call_for_each_arm(seed: int, pairs: list[tuple[float, float]]) -> None:
    ours, theirs = np.random.default_rng(seed), np.random.default_rng(seed)
    rewards = [theirs.normal(-mean, deviation) for mean, deviation in pairs]
    assert lowest_draw([Belief(*pair) for pair in pairs], ours) == rewards.index(max(rewards))
    assert ours.bit_generator.state == theirs.bit_generator.state


def test_the_better_of_two_beliefs_wins_as_often_as_it_is_better() -> None:
    rng = np.random.default_rng(7)
    wins = Counter(lowest_draw([Belief(100.0, 3.0), Belief(105.0, 4.0)], rng) for _ in range(4000))
    # P(N(105, 4²) > N(100, 3²)) = Phi(1)
    assert wins[0] / 4000 == pytest.approx(0.8413, abs=0.02)
