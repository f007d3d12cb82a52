import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zeus_kfp.zeus_core.errors import InvalidValueError, NoBatchSizeLeftError
from zeus_kfp.zeus_core.evidence import Evidence
from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.learnt import ArmSummary, Exploration, Learnt, Observation, observe, rebuild, walk_of
from zeus_kfp.zeus_core.trial import Purpose, TrialState

SIZES = (8, 16, 32, 64)
JOB = JobSpec("job", SIZES, 32, target_metric=0.9)
WINDOWED = JobSpec("job", SIZES, 32, target_metric=0.9, window_size=3)

REACHED, NOT_REACHED = TrialState.REACHED, TrialState.NOT_REACHED


def seen(
    size: int,
    state: TrialState,
    cost: float | None = None,
    purpose: Purpose = Purpose.EXPLORATION,
    recurrence_cost: float | None = None,
) -> Observation:
    return Observation(size, purpose, state, cost, recurrence_cost or cost)


def test_nothing_is_known_before_the_first_trial() -> None:
    assert rebuild(JOB, []) == Learnt()
    assert Learnt().arm(16) == ArmSummary(16)


@pytest.mark.parametrize(
    ("observation", "arm"),
    [
        (
            seen(32, REACHED, 100.0),
            ArmSummary(32, 1, 1, 100.0, min_cost=100.0, explorations=(Exploration(100.0, True),)),
        ),
        (seen(16, NOT_REACHED, 50.0), ArmSummary(16, 1, 0, 50.0, explorations=(Exploration(50.0, False),))),
        (seen(16, REACHED, 9.0, Purpose.CONCURRENT), ArmSummary(16, 1, 1, 9.0, min_cost=9.0)),
        (seen(16, NOT_REACHED, 9.0, Purpose.SAMPLING), ArmSummary(16, 1, 0, 9.0)),
        (seen(64, TrialState.OOM), ArmSummary(64, out_of_memory=True)),
        (seen(64, TrialState.FAILED), ArmSummary(64, consecutive_failures=1)),
    ],
    ids=lambda value: value.state.value if isinstance(value, Observation) else "",
)
def test_each_way_a_trial_ends_leaves_its_own_mark(observation: Observation, arm: ArmSummary) -> None:
    (left,) = observe(JOB, Learnt(), observation).arms.values()
    assert replace(left, evidence=Evidence()) == arm


FAILED, OOM = TrialState.FAILED, TrialState.OOM


def test_out_of_memory_at_a_size_that_has_worked_is_a_failure_and_rules_nothing_out() -> None:
    learnt = rebuild(JOB, [seen(32, REACHED, 100.0), seen(16, OOM), seen(32, OOM)])
    assert [(learnt.arm(size).out_of_memory, learnt.arm(size).consecutive_failures) for size in (16, 32)] == [
        (False, 1),
        (False, 1),
    ]
    assert observe(JOB, learnt, seen(64, OOM)).arm(64).out_of_memory


def test_a_trial_that_trained_takes_back_that_its_size_and_smaller_ones_lacked_memory() -> None:
    learnt = rebuild(JOB, [seen(16, OOM), seen(64, OOM), seen(32, NOT_REACHED, 50.0)])
    assert [learnt.arm(size).out_of_memory for size in (16, 32, 64)] == [False, False, True]


def test_an_outage_rules_no_size_out_for_good() -> None:
    learnt = rebuild(JOB, [seen(32, REACHED, 100.0), *[seen(32, FAILED)] * 4, *[seen(16, FAILED)] * 3])
    assert learnt.arm(32).keeps_failing and learnt.arm(16).keeps_failing
    learnt = observe(JOB, learnt, seen(8, NOT_REACHED, 50.0, Purpose.SAMPLING))
    assert learnt.arm(32).keeps_failing
    learnt = observe(JOB, learnt, seen(8, REACHED, 150.0, Purpose.SAMPLING))
    assert not learnt.arm(32).keeps_failing, "it has worked before"
    assert learnt.arm(16).keeps_failing, "it never has"
    assert observe(JOB, learnt, seen(32, FAILED)).arm(32).keeps_failing, "one chance at a time"


def test_an_expired_trial_is_as_if_it_never_ran() -> None:
    before = rebuild(JOB, [seen(32, REACHED, 100.0), seen(16, TrialState.FAILED)])
    assert observe(JOB, before, seen(16, TrialState.EXPIRED)) is before


@pytest.mark.parametrize("other", [seen(32, REACHED, 1.0), seen(32, NOT_REACHED, 1.0), seen(32, TrialState.OOM)])
def test_failures_in_a_row_end_with_any_other_result(other: Observation) -> None:
    failed = seen(32, TrialState.FAILED)
    assert rebuild(JOB, [failed, failed]).arm(32).consecutive_failures == 2
    assert rebuild(JOB, [failed, failed, other]).arm(32).consecutive_failures == 0
    assert rebuild(JOB, [failed, seen(32, TrialState.EXPIRED), failed]).arm(32).consecutive_failures == 2


def test_the_observation_before_is_left_as_it_was() -> None:
    before = rebuild(JOB, [seen(32, REACHED, 100.0)])
    observe(JOB, before, seen(16, REACHED, 90.0))
    assert before == rebuild(JOB, [seen(32, REACHED, 100.0)])


def test_the_cheapest_recurrence_counts_all_its_trials() -> None:
    learnt = rebuild(
        JOB,
        [
            seen(32, REACHED, 100.0),
            seen(16, NOT_REACHED, 60.0),
            seen(64, REACHED, 50.0, recurrence_cost=110.0),
        ],
    )
    assert (learnt.min_recurrence_cost, learnt.best_batch_size) == (100.0, 32)
    assert learnt.arm(64).min_cost == 50.0


def test_a_cheaper_recurrence_takes_over_and_an_equal_one_does_not() -> None:
    trials = [seen(32, REACHED, 100.0), seen(64, REACHED, 80.0), seen(16, REACHED, 80.0)]
    learnt = rebuild(JOB, trials)
    assert (learnt.min_recurrence_cost, learnt.best_batch_size) == (80.0, 64)


@given(st.lists(st.floats(1e-3, 1e12), min_size=1, max_size=60))
@settings(deadline=None)
def test_mean_and_variance_are_those_of_the_costs(costs: list[float]) -> None:
    arm = rebuild(JOB, [seen(32, REACHED, cost, Purpose.SAMPLING) for cost in costs]).arm(32)
    assert arm.count == len(costs)
    assert arm.mean_cost == pytest.approx(np.mean(costs))
    scale = max(costs)
    assert arm.sum_squared_deviations / scale**2 == pytest.approx(
        np.var(np.array(costs) / scale) * len(costs), abs=1e-12
    )


def test_a_window_keeps_the_latest_costs_and_no_window_keeps_none() -> None:
    trials = [seen(32, REACHED, float(cost), Purpose.SAMPLING) for cost in (1, 2, 3, 4, 5)]
    assert rebuild(WINDOWED, trials).arm(32).recent_costs == (3.0, 4.0, 5.0)
    assert rebuild(JOB, trials).arm(32).recent_costs == ()


def test_a_size_has_one_result_of_the_walk_for_each_round_at_most() -> None:
    learnt = rebuild(JOB, [seen(32, REACHED, cost) for cost in (1.0, 2.0, 3.0)])
    assert learnt.arm(32).explorations == (Exploration(1.0, True), Exploration(2.0, True))
    assert learnt.arm(32).count == 3


@pytest.mark.parametrize("cost", [None, math.nan, math.inf, 0.0, -1.0, 1e101, "9", True])
def test_a_trial_that_must_have_a_cost_is_refused_without_a_usable_one(cost: object) -> None:
    with pytest.raises(InvalidValueError, match="^cost must be"):
        observe(JOB, Learnt(), Observation(32, Purpose.EXPLORATION, NOT_REACHED, cost, 1.0))
    with pytest.raises(InvalidValueError, match="^(recurrence_)?cost must be"):
        observe(JOB, Learnt(), Observation(32, Purpose.EXPLORATION, REACHED, 1.0, math.nan))


def test_a_trial_that_is_not_finished_teaches_nothing() -> None:
    with pytest.raises(InvalidValueError, match="'issued'.*once it has finished"):
        observe(JOB, Learnt(), seen(32, TrialState.ISSUED))


def test_no_walk_where_every_size_is_ruled_out() -> None:
    learnt = rebuild(JOB, [seen(8, TrialState.OOM), seen(8, TrialState.FAILED)])
    with pytest.raises(NoBatchSizeLeftError, match="smallest batch size 8 ran out of memory"):
        walk_of(JOB, learnt)


OBSERVATIONS = st.builds(
    lambda size, purpose, state, cost: seen(size, state, cost if state in (REACHED, NOT_REACHED) else None, purpose),
    st.sampled_from(SIZES),
    st.sampled_from(list(Purpose)),
    st.sampled_from([state for state in TrialState if state is not TrialState.ISSUED]),
    st.floats(1.0, 1e9),
)


@given(st.lists(OBSERVATIONS, max_size=60))
@settings(deadline=None)
def test_whatever_happens_a_summary_stays_compact_and_consistent(observations: list[Observation]) -> None:
    learnt = rebuild(WINDOWED, observations)
    with_cost = [seen.cost for seen in observations if seen.state in (REACHED, NOT_REACHED)]
    assert sum(arm.count for arm in learnt.arms.values()) == len(with_cost)
    for arm in learnt.arms.values():
        assert len(arm.explorations) <= WINDOWED.num_pruning_rounds
        assert len(arm.recent_costs) <= WINDOWED.window_size
        assert 0 <= arm.reached_count <= arm.count
        assert arm.sum_squared_deviations >= 0
        assert (arm.min_cost is None) == (arm.reached_count == 0)
