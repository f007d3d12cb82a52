from dataclasses import replace

import pytest

from zeus_kfp.zeus_core.hopeless import PATIENCE, reference_for
from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.learning_curve import LEAST_CURVES
from zeus_kfp.zeus_core.learnt import MOST_CURVES_OF_A_SIZE, Learnt, Observation, forget_costs, observe, rebuild
from zeus_kfp.zeus_core.trial import Purpose, TrialState

JOB = JobSpec("job", (8, 16, 32), 16, target_metric=0.9, hopeless_stop=True)
CURVE = ((1, 0.1), (5, 0.5), (10, 0.9))
REACHED, NOT_REACHED = TrialState.REACHED, TrialState.NOT_REACHED


def reached(size: int = 16, cost: float = 100.0, **more) -> Observation:
    usual = {"recurrence_cost": cost, "num_epochs": 10, "curve": CURVE}
    return Observation(size, Purpose.SAMPLING, REACHED, cost, **usual | more)


ENOUGH = [reached()] * LEAST_CURVES


def hopeless(size: int = 16, purpose: Purpose = Purpose.SAMPLING) -> Observation:
    return Observation(size, purpose, NOT_REACHED, 40.0, 40.0, num_epochs=4, least_epochs=30.0)


def test_a_hopeless_trial_counts_as_one_that_was_given_up_where_it_would_have_been() -> None:
    arm = observe(JOB, Learnt(), hopeless(purpose=Purpose.EXPLORATION)).arm(16)
    assert (arm.count, arm.reached_count, arm.mean_cost, arm.hopeless_in_row) == (1, 0, 300.0, 1)
    assert [(one.cost, one.reached) for one in arm.explorations] == [(300.0, False)]
    evidence = arm.evidence
    assert (evidence.unreached_epochs, evidence.unreached_cost, evidence.epoch_cost) == (30.0, 300.0, 10.0)


def test_the_latest_curves_of_each_size_are_kept_and_make_the_reference() -> None:
    later = tuple(((1, 0.1), (epochs, 0.5), (10, 0.9)) for epochs in (4, 5, 6, 7))
    learnt = rebuild(JOB, [reached(), *(reached(32, curve=curve) for curve in later), reached(8, curve=())])
    assert learnt.arm(32).curves == later[-MOST_CURVES_OF_A_SIZE:]
    assert learnt.arm(8).curves == ()
    assert [metric for metric, *_ in reference_for(JOB, learnt, 8)] == [0.5]


def test_a_size_is_let_go_on_after_too_many_hopeless_trials_until_one_ends_otherwise() -> None:
    learnt = rebuild(JOB, [*ENOUGH, *[hopeless(8)] * (PATIENCE - 1)])
    assert reference_for(JOB, learnt, 8)
    learnt = observe(JOB, learnt, hopeless(8))
    assert reference_for(JOB, learnt, 8) == () != reference_for(JOB, learnt, 16)
    for ended in (reached(8, curve=()), Observation(8, Purpose.SAMPLING, NOT_REACHED, 50.0, 50.0, num_epochs=5)):
        assert reference_for(JOB, observe(JOB, learnt, ended), 8)


def test_no_reference_is_given_where_none_is_wanted() -> None:
    assert reference_for(replace(JOB, hopeless_stop=False), rebuild(JOB, ENOUGH), 16) == ()


def test_curves_hold_on_another_accelerator() -> None:
    learnt = rebuild(JOB, [*ENOUGH, hopeless(8)])
    moved = forget_costs(learnt)
    assert reference_for(JOB, moved, 8) == reference_for(JOB, learnt, 8) != ()
    assert moved.arm(8).hopeless_in_row == 1 and moved.arm(8).count == 0


@pytest.mark.parametrize("last", [CURVE, ()])
def test_curves_are_forgotten_with_the_epochs_once_the_data_has_changed(last) -> None:
    before = [reached(8), *[reached()] * 5, *[reached(num_epochs=40, curve=((20, 0.5), (40, 0.9)))] * 2]
    learnt = rebuild(JOB, before)
    assert [len(learnt.arm(size).curves) for size in (8, 16)] == [1, MOST_CURVES_OF_A_SIZE]
    learnt = observe(JOB, learnt, reached(num_epochs=40, curve=last))
    assert learnt.arm(8).curves == () and learnt.arm(16).curves == ((last,) if last else ())
    assert learnt.arm(16).evidence.log_epochs.count == 3
