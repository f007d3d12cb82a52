import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.policies import ArmPosterior, policy_named
from zeus_kfp.zeus_core.simulation import (
    Change,
    ChangeKind,
    EpochPower,
    JobTruth,
    Scenario,
    SizeTruth,
    default,
    oracle,
    recorded_job,
    replay,
    simulate,
)
from zeus_kfp.zeus_core.trial import Purpose, Suggestion, TrialState

REACHED, NOT_REACHED, OOM, FAILED = TrialState.REACHED, TrialState.NOT_REACHED, TrialState.OOM, TrialState.FAILED


def one_limit(energy_j: float, *epochs: float) -> SizeTruth:
    return SizeTruth(epochs, (EpochPower(100.0, energy_j, energy_j / 100),))


# Costs of an epoch are 100, 60 and 40 J at 100 W, whatever eta is; of a trial 500, 360 and 400 J.
TRUTH = JobTruth({8: one_limit(100, 5), 16: one_limit(60, 6), 32: one_limit(40, 10)}, 100.0)
JOB = recorded_job(TRUTH, default_batch_size=8, target_metric=0.5, max_epochs=20)


class Scripted:
    """Hands out batch sizes in turn, with a threshold, and keeps what it was asked with."""

    name = "scripted"

    def __init__(self, *sizes: int, threshold: float | None = None) -> None:
        self.sizes, self.threshold, self.asked = list(sizes), threshold, []

    def suggest(self, job, learnt, in_flight, rng) -> Suggestion:
        self.asked.append((learnt, [trial.batch_size for trial in in_flight]))
        return Suggestion(
            self.sizes[(len(self.asked) - 1) % len(self.sizes)], Purpose.SAMPLING, "", self.threshold, 1.0
        )

    def posterior(self, job, learnt) -> tuple[ArmPosterior, ...]:
        return ()


def ends(run) -> list[tuple[int, int, TrialState, float]]:
    return [(t.recurrence, t.batch_size, t.outcome.state, t.outcome.cost) for t in run.trials]


def test_a_recurrence_retries_until_a_trial_reaches_and_all_of_it_counts() -> None:
    policy = Scripted(32, 16, threshold=370.0)
    run = replay(JOB, TRUTH, policy, 2, seed=0)
    assert ends(run) == [
        (1, 32, NOT_REACHED, 360),
        (1, 16, REACHED, 360),
        (2, 32, NOT_REACHED, 360),
        (2, 16, REACHED, 360),
    ]
    assert run.recurrence_costs() == [720, 720]
    assert (run.cost, run.energy_j, run.time_s, run.unreached) == (1440, 1440, 14.4, 0)
    learnt = policy.asked[2][0]
    assert (learnt.min_recurrence_cost, learnt.best_batch_size) == (720, 16)
    assert learnt.arm(32).evidence.unreached_epochs == 9
    assert learnt.arm(16).evidence.epoch_cost == 60


def test_a_recurrence_ends_unreached_after_its_last_try() -> None:
    run = replay(replace(JOB, max_epochs=4, max_retries=3), TRUTH, Scripted(8), 2, seed=0)
    assert [end[:3] for end in ends(run)] == [(n, 8, NOT_REACHED) for n in (1, 1, 1, 2, 2, 2)]
    assert run.unreached == 2


def test_a_threshold_below_one_epoch_costs_nothing_and_is_told_as_a_penalty() -> None:
    policy = Scripted(8, 16, threshold=99.0)
    run = replay(replace(JOB, max_retries=2), TRUTH, policy, 1, seed=0)
    assert ends(run) == [(1, 8, NOT_REACHED, 0), (1, 16, NOT_REACHED, 60)]
    assert policy.asked[1][0].arm(8).mean_cost == 9900


def test_the_first_trial_of_a_size_profiles_and_the_next_does_not() -> None:
    truth = JobTruth({8: SizeTruth((2.0,), (EpochPower(100.0, 100.0, 1.0), EpochPower(50.0, 400.0, 4.0)))}, 100.0)
    job = recorded_job(truth, default_batch_size=8, target_metric=0.5)
    assert replay(job, truth, Scripted(8), 2, seed=0).recurrence_costs() == [350, 200]


def test_too_large_a_size_runs_out_of_memory_for_nothing() -> None:
    run = replay(JOB, TRUTH, Scripted(32, 8), 1, seed=0, scenario=Scenario(fits_up_to=16))
    assert ends(run) == [(1, 32, OOM, 0), (1, 8, REACHED, 500)]


def test_failures_cost_part_of_a_trial_and_teach_no_cost() -> None:
    policy = Scripted(8)
    run = replay(JOB, TRUTH, policy, 40, seed=0, scenario=Scenario(failure_probability=0.5))
    failed = [end for end in ends(run) if end[2] is FAILED]
    assert run.unreached == 0 and len(run.trials) == 40 + len(failed)
    assert 20 < len(failed) < 70 and all(0 < cost < 500 for *_, cost in failed)
    assert policy.asked[-1][0].arm(8).count == policy.asked[-1][0].arm(8).reached_count


def test_noise_spreads_the_epochs() -> None:
    run = replay(JOB, TRUTH, Scripted(32), 200, seed=0, scenario=Scenario(noise=0.2))
    logs = np.log([trial.outcome.epochs for trial in run.trials if trial.outcome.state is REACHED])
    assert 0.15 < logs.std() < 0.25 and abs(logs.mean() - math.log(10)) < 0.1


def test_overlapping_recurrences_see_each_other_and_land_by_their_ends() -> None:
    policy = Scripted(8, 16, 32)
    run = replay(JOB, TRUTH, policy, 3, seed=0, scenario=Scenario(overlap=3, slow_start=False))
    assert [flying for _, flying in policy.asked] == [[], [8], [8, 16]]
    assert [end[1] for end in ends(run)] == [16, 32, 8]
    assert all(not learnt.arms for learnt, _ in policy.asked)
    assert run.end_s == max(trial.outcome.time_s for trial in run.trials)


def test_recurrences_that_overlap_start_as_the_results_allow() -> None:
    policy = Scripted(8)
    run = replay(JOB, TRUTH, policy, 12, seed=0, scenario=Scenario(overlap=3))
    assert [len(flying) for _, flying in policy.asked] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 2]
    assert [learnt.arm(8).count for learnt, _ in policy.asked] == [0, 1, 2, 2, 3, 4, 4, 5, 6, 7, 8, 9]
    trial_s = run.trials[0].outcome.time_s
    assert run.end_s == pytest.approx(6 * trial_s)
    alone = replay(JOB, TRUTH, Scripted(8), 12, seed=0)
    assert alone.end_s == pytest.approx(12 * trial_s)


def test_trials_that_tell_nothing_start_nobody_more() -> None:
    policy = Scripted(32)
    run = replay(JOB, TRUTH, policy, 2, seed=0, scenario=Scenario(overlap=2, fits_up_to=16))
    assert {trial.outcome.state for trial in run.trials} == {OOM}
    assert all(not flying for _, flying in policy.asked)


@pytest.mark.parametrize(
    ("kind", "epochs_known", "cost_known"),
    [(ChangeKind.DRIFT, 1, True), (ChangeKind.GPU, 1, False), (ChangeKind.GPU_FORGETTING_ALL, 0, False)],
)
def test_a_change_midway_takes_from_the_policy_what_it_should(kind, epochs_known: int, cost_known: bool) -> None:
    after = JobTruth({8: one_limit(10, 5), 16: one_limit(6, 6), 32: one_limit(4, 10)}, 100.0)
    policy = Scripted(8)
    run = replay(JOB, TRUTH, policy, 3, seed=0, scenario=Scenario(changes=(Change(2, after, kind),)))
    assert run.recurrence_costs() == [500, 50, 50]
    learnt = policy.asked[1][0]
    assert learnt.arm(8).evidence.log_epochs.count == epochs_known
    assert (learnt.min_recurrence_cost is not None) is cost_known
    assert (learnt.arm(8).evidence.epoch_cost is not None) is cost_known


def test_the_yardsticks_are_the_cheapest_size_and_the_default_one() -> None:
    assert oracle(JOB, TRUTH, 2).recurrence_costs == (360, 360)
    assert default(JOB, TRUTH, 2).cost == 1000
    assert oracle(JOB, TRUTH, 1, Scenario(fits_up_to=8)).cost == 500
    with pytest.raises(InvalidValueError, match="no batch size that fits reaches the target within max_epochs=4"):
        oracle(replace(JOB, max_epochs=4), TRUTH, 1)


def test_a_size_that_reaches_half_the_time_costs_its_failed_tries_too() -> None:
    truth = JobTruth({8: one_limit(100, 5, math.inf)}, 100.0)
    job = recorded_job(truth, default_batch_size=8, target_metric=0.5, max_epochs=20)
    assert oracle(job, truth, 1).cost == 2500


def test_a_simulation_sums_up_every_policy_over_seeds() -> None:
    result = simulate(JOB, TRUTH, ["zeus", "bayes"], recurrences=10, seeds=3)
    assert [one.policy for one in result.results] == ["zeus", "bayes"]
    assert len(result.replays) == 6
    for one in result.results:
        assert one.regret.mean == pytest.approx(one.cost.mean / 3600 - 1)
        assert one.above_default.mean == pytest.approx(one.cost.mean / 5000 - 1)
        assert one.regret_curve[-1] == pytest.approx(one.regret.mean)
        assert one.unreached == 0
        assert all(spread.standard_deviation < 1e-9 for spread in (one.cost, one.trials))


def test_the_same_seed_gives_the_same_replay() -> None:
    noisy = Scenario(noise=0.3, failure_probability=0.1, overlap=2)
    first, second = (replay(JOB, TRUTH, policy_named("zeus"), 30, 5, noisy) for _ in range(2))
    assert first == second != replay(JOB, TRUTH, policy_named("zeus"), 30, 6, noisy)


@pytest.mark.parametrize(
    "values",
    [
        {"overlap": 0},
        {"overlap": 1.5},
        {"slow_start": "no"},
        {"failure_probability": 1.0},
        {"failure_probability": math.nan},
        {"noise": -0.1},
        {"noise": "much"},
        {"fits_up_to": 0},
        {"changes": (Change(0, TRUTH),)},
        {"changes": (Change(5, TRUTH), Change(5, TRUTH))},
    ],
    ids=str,
)
def test_a_scenario_that_can_not_be_is_refused(values: dict) -> None:
    with pytest.raises(InvalidValueError):
        Scenario(**values)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"recurrences": 0}, "recurrences must be at least 1"),
        ({"seeds": 0}, "seeds must be at least 1"),
        ({"policies": []}, "at least one policy"),
        ({"policies": ["zeus", "zeus"]}, "none twice"),
        ({"policies": ["best"]}, "policy must be one of"),
        ({"scenario": Scenario(fits_up_to=4)}, "fits_up_to must be at least the smallest batch size 8"),
        ({"scenario": Scenario(changes=(Change(2, JobTruth({8: one_limit(1, 1)}, 100.0)),))}, r"\[16, 32\]"),
    ],
)
def test_a_simulation_that_can_not_be_run_is_refused(arguments: dict, message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        simulate(JOB, TRUTH, **arguments)


@given(
    policy=st.sampled_from(["zeus", "bayes"]),
    seed=st.integers(0, 1000),
    overlap=st.integers(1, 4),
    failing=st.sampled_from([0.0, 0.3]),
    noise=st.sampled_from([0.0, 0.5]),
    fits=st.sampled_from([None, 8, 16]),
)
@settings(max_examples=30, deadline=None)
def test_every_recurrence_ends_with_its_first_reached_trial(policy, seed, overlap, failing, noise, fits) -> None:
    scenario = Scenario(overlap, failing, fits, noise)
    run = replay(JOB, TRUTH, policy_named(policy), 12, seed, scenario)
    for number in range(1, 13):
        states = [trial.outcome.state for trial in run.trials if trial.recurrence == number]
        assert states.count(REACHED) == (states[-1] is REACHED)
        assert 1 <= len(states) <= JOB.max_retries
        assert states[-1] is REACHED or len(states) == JOB.max_retries
