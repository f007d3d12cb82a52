"""A recurrence waits, with a line that says so, while another makes the same data, and no longer."""

import dataclasses

import pytest

from zeus_kfp.components.open_recurrence.waiting import wait_for_data
from zeus_kfp.state_store.records import RecurrenceState
from zeus_kfp.zeus_core import JobSpec

SPEC = JobSpec("job", (8, 16), 16, target_metric=0.9, max_concurrent_recurrences=2, max_step_time_s=100.0)


def waited(store, clock, run_id, *, then=lambda slept_s: None):
    """Return how long a run waits in s, with something happening after each look."""
    slept = [0.0]

    def sleep(seconds):
        slept[0] += seconds
        clock.move(seconds=seconds)
        then(slept[0])

    wait_for_data(store, "job", run_id, sleep=sleep)
    return slept[0]


@pytest.fixture
def overlapping(store):
    for run in "ab":
        store.open_recurrence(SPEC, run)
    return store


def test_the_first_waits_for_nobody(overlapping, clock, capsys):
    assert (waited(overlapping, clock, "a"), capsys.readouterr().out) == (0.0, "")


def test_the_second_waits_until_the_first_has_its_data(overlapping, clock, capsys):
    def then(slept_s):
        if slept_s == 50.0:
            overlapping.suggest("job", "a", 1)

    assert waited(overlapping, clock, "b", then=then) == 50.0
    assert capsys.readouterr().out == (
        "recurrence 1 of run a preprocesses the same data (-0): this one waits for it, until 2026-01-01 00:11 UTC at "
        "most. If that run is dead, `zeus-kfp recurrences close job a` says so\n"
    )


def test_the_second_waits_no_longer_than_the_firsts_lease_and_keeps_its_own(overlapping, clock):
    assert waited(overlapping, clock, "b") == 700.0
    assert overlapping.open_recurrence(dataclasses.replace(SPEC), "c").granted
    assert overlapping.recurrence("job", "a").state is RecurrenceState.EXPIRED
    assert overlapping.recurrence("job", "b").state is RecurrenceState.OPEN
