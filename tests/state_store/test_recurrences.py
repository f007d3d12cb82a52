"""Recurrences and trials: every operation may come twice, late, or never."""

import dataclasses
import math

import numpy as np
import pytest

from zeus_kfp.state_store import statements
from zeus_kfp.state_store.records import JobPhase, RecurrenceState
from zeus_kfp.state_store.transaction import PostgresqlTransaction, SqliteTransaction
from zeus_kfp.zeus_core import JobSpec, Profile, Purpose, TrialOutcome, TrialState
from zeus_kfp.zeus_core.errors import (
    ConflictingReportError,
    InvalidValueError,
    JobChangedError,
    NoBatchSizeLeftError,
    UnknownJobError,
    UnknownRecurrenceError,
    UnknownTrialError,
)
from zeus_kfp.zeus_core.learnt import Learnt, Observation, observe
from zeus_kfp.zeus_core.policies import policy_named

SPEC = JobSpec("job", (8, 16, 32), 16, target_metric=0.9, max_retries=3, policy="zeus")


def outcome(state=TrialState.REACHED, energy_j=100.0, time_s=10.0, **values):
    return TrialOutcome(
        state, epochs=2, metric=0.95, energy_j=energy_j, time_s=time_s, energy_source="nvml", max_power_w=50.0, **values
    )


FAILED = TrialOutcome(TrialState.FAILED, reason="broken")
OOM = TrialOutcome(TrialState.OOM, reason="CUDA out of memory")


def recur(store, run_id, *outcomes, spec=SPEC):
    store.open_recurrence(spec, run_id)
    for slot, result in enumerate(outcomes, start=1):
        store.suggest(spec.job_id, run_id, slot)
        store.report(spec.job_id, run_id, slot, result)
    return store.close_recurrence(spec.job_id, run_id)


def test_a_recurrence_keeps_every_row(store):
    opened = store.open_recurrence(SPEC, "run-1", data_version="v1")
    assert (opened.granted, opened.number, opened.slots, opened.data_epoch) == (True, 1, (1, 2, 3), "v1-0")
    plan = store.suggest("job", "run-1", 1)
    assert (plan.batch_size, plan.number, plan.slot, plan.cost_threshold, plan.max_power_w) == (16, 1, 1, None, 0.0)
    profile = Profile(16, "train", None, 40.0, 1000.0, "A40", 1)
    trial = store.report("job", "run-1", 1, outcome(model_uri="s3://m"), [profile])
    assert trial.cost == 0.5 * 100 + 0.5 * 50 * 10
    assert store.trials("job") == (trial,) and store.winner("job", "run-1") == trial
    assert [(p.trial_number, p.profile) for p in store.profiles("job")] == [(1, profile)]
    closed = store.close_recurrence("job", "run-1")
    assert (closed.state, closed.batch_size, closed.cost, closed.trial_count) == (RecurrenceState.REACHED, 16, 300.0, 1)
    assert store.job("job").min_recurrence_cost == 300.0 and store.job("job").max_power_w == 50.0


def test_every_operation_repeated_gives_the_same_answer_and_changes_nothing(store, clock):
    assert store.open_recurrence(SPEC, "run") == store.open_recurrence(SPEC, "run")
    plan = store.suggest("job", "run", 1)
    clock.move(days=1)
    assert store.suggest("job", "run", 1) == plan
    reports = {store.report("job", "run", 1, outcome()) for _ in range(3)}
    assert len(reports) == 1 and store.suggest("job", "run", 1) == plan
    assert store.close_recurrence("job", "run") == store.close_recurrence("job", "run")
    assert len(store.trials("job")) == 1 and store.learnt("job").arm(16).count == 1
    assert not store.open_recurrence(SPEC, "run").granted


def test_a_reached_recurrence_has_nothing_left_to_try(store):
    store.open_recurrence(SPEC, "run")
    store.suggest("job", "run", 1)
    assert store.remaining_slots("job", "run", 1) == (2, 3)
    store.report("job", "run", 1, outcome())
    assert store.remaining_slots("job", "run", 1) == ()
    assert store.suggest("job", "run", 2) is None and len(store.trials("job")) == 1


def test_another_outcome_for_a_finished_trial_is_refused_and_the_first_kept(store):
    store.open_recurrence(SPEC, "run")
    store.suggest("job", "run", 1)
    first = store.report("job", "run", 1, outcome())
    with pytest.raises(ConflictingReportError, match="'reached'.*'oom'"):
        store.report("job", "run", 1, OOM)
    assert store.trials("job") == (first,)


def test_a_trial_that_never_reported_is_expired_by_the_next_suggestion(store):
    store.open_recurrence(SPEC, "run")
    store.suggest("job", "run", 1)
    assert store.suggest("job", "run", 2).batch_size == 16
    assert [t.state for t in store.trials("job")] == [TrialState.EXPIRED, TrialState.ISSUED]


def test_a_slot_that_the_recurrence_has_passed_by_gets_no_trial_beside_the_later_one(store):
    store.open_recurrence(SPEC, "run")
    later = store.suggest("job", "run", 2)
    assert store.suggest("job", "run", 1) is None
    assert store.suggest("job", "run", 2) == later and len(store.trials("job")) == 1


def test_closing_expires_what_never_reported_and_a_late_report_counts_once(store):
    store.open_recurrence(SPEC, "run")
    store.suggest("job", "run", 1)
    assert store.close_recurrence("job", "run").state is RecurrenceState.NOT_REACHED
    assert store.trials("job")[0].state is TrialState.EXPIRED
    for _ in range(2):
        assert store.report("job", "run", 1, outcome()).state is TrialState.REACHED
    assert store.recurrence("job", "run").state is RecurrenceState.REACHED
    assert store.winner("job", "run").number == 1
    assert store.learnt("job").arm(16).count == 1
    assert store.learnt("job") == store.learnt_from_rows("job")


def test_a_vanished_recurrence_gives_its_slot_back_once_its_lease_has_passed(store, clock):
    store.open_recurrence(SPEC, "vanished")
    store.suggest("job", "vanished", 1)
    refused = store.open_recurrence(SPEC, "next")
    assert not refused.granted and "max_concurrent_recurrences allows (1)" in refused.why
    assert "recurrence 1 of run vanished" in refused.why and "from 2026-01-02 00:10 UTC on" in refused.why
    assert "`zeus-kfp recurrences close job vanished`" in refused.why
    clock.move(seconds=SPEC.max_trial_time_s + 601)
    assert store.open_recurrence(SPEC, "next").granted
    assert store.recurrence("job", "vanished").state is RecurrenceState.EXPIRED
    assert store.trials("job")[0].state is TrialState.EXPIRED


def test_a_report_after_the_lease_has_passed_is_taken_once(store, clock):
    store.open_recurrence(SPEC, "run")
    store.suggest("job", "run", 1)
    clock.move(seconds=SPEC.max_trial_time_s + 601)
    store.open_recurrence(SPEC, "next")
    assert store.trials("job")[0].state is TrialState.EXPIRED
    for _ in range(2):
        assert store.report("job", "run", 1, outcome()).state is TrialState.REACHED
    with pytest.raises(ConflictingReportError):
        store.report("job", "run", 1, OOM)
    assert store.recurrence("job", "run").state is RecurrenceState.REACHED
    assert store.learnt("job").arm(16).count == 1
    assert store.learnt("job") == store.learnt_from_rows("job")


@pytest.fixture
def rows_read(monkeypatch):
    """Return a list that grows with every row that the store reads or adds."""
    seen = []

    class Counted(statements.Row):
        def __init__(self, **columns):
            super().__init__(**columns)
            seen.append(columns)

    monkeypatch.setattr(statements, "Row", Counted)
    return seen


def test_a_suggestion_reads_no_history(store, rows_read):
    def rows_of_a_suggestion(run):
        store.open_recurrence(SPEC, run)
        rows_read.clear()
        store.suggest("job", run, 1)
        count = len(rows_read)
        store.report("job", run, 1, outcome())
        store.close_recurrence("job", run)
        return count

    for number in range(5):
        recur(store, f"run-{number}", outcome())
    few = rows_of_a_suggestion("early")
    for number in range(5, 30):
        recur(store, f"run-{number}", outcome())
    # The job, the recurrence with the trial that it lacks yet, that trial, and the arms.
    assert rows_of_a_suggestion("late") == few <= 4 + len(SPEC.batch_sizes)


def test_jobs_are_listed_with_their_latest_recurrence_in_one_query(store, monkeypatch):
    for name in ("b", "a", "c"):
        spec = dataclasses.replace(SPEC, job_id=name)
        recur(store, "run-1", FAILED, spec=spec)
        store.open_recurrence(spec, "run-2")
    queries = []
    for kind in (SqliteTransaction, PostgresqlTransaction):
        read = kind.read
        monkeypatch.setattr(kind, "read", lambda *call, read=read: queries.append(call[1]) or read(*call))
    listed = store.jobs()
    assert [(o.job.spec.job_id, o.job.recurrence_count, o.latest_state) for o in listed] == [
        (name, 2, RecurrenceState.OPEN) for name in ("a", "b", "c")
    ]
    assert len(queries) == 1


def test_a_job_is_complete_after_its_recurrences(store):
    spec = dataclasses.replace(SPEC, num_recurrences=1)
    recur(store, "run", outcome(), spec=spec)
    assert store.job("job").phase is JobPhase.COMPLETED
    refused = store.open_recurrence(spec, "next")
    assert not refused.granted and "complete" in refused.why
    assert store.job("job").phase is JobPhase.COMPLETED
    assert store.open_recurrence(dataclasses.replace(spec, num_recurrences=2), "more").granted


def test_overlapping_recurrences_never_hold_the_same_exploration(store):
    spec = dataclasses.replace(SPEC, max_concurrent_recurrences=3)
    plans = []
    for run in ("a", "b", "c"):
        store.open_recurrence(spec, run)
        plans.append(store.suggest("job", run, 1))
    assert [p.purpose.value for p in plans] == ["exploration", "concurrent", "concurrent"]


def test_changed_knobs_are_refused_by_name_and_value_and_nothing_is_written(store):
    recur(store, "run", outcome())
    changed = dataclasses.replace(SPEC, eta_knob=1.0, batch_sizes=(8, 16))
    with pytest.raises(JobChangedError, match=r"eta_knob was 0\.5, now 1\.0.*another job_id.*accept") as error:
        store.open_recurrence(changed, "next")
    assert "batch_sizes" in str(error.value)
    assert store.job("job").spec == SPEC and len(store.recurrences("job")) == 1


def test_accepted_eta_prices_the_history_again(store):
    recur(store, "run", outcome())
    store.open_recurrence(dataclasses.replace(SPEC, eta_knob=1.0), "next", on_knob_change="accept")
    assert store.trials("job")[0].cost == 100.0 and store.learnt("job").arm(16).mean_cost == 100.0
    assert store.job("job").min_recurrence_cost == 100.0
    assert store.learnt("job") == store.learnt_from_rows("job")


def test_an_accepted_target_starts_learning_anew_and_keeps_the_rows(store):
    recur(store, "run", outcome())
    store.open_recurrence(dataclasses.replace(SPEC, target_metric=0.99), "next", on_knob_change="accept")
    assert store.learnt("job").arm(16).count == 0 and store.job("job").min_recurrence_cost is None
    assert len(store.trials("job")) == 1


def test_a_late_report_from_before_an_accepted_target_teaches_nothing(store):
    store.open_recurrence(SPEC, "run")
    store.suggest("job", "run", 1)
    other = dataclasses.replace(SPEC, target_metric=0.99, max_concurrent_recurrences=2)
    store.open_recurrence(other, "next", on_knob_change="accept")
    assert store.report("job", "run", 1, outcome()).state is TrialState.REACHED
    assert store.learnt("job") == store.learnt_from_rows("job") == Learnt()


def test_an_exploration_from_before_an_accepted_target_holds_nobody_up(store):
    store.open_recurrence(SPEC, "run")
    store.suggest("job", "run", 1)
    other = dataclasses.replace(SPEC, target_metric=0.99, max_concurrent_recurrences=2)
    store.open_recurrence(other, "next", on_knob_change="accept")
    assert store.suggest("job", "next", 1).purpose is Purpose.EXPLORATION


def test_two_profiles_of_one_phase_and_limit_are_refused_whole(store):
    store.open_recurrence(SPEC, "run")
    store.suggest("job", "run", 1)
    with pytest.raises(InvalidValueError, match="one profile a phase"):
        store.report("job", "run", 1, outcome(), [Profile(16, "train", None, 1.0, 1.0)] * 2)
    assert store.trials("job")[0].state is TrialState.ISSUED and store.profiles("job") == ()


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 256, 3, None])
def test_names_that_no_database_keeps_are_refused(store, name):
    with pytest.raises(InvalidValueError, match="job_id"):
        store.suggest(name, "run", 1)
    with pytest.raises(InvalidValueError, match="run_id"):
        store.close_recurrence("job", name)


@pytest.mark.parametrize("field", ["epochs", "attempts", "accelerator_count", "exit_code"])
def test_integers_beyond_a_database_column_are_refused(field):
    with pytest.raises(InvalidValueError, match=f"{field}.*at most 2147483647"):
        dataclasses.replace(outcome(), **{field: 10**30})


def test_operational_knobs_may_change_at_any_time(store):
    recur(store, "run", outcome())
    assert store.open_recurrence(dataclasses.replace(SPEC, max_retries=1), "next").slots == (1,)


def test_missing_data_ends_the_recurrence_and_gives_the_next_a_new_epoch_once(store):
    missing = TrialOutcome(TrialState.FAILED, reason="gone", data_missing=True)
    recur(store, "run", missing)
    assert store.open_recurrence(SPEC, "next").data_epoch == "-1"
    store.suggest("job", "next", 1)
    store.report("job", "next", 1, missing)
    assert store.suggest("job", "next", 2) is None and store.remaining_slots("job", "next", 1) == ()
    store.close_recurrence("job", "next")
    assert store.open_recurrence(SPEC, "third").data_epoch == "-2"


def test_missing_data_says_nothing_of_the_batch_size(store):
    for number in range(3):
        recur(store, f"run-{number}", TrialOutcome(TrialState.FAILED, reason="gone", data_missing=True))
    assert store.learnt("job") == store.learnt_from_rows("job") == Learnt()


def test_a_repeated_open_takes_no_knobs_again(store):
    spec = dataclasses.replace(SPEC, max_concurrent_recurrences=2)
    first = store.open_recurrence(spec, "a")
    changed = dataclasses.replace(spec, target_metric=0.99)
    store.open_recurrence(changed, "b", on_knob_change="accept")
    assert store.open_recurrence(spec, "a") == first
    assert store.job("job").spec == changed


def test_an_issued_trial_asked_for_again_has_a_new_lease(store, clock):
    store.open_recurrence(SPEC, "run")
    store.suggest("job", "run", 1)
    clock.move(seconds=SPEC.max_trial_time_s)
    store.suggest("job", "run", 1)
    clock.move(seconds=SPEC.max_trial_time_s)
    assert store.suggest("job", "run", 1).number == 1
    assert store.trials("job")[0].lease_expires_at > clock.now


def test_out_of_memory_at_the_smallest_size_leaves_nothing_to_open_for(store):
    recur(store, "run", OOM, OOM)
    assert [t.batch_size for t in store.trials("job")] == [16, 8]
    with pytest.raises(NoBatchSizeLeftError):
        store.open_recurrence(SPEC, "next")


def test_unknown_things_are_named(store):
    with pytest.raises(UnknownJobError, match="'nobody'"):
        store.suggest("nobody", "run", 1)
    store.open_recurrence(SPEC, "run")
    with pytest.raises(UnknownRecurrenceError, match="'other'"):
        store.close_recurrence("job", "other")
    with pytest.raises(UnknownRecurrenceError, match="'other'"):
        store.winner("job", "other")
    with pytest.raises(UnknownJobError, match="'nobody'"):
        store.winner("nobody", "run")
    with pytest.raises(UnknownTrialError, match="slot 2"):
        store.report("job", "run", 2, outcome())


@pytest.mark.parametrize("slot", [0, -1, 1.0, "1", True, None])
def test_a_slot_that_is_no_positive_integer_is_refused(store, slot):
    store.open_recurrence(SPEC, "run")
    with pytest.raises(InvalidValueError, match="slot"):
        store.suggest("job", "run", slot)
    with pytest.raises(InvalidValueError, match="slot"):
        store.remaining_slots("job", "run", slot if slot != 0 else -1)
    assert store.trials("job") == ()


def test_a_report_without_rated_power_leaves_nothing_half_written(store):
    store.open_recurrence(SPEC, "run")
    store.suggest("job", "run", 1)
    blind = dataclasses.replace(outcome(), max_power_w=0.0)
    with pytest.raises(InvalidValueError, match="max_power_w"):
        store.report("job", "run", 1, blind, [Profile(16, "train", None, 1.0, 1.0)])
    assert store.trials("job")[0].state is TrialState.ISSUED and store.profiles("job") == ()
    assert store.report("job", "run", 1, outcome()).state is TrialState.REACHED


def test_energy_alone_needs_no_rated_power(store):
    recur(store, "run", dataclasses.replace(outcome(), max_power_w=0.0), spec=dataclasses.replace(SPEC, eta_knob=1.0))
    assert [t.cost for t in store.trials("job")] == [100.0]


@pytest.mark.parametrize("text", ["it's; DROP TABLE job;--", "100%", "✓ 训练 🚀", 'a "b" \\n', "x" * 255])
def test_names_are_stored_verbatim(store, text):
    spec = dataclasses.replace(SPEC, job_id=text, user=text)
    recur(store, text, dataclasses.replace(FAILED, reason=text, error=text), spec=spec)
    (trial,) = store.trials(text, text)
    assert (trial.job_id, trial.run_id, trial.reason, trial.error) == (text,) * 4
    assert store.job(text).spec == spec


def test_an_infinite_beta_survives_the_database(store):
    spec = dataclasses.replace(SPEC, beta_knob=math.inf)
    store.open_recurrence(spec, "run")
    assert store.job("job").spec == spec


def test_suggestions_are_those_of_the_policy_driven_by_one_generator(store):
    policy, rng, learnt = policy_named("zeus"), np.random.default_rng(SPEC.seed), Learnt()
    noise = np.random.default_rng(7)
    for number in range(25):
        run = f"run-{number}"
        store.open_recurrence(SPEC, run)
        plan, expected = store.suggest("job", run, 1), policy.suggest(SPEC, learnt, (), rng)
        assert (plan.batch_size, plan.why) == (expected.batch_size, expected.why)
        result = outcome(energy_j=float(100 + abs(plan.batch_size - 16) + noise.normal(0, 20)))
        cost = store.report("job", run, 1, result).cost
        learnt = observe(SPEC, learnt, Observation(plan.batch_size, plan.purpose, TrialState.REACHED, cost, cost, 2))
        assert store.learnt("job") == learnt == store.learnt_from_rows("job")
        store.close_recurrence("job", run)


def test_rebuilding_from_the_rows_gives_what_was_kept(store):
    rng = np.random.default_rng(3)
    for number in range(12):
        results = [
            [outcome(energy_j=float(rng.uniform(50, 150))), outcome(TrialState.NOT_REACHED), FAILED, OOM][i]
            for i in rng.choice(4, size=3, p=[0.6, 0.2, 0.15, 0.05])
        ]
        store.open_recurrence(SPEC, f"run-{number}")
        for slot, result in enumerate(results, start=1):
            if store.suggest("job", f"run-{number}", slot) is None:
                break
            store.report("job", f"run-{number}", slot, result)
        store.close_recurrence("job", f"run-{number}")
    kept = store.learnt("job")
    assert store.rebuild("job") == kept == store.learnt("job")
