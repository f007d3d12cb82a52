"""Trials of recorded jobs that are stopped as hopeless."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.zeus_core.simulation.test_replay import Scripted
from zeus_kfp.zeus_core.learning_curve import LEAST_EPOCHS, Milestone, least_epochs
from zeus_kfp.zeus_core.simulation import EpochPower, JobTruth, Scenario, SizeTruth, job_truth, recorded_job, replay
from zeus_kfp.zeus_core.simulation.curves import hopeless_after, stretched
from zeus_kfp.zeus_core.simulation.traces import PowerRow, TrainingTask, TrainRow
from zeus_kfp.zeus_core.trial import TrialState

TASK = TrainingTask("data", "net", "sgd")
POWER = (EpochPower(100.0, 10.0, 0.1),)


def truth_of(*rows: tuple[int, str, dict[float, float]], target: float) -> JobTruth:
    train = [TrainRow(TASK, size, run, metric, epochs) for size, run, way in rows for metric, epochs in way.items()]
    return job_truth(train, [PowerRow(TASK, size, 100.0, 0.1, 100.0) for size in {row[0] for row in rows}], target)


def size_of(epochs: float, *way: tuple[float, float]) -> SizeTruth:
    return SizeTruth((epochs,), POWER, (way,))


# At 4 to 16 half the target takes half the epochs; at 32 it comes late, and 64 waits and then makes it.
TRUTH = JobTruth(
    {
        4: size_of(10, (3, 0.2), (5, 0.5), (10, 1.0)),
        8: size_of(20, (5, 0.2), (10, 0.5), (20, 1.0)),
        16: size_of(30, (7, 0.2), (15, 0.5), (30, 1.0)),
        32: size_of(math.inf, (20, 0.2), (60, 0.5)),
        64: size_of(40, (10, 0.2), (34, 0.5), (40, 1.0)),
    },
    100.0,
)
BEFORE = (4, 8, 16, 8)
"""Sizes of trials that tell enough."""
JOB = recorded_job(TRUTH, default_batch_size=8, target_metric=1.0, max_epochs=50, hopeless_stop=True)


def test_a_trace_tells_how_each_run_came_to_the_target() -> None:
    truth = truth_of(
        (8, "a", {0.1: 1, 0.2: 1, 0.5: 4, 0.7: 9}),
        (8, "b", {0.1: 1, 0.2: 2, 0.5: 5, 0.7: math.inf}),
        (16, "a", {0.1: 3}),
        target=0.5,
    )
    assert truth.higher_is_better
    assert truth.sizes[8].curves == (((1, 0.2), (4, 0.5)), ((1, 0.1), (2, 0.2), (5, 0.5)))
    assert truth.sizes[16].curves == () and truth.sizes[16].epochs == (math.inf,)


def test_a_metric_that_falls_is_told_by_its_trace() -> None:
    truth = truth_of((8, "a", {65.0: 1, 50.0: 3, 40.0: 7, 35.0: math.inf}), target=40.0)
    assert not truth.higher_is_better
    assert truth.sizes[8].curves == (((1, 65.0), (3, 50.0), (7, 40.0)),)
    assert not recorded_job(truth, default_batch_size=8, target_metric=40.0).higher_is_better


def test_a_hopeless_trial_stops_early_and_counts_as_if_it_had_not() -> None:
    policy = Scripted(*BEFORE, 32, 16)
    run = replay(JOB, TRUTH, policy, 5, seed=0)
    stopped = run.trials[4].outcome
    assert [trial.batch_size for trial in run.trials if trial.outcome.state is TrialState.NOT_REACHED] == [32]
    assert LEAST_EPOCHS < stopped.epochs < 50 and stopped.cost == 10 * stopped.epochs
    assert stopped.least_epochs is not None and stopped.least_epochs > 50 and not stopped.would_reach
    arm = policy.asked[5][0].arm(32)
    assert arm.evidence.unreached_epochs == stopped.least_epochs
    assert arm.mean_cost == pytest.approx(10 * stopped.least_epochs)
    assert arm.evidence.epoch_cost == 10.0


def test_the_first_trials_have_no_reference_and_the_knob_takes_it_away() -> None:
    run = replay(JOB, TRUTH, Scripted(4, 8, 32, 16), 3, seed=0)
    assert (run.trials[2].outcome.epochs, run.trials[2].outcome.least_epochs) == (50, None)
    run = replay(replace(JOB, hopeless_stop=False), TRUTH, Scripted(*BEFORE, 32, 16), 5, seed=0)
    assert [trial.outcome.epochs for trial in run.trials] == [10, 20, 30, 20, 50, 30]


def test_a_plateau_is_waited_for_while_the_target_may_still_be_reached() -> None:
    run = replay(JOB, TRUTH, Scripted(*BEFORE, 64), 5, seed=0)
    assert [trial.outcome.state for trial in run.trials] == [TrialState.REACHED] * 5


def test_a_stop_that_was_wrong_is_told() -> None:
    late = JobTruth({**TRUTH.sizes, 32: size_of(49, (40, 0.2), (45, 0.5), (49, 1.0))}, 100.0)
    stopped = replay(JOB, late, Scripted(*BEFORE, 32, 16), 5, seed=0).trials[4].outcome
    assert stopped.state is TrialState.NOT_REACHED and stopped.would_reach


def test_noise_stretches_the_way_to_the_target_with_its_epochs() -> None:
    run = replay(JOB, TRUTH, Scripted(8), 20, seed=0, scenario=Scenario(noise=0.4))
    for trial in run.trials:
        if trial.outcome.curve:
            assert trial.outcome.curve[-1] == (trial.outcome.epochs, 1.0)
            assert trial.outcome.curve[-2][0] / trial.outcome.epochs == pytest.approx(0.5, abs=0.1)
    assert stretched(((1, 0.1), (2, 0.5)), 0.3) == ((1, 0.5),)


WAYS = st.lists(st.tuples(st.integers(1, 40), st.floats(0, 0.99)), max_size=8).map(
    lambda points: tuple(zip(*(sorted(set(column)) for column in zip(*points, strict=True)), strict=False))
)
MILESTONES = st.builds(Milestone, st.floats(0, 1), st.floats(1, 40), st.floats(1, 100), st.floats(0, 1))


@given(reference=st.lists(MILESTONES, max_size=5).map(tuple), way=WAYS, allowed=st.integers(1, 60))
def test_the_epoch_that_is_computed_is_the_first_that_training_would_stop_after(reference, way, allowed) -> None:
    stopped = None
    for epochs in range(LEAST_EPOCHS, allowed):
        best = max((metric for since, metric in way if since <= epochs), default=-math.inf)
        least = least_epochs(reference, epochs, best, higher_is_better=True)
        if least > allowed * (1 + 1e-9):
            stopped = epochs
            break
    found = hopeless_after(reference, way, float(allowed), higher_is_better=True)
    if stopped is None:
        assert found is None or found[1] <= allowed * (1 + 1e-9)
    else:
        assert found is not None and found[0] == stopped and found[1] > allowed
