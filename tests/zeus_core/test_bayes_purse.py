import math

import numpy as np
import pytest

from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.learnt import Learnt, Observation, observe, rebuild
from zeus_kfp.zeus_core.policies import policy_named
from zeus_kfp.zeus_core.policies.bayes.purse import PURSE, beyond_purse
from zeus_kfp.zeus_core.trial import Purpose, TrialState

SIZES = (8, 16, 32, 64)
JOB = JobSpec("job", SIZES, 16, target_metric=0.5)
NOW = np.array([200.0, 100.0, 160.0, 90.0])


def seen(size: int, cost: float, state: TrialState = TrialState.REACHED) -> Observation:
    return Observation(size, Purpose.SAMPLING, state, cost, cost, cost / 10, 10.0)


def beyond(*told: Observation, flying: tuple[int, ...] = ()) -> list[int]:
    return beyond_purse(JOB, rebuild(JOB, told), SIZES, flying, NOW, 100.0, 200.0)


@pytest.mark.parametrize(
    ("told", "cannot"),
    [
        ([], []),
        ([(32, 130.0)], [0]),
        ([(32, 150.0)], [0, 2]),
        ([(32, 130.0), (16, 900.0)], [0]),
        ([(16, 100.0), (32, 130.0), (64, 60.0)], []),
        ([(32, 150.0)] * 9, [0, 2]),
    ],
    ids=["at first", "once dearer", "dearer still", "its own trials are free", "savings count", "never the cheaper"],
)
def test_what_was_spent_above_the_default_limits_what_may_be(told: list[tuple[int, float]], cannot: list[int]) -> None:
    assert beyond(*[seen(size, cost) for size, cost in told]) == cannot


@pytest.mark.parametrize(("trials", "cannot"), [(50, [0, 2]), (90, [0]), (110, [])])
def test_the_purse_grows_with_the_trials_so_that_no_size_is_out_of_reach_for_ever(trials, cannot) -> None:
    assert beyond(*[seen(16, 100.0)] * (trials - 4), *[seen(32, 125.0)] * 4) == cannot


def test_a_trial_that_was_given_up_is_spent_whole_but_not_its_penalty() -> None:
    assert beyond(seen(32, 30.0, TrialState.NOT_REACHED)) == [0]
    saved = [seen(16, 100.0), *[seen(64, 60.0)] * 6]
    assert beyond(*saved, seen(32, 1e9, TrialState.NOT_REACHED)) == []


@pytest.mark.parametrize(
    ("sizes", "tried", "leaps"),
    [
        ((8, 16, 32, 64), [64], [8, 16]),
        ((8, 16, 32, 64), [32], [8]),
        ((8, 16, 32, 64), [8], [32, 64]),
        ((8, 16, 32, 64), [8, 64], []),
        ((8, 64, 512), [64], []),
        ((30, 40, 50, 60, 130), [60], []),
        ((29, 40, 50, 60), [60], [29]),
        ((8, 16, 32, 64), [], [64]),
    ],
    ids=str,
)
@pytest.mark.parametrize("how", [TrialState.REACHED, TrialState.NOT_REACHED, "in flight"])
def test_what_costs_more_than_the_default_is_no_leap_beyond_what_was_tried(sizes, tried, leaps, how) -> None:
    job = JobSpec("job", sizes, 16 if 16 in sizes else sizes[1], target_metric=0.5)
    now = np.full(len(sizes), 100.1)
    flying = [sizes.index(size) for size in tried] if how == "in flight" else []
    told = [] if flying else [seen(size, 1.0, how) for size in tried]
    refused = beyond_purse(job, rebuild(job, told), sizes, flying, now, 100.0, 200.0)
    assert [sizes[index] for index in refused] == leaps
    assert beyond_purse(job, rebuild(job, told), sizes, flying, now - 0.2, 100.0, 200.0) == [], "promises savings"


def test_trials_in_flight_are_spent_as_they_are_expected_to_end() -> None:
    assert beyond(flying=(2,)) == [0, 2]
    assert beyond(flying=(3, 3, 1)) == []


@pytest.mark.parametrize("dearer", [1.3, 2.5, 40.0], ids=["a little", "much", "hopeless"])
@pytest.mark.parametrize("start", SIZES)
def test_where_the_default_is_best_exploring_never_costs_more_than_the_purse_and_two_bad_trials(
    dearer: float, start: int
) -> None:
    job = JobSpec("job", SIZES, start, target_metric=0.5)
    learnt, spent = Learnt(), 0.0
    for _ in range(50):
        chosen = policy_named("bayes").suggest(job, learnt, [], np.random.default_rng(0))
        cost = 200.0 if chosen.batch_size == start else 200.0 * dearer
        most = chosen.cost_threshold or math.inf
        spent += min(cost, most) - (200.0 if cost <= most else 0.0)
        reached = TrialState.REACHED if cost <= most else TrialState.NOT_REACHED
        learnt = observe(job, learnt, seen(chosen.batch_size, min(cost, most), reached))
    assert spent <= (PURSE + 2 * job.beta_knob) * 200
    assert chosen.batch_size == start


def test_a_dear_default_is_left_even_once_the_purse_is_empty() -> None:
    told = [seen(16, 200.0), *[seen(32, 390.0, TrialState.NOT_REACHED)] * 3, seen(8, 150.0)]
    assert policy_named("bayes").suggest(JOB, rebuild(JOB, told), [], np.random.default_rng(0)).batch_size == 8
