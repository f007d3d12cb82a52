"""Ending, deleting and resetting a job, and what must not change by the way."""

import dataclasses
import time
from datetime import datetime

import pytest
from sqlalchemy import delete

from tests.state_store.driving import NOT_REACHED
from zeus_kfp.state_store import StateStore, opening
from zeus_kfp.state_store.faults import passes
from zeus_kfp.state_store.records import JobPhase
from zeus_kfp.state_store.tables import JOB
from zeus_kfp.zeus_core import JobSpec, Profile, TrialState
from zeus_kfp.zeus_core.errors import InvalidValueError, JobInUseError, StoreUnavailableError

SPEC = JobSpec("job", (8, 16, 32), 16, target_metric=0.9, max_retries=3, num_recurrences=1)
REACHED = dataclasses.replace(NOT_REACHED, state=TrialState.REACHED)


def recur(store, run, spec=SPEC, outcome=REACHED, **options):
    assert store.open_recurrence(spec, run, **options).granted
    store.suggest("job", run, 1)
    store.report("job", run, 1, outcome)
    store.close_recurrence("job", run)


def test_a_deleted_job_stays_deleted_though_it_has_had_all_its_recurrences(store):
    recur(store, "run")
    store.delete_job("job")
    assert "was deleted" in store.open_recurrence(SPEC, "next").why
    assert store.jobs() == () and store.job("job").phase is JobPhase.DELETED
    with pytest.raises(JobInUseError, match="was deleted"):
        store.complete_job("job")


def test_a_job_ended_by_hand_stays_ended_though_its_cap_is_raised(store):
    recur(store, "run")
    store.complete_job("job")
    assert "by hand" in store.open_recurrence(dataclasses.replace(SPEC, num_recurrences=10), "next").why


@pytest.mark.parametrize("operation", ["reopen_job", "reset_job"])
def test_a_job_that_has_had_all_its_recurrences_begins_to_count_anew(store, operation):
    recur(store, "run")
    assert not store.open_recurrence(SPEC, "next").granted
    getattr(store, operation)("job")
    recur(store, "again")
    assert not store.open_recurrence(SPEC, "last").granted


def test_a_vanished_recurrence_keeps_no_job_from_being_deleted(store, clock):
    store.open_recurrence(SPEC, "vanished")
    with pytest.raises(JobInUseError, match="'vanished'"):
        store.delete_job("job")
    clock.move(days=365)
    store.delete_job("job")


def test_a_run_that_is_granted_nothing_leaves_what_was_learnt(store):
    recur(store, "run")
    learnt = store.learnt("job")
    other = dataclasses.replace(SPEC, target_metric=0.5)
    assert not store.open_recurrence(other, "next", on_knob_change="accept").granted
    assert store.learnt("job") == learnt and store.job("job").spec.target_metric == 0.9


def test_a_purge_that_is_repeated_after_a_lost_answer_succeeds(store, monkeypatch):
    recur(store, "run")
    write = store._write
    monkeypatch.setattr(store, "_write", lambda operation: [write(operation), write(operation)][-1])
    store.delete_job("job", keep_history=False)
    assert store.jobs() == ()


def test_a_job_purged_while_its_row_was_waited_for_is_registered_again(store, monkeypatch):
    locked, purged = opening.locked_job, []

    def lock(transaction, job_id):
        if not purged:
            purged.append(transaction.write(delete(JOB)))
        return locked(transaction, job_id)

    monkeypatch.setattr(opening, "locked_job", lock)
    assert store.open_recurrence(SPEC, "run").granted and len(purged) == 1


def test_no_two_trials_of_a_recurrence_are_under_way(store):
    store.open_recurrence(SPEC, "run")
    store.suggest("job", "run", 1)
    assert store.suggest("job", "run", 4) is None, "beyond max_retries"
    assert [t.state for t in store.trials("job")] == [TrialState.ISSUED]
    store.suggest("job", "run", 3)
    assert store.suggest("job", "run", 2) is None
    assert [t.state for t in store.trials("job")] == [TrialState.EXPIRED, TrialState.ISSUED]


def test_a_late_report_takes_no_winner_its_place(store):
    store.open_recurrence(SPEC, "run")
    for slot in (1, 2):
        store.suggest("job", "run", slot)
    store.report("job", "run", 2, dataclasses.replace(REACHED, model_uri="second"))
    store.close_recurrence("job", "run")
    store.report("job", "run", 1, dataclasses.replace(REACHED, model_uri="first"))
    assert store.winner("job", "run").model_uri == "second"
    assert store.recurrence("job", "run").batch_size == store.trials("job")[1].batch_size


def test_costs_from_before_the_rated_power_was_known_are_priced_again(store):
    energy_alone = dataclasses.replace(SPEC, eta_knob=1.0, num_recurrences=0)
    outcome = dataclasses.replace(REACHED, energy_j=100.0, time_s=10.0)
    recur(store, "first", energy_alone, dataclasses.replace(outcome, max_power_w=0.0))
    both = dataclasses.replace(energy_alone, eta_knob=0.5)
    recur(store, "second", both, dataclasses.replace(outcome, max_power_w=50.0), on_knob_change="accept")
    assert [t.cost for t in store.trials("job")] == [300.0, 300.0]
    assert store.job("job").min_recurrence_cost == 300.0
    assert store.learnt("job") == store.learnt_from_rows("job")


def test_a_straggler_from_before_a_reset_says_nothing_of_the_rated_power(store):
    spec = dataclasses.replace(SPEC, num_recurrences=0)
    store.open_recurrence(spec, "run")
    store.suggest("job", "run", 1)
    store.close_recurrence("job", "run")
    store.reset_job("job")
    store.report("job", "run", 1, dataclasses.replace(REACHED, max_power_w=9999.0))
    assert store.job("job").max_power_w == 0.0


def test_profiles_may_come_in_any_order_and_from_a_generator_and_belong_to_their_trial(store):
    store.open_recurrence(SPEC, "run")
    store.suggest("job", "run", 1)
    one, two = (Profile(16, "train", limit, 90.0, 100.0) for limit in (100, 200))
    with pytest.raises(InvalidValueError, match=r"no profiles of \[32\]"):
        store.report("job", "run", 1, REACHED, [dataclasses.replace(one, batch_size=32)])
    first = store.report("job", "run", 1, REACHED, (profile for profile in (one, two)))
    assert store.report("job", "run", 1, REACHED, [two, dataclasses.replace(one, power_limit_w=100.0)]) == first
    assert len(store.profiles("job")) == 2


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.jobs(since="7d"),
        lambda store: store.jobs(user="a\0b"),
        lambda store: store.jobs(phase="resting"),
        lambda store: store.trials("job", batch_size=10**30),
        lambda store: store.trials("job", batch_size="8"),
        lambda store: store.trials("\ud800"),
        lambda store: store.winner("job", "\ud800"),
        lambda store: store.recurrences("job", state="ended"),
        lambda store: store.report("job", "run", 1, None),
        lambda store: store.report("job", "run", 1, REACHED, [None]),
        lambda store: store.report("job", "run", 1, REACHED, None),
        lambda store: store.reset_job(None),
        lambda store: store.arms(5),
    ],
)
def test_what_no_store_can_look_for_is_refused_by_name(store, call):
    with pytest.raises(InvalidValueError):
        call(store)


@pytest.mark.parametrize("patience_s", [float("nan"), float("inf"), -1, "x", None])
def test_a_patience_that_is_none_is_refused(tmp_path, patience_s):
    with pytest.raises(InvalidValueError, match="patience_s"):
        StateStore(f"sqlite:///{tmp_path / 'store.db'}", patience_s=patience_s)


def test_a_clock_without_a_time_zone_is_refused(tmp_path):
    naive = datetime(2026, 1, 1)  # noqa: DTZ001  # what is to be refused
    with StateStore(f"sqlite:///{tmp_path}/store.db", clock=lambda: naive) as store:
        with pytest.raises(InvalidValueError, match="with a time zone"):
            store.open_recurrence(SPEC, "run")
        assert store.jobs() == ()


def test_patience_is_what_was_promised(tmp_path):
    url = f"sqlite:///{tmp_path / 'store.db'}"
    with StateStore(url) as holder, StateStore(url, patience_s=0.3) as store:
        store.upgrade()
        with holder._database.connection(write=True):
            begun = time.monotonic()
            with pytest.raises(StoreUnavailableError):
                store.open_recurrence(SPEC, "run")
            waited_s = time.monotonic() - begun
    assert 0.3 <= waited_s < 30


class RefusedError(Exception):
    pgcode = None


@pytest.mark.parametrize(
    ("text", "is_passing"),
    [
        ("server closed the connection unexpectedly; SSL SYSCALL error: Connection reset by peer", True),
        ("SSL SYSCALL error: EOF detected", True),
        ("connection refused", True),
        ("the database system is starting up", True),
        ("server does not support SSL, but SSL was required", False),
        ("SSL error: certificate verify failed", False),
        ('FATAL: password authentication failed for user "x"', False),
        ('FATAL: database "x" does not exist', False),
    ],
)
def test_faults_of_a_connection_that_pass_are_told_from_those_that_last(text, is_passing):
    from sqlalchemy.exc import OperationalError

    assert passes(OperationalError("SELECT 1", {}, RefusedError(text))) is is_passing


@pytest.mark.parametrize("every", [0, 1, 3])
def test_a_job_whose_history_was_dropped_makes_its_data_anew_and_takes_none_for_gone(store, every):
    spec = dataclasses.replace(SPEC, num_recurrences=0, preprocess_every=every)
    for run in "abc":
        recur(store, run, spec)
    epochs = {recurrence.data_epoch for recurrence in store.recurrences("job")}
    store.reset_job("job", keep_history=False)
    opened = store.open_recurrence(spec, "first again")
    assert opened.why == "recurrence 1 of job job" and opened.data_epoch not in epochs


@pytest.mark.parametrize(
    "question",
    ["job", "recurrences", "trials", "profiles", "export", "drifts", "prunable", "learnt", "learnt_from_rows", "arms"],
)
def test_a_name_that_no_store_can_keep_is_refused_whatever_is_asked(store, question):
    with pytest.raises(InvalidValueError, match="job_id must not hold NUL"):
        getattr(store, question)("a\0")
