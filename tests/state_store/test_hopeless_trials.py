"""How trials reach their target is kept, handed to those that come, and counted right where one was stopped by it."""

import dataclasses
import json
import math
from collections.abc import Callable

import pytest
from sqlalchemy import select

from tests.state_store.driving import NOT_REACHED
from tests.state_store.driving import SPEC as PLAIN
from zeus_kfp.state_store.tables import TRIAL
from zeus_kfp.zeus_core import TrialOutcome, TrialState
from zeus_kfp.zeus_core.errors import InvalidValueError, JobChangedError
from zeus_kfp.zeus_core.learning_curve import LEAST_CURVES
from zeus_kfp.zeus_core.trial import TrialPlan

SPEC = dataclasses.replace(PLAIN, hopeless_stop=True)
CURVE = ((1, 0.1), (5, 0.5), (10, 0.9))
REACHED = dataclasses.replace(NOT_REACHED, state=TrialState.REACHED, epochs=10, metric=0.9, curve=CURVE)
ENOUGH = [REACHED] * LEAST_CURVES
HOPELESS = dataclasses.replace(NOT_REACHED, reason="hopeless: …", epochs=4, energy_j=4.0, time_s=4.0, least_epochs=30.0)


@pytest.fixture
def recur(store, clock):
    """Return a function that runs a recurrence of a job a day, one for each outcome, and returns their plans."""
    runs = iter(range(100))

    def run(
        *outcomes: TrialOutcome | Callable[[TrialPlan], TrialOutcome], consent: str = "refuse", **knobs
    ) -> list[TrialPlan]:
        plans = []
        for outcome in outcomes:
            clock.move(days=1)
            run_id = f"run-{next(runs)}"
            store.open_recurrence(dataclasses.replace(SPEC, **knobs), run_id, on_knob_change=consent)
            plans.append(store.suggest("job", run_id, 1))
            store.report("job", run_id, 1, outcome(plans[-1]) if callable(outcome) else outcome)
            store.close_recurrence("job", run_id)
        return plans

    return run


def test_trials_that_reached_their_target_make_the_reference_of_the_next(recur, store):
    *early, plan = recur(*ENOUGH, REACHED)
    assert [one.reference for one in early] == [()] * len(ENOUGH)
    (milestone,) = plan.reference
    assert (milestone.metric, milestone.epochs) == (0.5, pytest.approx(5)) and 5 < milestone.least_epochs < 10
    assert TrialPlan.from_json(plan.to_json()) == plan
    assert store.trials("job")[0].curve == CURVE
    assert store.learnt("job").arm(16).curves[0] == CURVE


def test_the_plan_that_was_handed_out_is_handed_out_again(recur, store):
    recur(*ENOUGH)
    store.open_recurrence(SPEC, "again")
    plan = store.suggest("job", "again", 1)
    assert plan.reference and store.suggest("job", "again", 1) == plan


def test_a_hopeless_trial_is_told_apart_and_counts_with_what_it_would_have_cost(recur, store):
    _, plan = recur(REACHED, HOPELESS)
    trial = store.trials("job")[1]
    assert (trial.state, trial.is_hopeless, trial.least_epochs) == (TrialState.NOT_REACHED, True, 30.0)
    assert trial.cost == pytest.approx(2.0 + 2.0), "what was spent"
    arm = store.learnt("job").arm(plan.batch_size)
    assert arm.mean_cost == pytest.approx(30.0) and arm.hopeless_in_row == 1
    assert arm.evidence.unreached_epochs == 30.0
    assert store.learnt("job") == store.learnt_from_rows("job")
    assert store.export("job").trials[1].least_epochs == 30.0


def test_early_ends_are_no_sign_of_drift(recur, store):
    daily = {"batch_sizes": (16,), "period_s": 86_400.0}
    dear = dataclasses.replace(REACHED, energy_j=100.0, time_s=100.0)
    recur(*[dear] * 8, *[HOPELESS] * 4, **daily)
    assert store.drifts("job") == ()
    cheap = dataclasses.replace(dear, energy_j=4.0, time_s=4.0)
    recur(*[cheap] * 4, **daily)
    assert [drift.reason for drift in store.drifts("job")] == ["the cost at batch size 16 has fallen"]


def test_curves_of_all_sizes_are_forgotten_in_the_rows_too_once_the_data_has_changed(recur, store):
    dear = dataclasses.replace(REACHED, energy_j=100.0, time_s=100.0)
    plans = recur(*[lambda plan: dear if plan.batch_size == 8 else REACHED] * 9, batch_sizes=(8, 16))
    assert {plan.batch_size for plan in plans[-5:]} == {16} and store.learnt("job").arm(8).curves
    late = dataclasses.replace(REACHED, epochs=40, curve=((20, 0.5), (40, 0.9)))
    recur(late, late, late, batch_sizes=(8, 16))
    learnt = store.learnt("job")
    assert (learnt.arm(8).curves, learnt.arm(16).curves) == ((), (late.curve,))
    assert learnt == store.learnt_from_rows("job")


@pytest.mark.parametrize(
    "change",
    [
        {"target_metric": 0.8},
        {"higher_is_better": False},
        {"max_epochs": 50},
        {"learning_rate_rule": "linear"},
        {"learning_rate_rule": "square_root"},
    ],
)
def test_a_change_of_what_a_curve_means_voids_it(recur, store, change):
    recur(*ENOUGH)
    with pytest.raises(JobChangedError):
        recur(REACHED, **change)
    (plan,) = recur(NOT_REACHED, consent="accept", **change)
    learnt = store.learnt("job")
    assert plan.reference == () and not any(arm.curves or arm.reached_count for arm in learnt.arms.values())
    assert learnt == store.learnt_from_rows("job")


def test_trials_under_two_learning_rate_rules_share_nothing(recur, store):
    recur(REACHED, REACHED, learning_rate_rule="linear")
    assert recur(REACHED, consent="accept", learning_rate_rule="square_root")[0].learning_rate_factor == 1.0
    assert sum(arm.count for arm in store.learnt("job").arms.values()) == 1


@pytest.mark.parametrize(("rule", "count"), [("none", 2), ("linear", 0), ("square_root", 0)])
def test_a_new_default_size_is_another_rate_at_each_size_where_rates_are_scaled(recur, store, rule, count):
    recur(REACHED, REACHED, learning_rate_rule=rule)
    other = dataclasses.replace(SPEC, learning_rate_rule=rule, default_batch_size=8)
    store.open_recurrence(other, "moved", on_knob_change="accept")
    assert sum(arm.count for arm in store.learnt("job").arms.values()) == count


def test_the_knob_takes_the_reference_away_without_consent_and_gives_it_back(recur):
    recur(*ENOUGH)
    assert recur(REACHED, hopeless_stop=False)[0].reference == ()
    assert recur(REACHED, hopeless_stop=True)[0].reference


def test_a_report_of_older_code_has_no_curve(recur, store):
    old = {
        name: value for name, value in json.loads(REACHED.to_json()).items() if name not in ("curve", "least_epochs")
    }
    recur(TrialOutcome.from_json(json.dumps(old)))
    assert store.trials("job")[0].curve == () and store.learnt("job").arm(16).curves == ()


@pytest.mark.parametrize(
    "values",
    [
        {"curve": "[]"},
        {"curve": [[1, 0.5]], "state": "not_reached"},
        {"curve": [[2, 0.5], [1, 0.9]]},
        {"curve": [[n, n / 100] for n in range(1, 18)]},
        {"least_epochs": 30.0},
        {"least_epochs": 4.0, "state": "not_reached", "curve": [], "epochs": 4},
        {"least_epochs": math.inf, "state": "not_reached", "curve": []},
        {"least_epochs": True, "state": "not_reached", "curve": []},
        {"least_epochs": 5.0, "state": "not_reached", "curve": [], "epochs": 0},
    ],
    ids=str,
)
def test_what_no_trial_can_have_done_is_refused(values):
    document = json.dumps(json.loads(REACHED.to_json()) | values)
    with pytest.raises(InvalidValueError):
        TrialOutcome.from_json(document)


def test_a_move_to_another_accelerator_is_kept_in_step(recur, store):
    def on(model: str, energy_j: float) -> TrialOutcome:
        return dataclasses.replace(REACHED, accelerator=model, energy_j=energy_j, time_s=energy_j)

    recur(on("V100", 50.0), on("V100", 50.0), on("A40", 90.0), batch_sizes=(16,))
    assert store.job("job").accelerators == ("V100",)
    before = store.learnt("job").arm(16)
    assert before.count == 3
    recur(on("A40", 90.0), batch_sizes=(16,))
    after = store.learnt("job")
    assert store.job("job").accelerators == ("V100", "A40")
    assert (after.arm(16).count, after.arm(16).evidence.log_epochs.count) == (1, 4)
    assert after.min_recurrence_cost == after.arm(16).mean_cost > before.min_cost
    assert after == store.learnt_from_rows("job")
    recur(*[on("V100", 50.0)] * 3, batch_sizes=(16,))
    assert store.job("job").accelerators == ("V100", "A40"), "a pool of both"
    assert store.learnt("job").arm(16).count == 4
    assert store.learnt("job") == store.learnt_from_rows("job")


def test_a_curve_is_kept_as_rows_alone_hold_it(recur, store):
    recur(REACHED)
    with store._database.engine.connect() as connection:
        assert connection.execute(select(TRIAL.c.curve)).scalars().all() == [[list(point) for point in CURVE]]
