"""A new job's recurrences that overlap run one at a time, and another for every two results."""

import dataclasses
import time
from contextlib import contextmanager

import pytest

from tests.state_store.driving import NOT_REACHED, SPEC
from zeus_kfp.state_store import StateStore
from zeus_kfp.state_store.transaction import PostgresqlTransaction, SqliteTransaction
from zeus_kfp.zeus_core import TrialState
from zeus_kfp.zeus_core.errors import InvalidValueError, UnknownJobError, UnknownRecurrenceError

REACHED = dataclasses.replace(NOT_REACHED, state=TrialState.REACHED, metric=0.95)
FAILED = dataclasses.replace(NOT_REACHED, state=TrialState.FAILED)


@pytest.fixture
def opened(store):
    for run in "abcdef":
        assert store.open_recurrence(SPEC, run).granted
    store.suggest("job", "a", 1)
    return store


def going_on(store, runs="abcdef"):
    """Return the runs that need not wait for the results of others, and what the others wait for."""
    whys = {run: store.why_must_wait("job", run) for run in runs}
    return "".join(run for run, why in whys.items() if "finds out" not in why), whys


@contextmanager
def reads_of(store):
    """Give a list of the queries that are sent in a block."""
    sent = []
    kind = SqliteTransaction if store._database.is_sqlite else PostgresqlTransaction
    read = kind.read
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "read", lambda self, query, *values: sent.append(query) or read(self, query, *values))
        yield sent


def finish(store, run, outcome=REACHED):
    store.suggest("job", run, 1)
    store.report("job", run, 1, outcome)
    store.close_recurrence("job", run)


def test_as_many_go_on_as_enough_is_known_for(opened):
    known = []
    for run in "abcde":
        known.append(going_on(opened)[0])
        finish(opened, run)
    # Those that have ended need not wait either.
    assert known == ["a", "ab", "abcd", "abcde", "abcdef"]


def test_the_earliest_goes_on_first_and_is_named(opened):
    finish(opened, "a")
    going, whys = going_on(opened)
    assert going == "ab"
    assert "recurrence 2 of run b finds out, until 2026-01-02 00:10 UTC at most" in whys["c"]
    assert "enough for 1 at once" in whys["f"] and "recurrences close job b`" in whys["f"]


def test_whoever_waits_for_nobody_waits_for_data_only(opened):
    assert [opened.why_must_wait("job", run, slow_start=False) for run in "abc"] == ["", "", ""]


def test_a_recurrence_whose_winner_is_known_holds_nobody_up(opened):
    opened.report("job", "a", 1, REACHED)
    assert going_on(opened)[0] == "ab"


@pytest.mark.parametrize("state", [TrialState.FAILED, TrialState.OOM])
def test_a_trial_that_tells_nothing_of_its_size_lets_nobody_on(opened, state):
    opened.report("job", "a", 1, dataclasses.replace(FAILED, state=state))
    assert going_on(opened)[0] == "a"
    opened.close_recurrence("job", "a")
    assert going_on(opened)[0] == "ab"


def test_trials_that_were_given_up_tell_something(opened):
    for slot in (1, 2):
        opened.suggest("job", "a", slot)
        opened.report("job", "a", slot, NOT_REACHED)
    opened.suggest("job", "a", 3)
    assert going_on(opened)[0] == "ab"


def test_nobody_waits_for_a_run_that_was_closed(opened):
    opened.close_recurrence("job", "a")
    assert going_on(opened)[0] == "ab"


def test_nobody_waits_longer_than_a_lease_and_asking_keeps_ones_own(opened, clock):
    clock.move(hours=20)
    assert going_on(opened)[0] == "a"
    clock.move(hours=5)
    # Nobody has heard of a since; all the others asked.
    assert going_on(opened, "bcdef")[0] == "b"


def test_whoever_was_silent_for_an_hour_while_it_waited_holds_nobody_up_however_long_a_step_may_take(opened, clock):
    going_on(opened)
    opened.close_recurrence("job", "a")
    clock.move(minutes=59)
    assert going_on(opened, "c")[0] == ""
    clock.move(minutes=1)
    # Nobody has heard of b since.
    assert going_on(opened, "cd")[0] == "c"
    # From then on it is at a step, and may be silent for as long as that may take.
    clock.move(hours=24)
    assert going_on(opened, "d")[0] == ""


def test_whoever_waits_for_data_is_waited_for_though_data_never_takes_long(store, clock):
    for run, version in (("a", "old"), ("b", "new"), ("c", "new"), ("d", "new")):
        store.open_recurrence(SPEC, run, data_version=version)
    clock.move(minutes=1)
    store.suggest("job", "a", 1)  # data takes a minute
    assert "recurrence 2 of run b" in store.why_must_wait("job", "c", slow_start=False)
    store.close_recurrence("job", "b")
    # Either of the two that are left makes the data, and not both.
    assert "recurrence 3 of run c" in store.why_must_wait("job", "d", slow_start=False)
    assert store.why_must_wait("job", "c", slow_start=False) == ""


@pytest.mark.parametrize("outcome", [NOT_REACHED, REACHED])
def test_a_look_reads_as_often_whatever_number_of_recurrences_is_open(store, outcome):
    def looks(count):
        for number in range(count):
            store.open_recurrence(SPEC, f"run-{number}")
            store.suggest("job", f"run-{number}", 1)
            store.report("job", f"run-{number}", 1, outcome)
        store.open_recurrence(SPEC, f"last-{count}")
        with reads_of(store) as read:
            store.why_must_wait("job", f"last-{count}")
        return len(read)

    assert looks(2) == looks(40)


def test_a_job_that_starts_anew_is_new_again(opened):
    for run in "abcdef":
        finish(opened, run)
    opened.reset_job("job")
    for run in "gh":
        opened.open_recurrence(SPEC, run)
    assert going_on(opened, "gh")[0] == "g"


def test_a_lone_recurrence_never_waits(store):
    for run in "abc":
        store.open_recurrence(SPEC, run)
        assert store.why_must_wait("job", run) == ""
        finish(store, run, NOT_REACHED)


def test_who_does_not_exist_can_not_wait(opened):
    with pytest.raises(UnknownJobError):
        opened.why_must_wait("nobody", "a")
    with pytest.raises(UnknownRecurrenceError):
        opened.why_must_wait("job", "z")
    with pytest.raises(InvalidValueError, match="slow_start must be true or false"):
        opened.why_must_wait("job", "a", slow_start="no")


def run_one(url, number):
    """Wait for its turn, train, and return when the trial began and ended."""
    with StateStore(url) as store:
        store.open_recurrence(SPEC, f"run-{number}")
        while store.why_must_wait("job", f"run-{number}"):
            time.sleep(0.01)
        plan = store.suggest("job", f"run-{number}", 1)
        begun = time.monotonic()
        time.sleep(0.05)
        ended = time.monotonic()
        store.report("job", f"run-{number}", 1, REACHED)
        store.close_recurrence("job", f"run-{number}")
        return begun, ended, plan.number


def test_of_eight_processes_never_more_run_at_once_than_enough_is_known_for(store_url, pool):
    spans = pool.starmap(run_one, [(store_url, number) for number in range(8)], chunksize=1)
    assert sorted(number for _, _, number in spans) == list(range(1, 9))
    for begun, _, _ in spans:
        results = sum(ended <= begun for _, ended, _ in spans)
        others = sum(start < begun < ended for start, ended, _ in spans)
        assert others <= results // 2
