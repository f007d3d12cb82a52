"""Where the policy differs from the published one on purpose: what is lost there, and is not here."""

import math
import warnings
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zeus_kfp.zeus_core.errors import NoBatchSizeLeftError
from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.learnt import Learnt, Observation, observe, rebuild
from zeus_kfp.zeus_core.policies import InFlight, ZeusPolicy
from zeus_kfp.zeus_core.trial import Purpose, Suggestion, TrialState

JOB = JobSpec("job", (8, 16, 32, 64), 32, target_metric=0.9)
FLAT = replace(JOB, num_pruning_rounds=0)
REACHED, NOT_REACHED = TrialState.REACHED, TrialState.NOT_REACHED
FAILED, OOM, EXPIRED = TrialState.FAILED, TrialState.OOM, TrialState.EXPIRED
EXPLORATION, CONCURRENT, SAMPLING = Purpose.EXPLORATION, Purpose.CONCURRENT, Purpose.SAMPLING

Trial = tuple[int, TrialState, float | None]
SURVIVORS_16_32: list[Trial] = [
    (32, REACHED, 100.0),
    (16, REACHED, 90.0),
    (8, NOT_REACHED, 180.0),
    (64, NOT_REACHED, 180.0),
    (16, REACHED, 94.0),
    (32, REACHED, 104.0),
]


def told(job: JobSpec, trials: list[Trial], purpose: Purpose = EXPLORATION) -> Learnt:
    return rebuild(job, [Observation(size, purpose, state, cost, cost) for size, state, cost in trials])


def asked(job: JobSpec, learnt: Learnt, *in_flight: InFlight, seed: int = 1) -> Suggestion:
    return ZeusPolicy().suggest(job, learnt, in_flight, np.random.default_rng(seed))


def sizes_asked(job: JobSpec, learnt: Learnt, *in_flight: InFlight) -> set[int]:
    return {asked(job, learnt, *in_flight, seed=seed).batch_size for seed in range(40)}


def test_out_of_memory_rules_out_the_size_and_all_above_in_the_walk() -> None:
    trials: list[Trial] = [(32, REACHED, 100.0), (16, NOT_REACHED, 180.0), (64, OOM, None)]
    assert asked(JOB, told(JOB, trials)).why.startswith("exploring from 32, the cheapest of the round before")


def test_out_of_memory_rules_out_survivors_in_sampling() -> None:
    oom = Observation(32, SAMPLING, OOM)
    learnt = rebuild(JOB, [*_observations(SURVIVORS_16_32), oom])
    assert sizes_asked(JOB, learnt) == {16}


def test_out_of_memory_of_a_size_that_has_worked_is_a_failure_like_another() -> None:
    learnt = rebuild(JOB, [*_observations(SURVIVORS_16_32[:3]), Observation(16, CONCURRENT, OOM)])
    assert (learnt.arm(16).out_of_memory, learnt.arm(16).consecutive_failures) == (False, 1)
    suggestion = asked(JOB, learnt, InFlight(8, EXPLORATION))
    assert (suggestion.batch_size, suggestion.purpose) == (16, CONCURRENT)


def test_out_of_memory_at_the_default_starts_the_walk_at_the_largest_size_left() -> None:
    suggestion = asked(JOB, told(JOB, [(32, OOM, None)]))
    assert suggestion.batch_size == 16
    assert suggestion.why == "exploring from 16, the largest that may fit below the default (round 1 of 2)"


@pytest.mark.parametrize("job", [JOB, FLAT], ids=["walk", "sampling"])
def test_out_of_memory_at_every_size_is_an_error_that_says_what_to_do(job: JobSpec) -> None:
    with pytest.raises(NoBatchSizeLeftError, match="smaller batch sizes, or on accelerators with more memory"):
        asked(job, told(job, [(32, OOM, None), (8, OOM, None)]))


def test_poisoned_minimum_only_what_reached_the_target_sets_threshold_and_best_size() -> None:
    trials: list[Trial] = [(32, REACHED, 100.0), (16, NOT_REACHED, 20.0), (64, REACHED, 90.0)]
    learnt = told(JOB, trials)
    assert asked(JOB, learnt).cost_threshold == 180.0
    assert asked(JOB, learnt, InFlight(64, EXPLORATION)).batch_size == 64


def test_zero_variance_leaves_equal_sizes_an_equal_share() -> None:
    trials: list[Trial] = [(size, REACHED, 100.0) for size in (16, 16, 32, 32)]
    job = replace(JOB, batch_sizes=(16, 32), num_pruning_rounds=0)
    learnt, rng = told(job, trials, SAMPLING), np.random.default_rng(1)
    chosen = Counter(ZeusPolicy().suggest(job, learnt, (), rng).batch_size for _ in range(400))
    assert chosen[16] == pytest.approx(200, abs=40)


def test_zero_variance_never_makes_a_worse_size_win() -> None:
    trials: list[Trial] = [(16, REACHED, 100.0)] * 2 + [(32, REACHED, 100.1)] * 2
    job = replace(JOB, batch_sizes=(16, 32), num_pruning_rounds=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sizes_asked(job, told(job, trials, SAMPLING)) == {16}


def test_zero_variance_leaves_a_posterior_that_can_be_stored() -> None:
    learnt = told(JOB, [(32, REACHED, 100.0)] * 2, SAMPLING)
    deviation = ZeusPolicy().posterior(JOB, learnt)[2].standard_deviation
    assert deviation is not None
    assert 0 < deviation < 1e-3


@pytest.mark.parametrize("state", [EXPIRED, FAILED])
def test_dead_trials_let_the_same_step_be_handed_out_again(state: TrialState) -> None:
    for before in ([], SURVIVORS_16_32[:3]):
        expected = asked(JOB, told(JOB, before)).batch_size
        again = asked(JOB, told(JOB, [*before, (expected, state, None)]))
        assert (again.batch_size, again.purpose) == (expected, EXPLORATION)


def test_dead_trials_of_one_size_are_passed_over_by_the_walk_after_three_in_a_row() -> None:
    trials: list[Trial] = [(32, REACHED, 100.0), *[(16, FAILED, None)] * 2]
    assert asked(JOB, told(JOB, trials)).why.endswith("again since 2 of its trials failed")
    assert asked(JOB, told(JOB, [*trials, (16, FAILED, None)])).batch_size == 64
    assert asked(JOB, told(JOB, [*trials, (16, EXPIRED, None)])).batch_size == 16


def test_dead_trials_leave_a_size_out_of_sampling_until_one_ends_otherwise() -> None:
    failed = [Observation(16, SAMPLING, FAILED)] * 3
    learnt = rebuild(JOB, [*_observations(SURVIVORS_16_32), *failed])
    assert sizes_asked(JOB, learnt) == {32}
    reached = Observation(16, SAMPLING, REACHED, 91.0, 91.0)
    assert 16 in sizes_asked(JOB, rebuild(JOB, [*_observations(SURVIVORS_16_32), *failed, reached]))


@pytest.mark.parametrize("job", [JOB, FLAT], ids=["walk", "sampling"])
def test_dead_trials_at_every_size_fall_back_to_the_default_and_recover(job: JobSpec) -> None:
    dead: list[Trial] = [(size, FAILED, None) for size in job.batch_sizes for _ in range(3)]
    assert sizes_asked(job, told(job, dead)) == {32}
    mended = told(job, [*dead, (32, REACHED, 100.0)])
    assert not any(mended.arm(size).keeps_failing for size in job.batch_sizes)
    assert 16 in sizes_asked(job, mended)


def test_nothing_reached_goes_on_to_the_sizes_that_were_not_tried() -> None:
    trials: list[Trial] = [(32, NOT_REACHED, 1.0), (64, NOT_REACHED, 1.0)]
    assert asked(JOB, told(JOB, trials)).batch_size == 16
    assert asked(JOB, told(JOB, [*trials, (16, NOT_REACHED, 1.0)])).batch_size == 8


def test_nothing_reached_anywhere_starts_over_with_the_default() -> None:
    nothing: list[Trial] = [(size, NOT_REACHED, 50.0) for size in (32, 64, 16, 8)]
    learnt = told(JOB, nothing)
    assert asked(JOB, learnt).why == "exploring from the default batch size 32 (round 1 of 2)"
    assert not any(arm.explorations for arm in learnt.arms.values())
    assert learnt.arm(32).count == 1
    assert asked(JOB, told(JOB, [*nothing, (32, REACHED, 50.0)])).batch_size == 16


def test_nothing_reached_in_the_second_round_starts_over_too() -> None:
    trials: list[Trial] = [*SURVIVORS_16_32[:4], (16, NOT_REACHED, 180.0), (32, NOT_REACHED, 180.0)]
    assert asked(JOB, told(JOB, trials)).why == "exploring from the default batch size 32 (round 1 of 2)"


def test_in_flight_trials_count_so_that_no_exploration_is_handed_out_twice() -> None:
    in_flight: list[InFlight] = []
    for seed in range(8):
        suggestion = asked(FLAT, Learnt(), *in_flight, seed=seed)
        assert suggestion.purpose is SAMPLING
        in_flight.append(InFlight(suggestion.batch_size, SAMPLING))
    assert Counter(trial.batch_size for trial in in_flight) == {8: 2, 16: 2, 32: 2, 64: 2}
    ninth = asked(FLAT, Learnt(), *in_flight)
    assert (ninth.batch_size, ninth.purpose) == (32, CONCURRENT)


def test_in_flight_concurrent_trial_of_the_walks_size_does_not_move_the_walk() -> None:
    concurrent = Observation(32, CONCURRENT, REACHED, 70.0, 70.0)
    learnt = rebuild(JOB, [concurrent])
    suggestion = asked(JOB, learnt)
    assert (suggestion.batch_size, suggestion.purpose) == (32, EXPLORATION)
    assert learnt.arm(32).count == 1


def test_a_job_whose_sizes_changed_is_not_stuck_in_an_exhausted_walk() -> None:
    learnt = told(JOB, [(32, NOT_REACHED, 1.0), (16, NOT_REACHED, 1.0), (64, NOT_REACHED, 1.0)])
    changed = replace(JOB, batch_sizes=(16, 32, 64))
    suggestion = asked(changed, learnt)
    assert (suggestion.batch_size, suggestion.purpose) == (32, EXPLORATION)


STATES = [REACHED, NOT_REACHED, FAILED, OOM, EXPIRED]


@given(st.lists(st.sampled_from([*STATES, REACHED]), max_size=60), st.integers(0, 100), st.sampled_from([JOB, FLAT]))
@settings(deadline=None)
def test_whatever_happens_there_is_a_next_size_below_what_ran_out_of_memory(
    states: list[TrialState], seed: int, job: JobSpec
) -> None:
    rng, learnt, limit = np.random.default_rng(seed), Learnt(), math.inf
    for state in states:
        if limit <= min(job.batch_sizes):
            break
        suggestion = ZeusPolicy().suggest(job, learnt, (), rng)
        assert suggestion.batch_size < limit
        cost = float(rng.uniform(50, 150)) if state in (REACHED, NOT_REACHED) else None
        has_fitted = any(arm.reached_count for size, arm in learnt.arms.items() if size >= suggestion.batch_size)
        learnt = observe(job, learnt, Observation(suggestion.batch_size, suggestion.purpose, state, cost, cost))
        limit = min(limit, suggestion.batch_size if state is OOM and not has_fitted else math.inf)


def _observations(trials: list[Trial]) -> list[Observation]:
    return [Observation(size, EXPLORATION, state, cost, cost) for size, state, cost in trials]
