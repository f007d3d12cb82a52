"""A recurrence waits for its turn and for the data that another makes, with a line that says so, and no longer."""

import dataclasses
from types import SimpleNamespace

import pytest

from zeus_kfp.components.open_recurrence import open_recurrence, waiting
from zeus_kfp.components.open_recurrence.waiting import wait
from zeus_kfp.state_store import StateStore
from zeus_kfp.state_store.records import RecurrenceState
from zeus_kfp.zeus_core import JobSpec, TrialOutcome, TrialState

REACHED = TrialOutcome(TrialState.REACHED, epochs=2, metric=0.95, energy_j=10.0, time_s=1.0, max_power_w=100.0)
SPEC = JobSpec("job", (8, 16), 16, target_metric=0.9, max_concurrent_recurrences=2, max_step_time_s=100.0)


def waited(store, clock, run_id, *, slow_start=False, then=lambda slept_s: None):
    """Return how long a run waits in s, with something happening after each look."""
    slept = [0.0]

    def sleep(seconds):
        slept[0] += seconds
        clock.move(seconds=seconds)
        then(slept[0])

    wait(store, "job", run_id, slow_start=slow_start, sleep=sleep)
    return slept[0]


@pytest.fixture
def overlapping(store):
    for run in "ab":
        store.open_recurrence(SPEC, run)
    return store


@pytest.mark.parametrize("slow_start", [False, True])
def test_an_interrupt_while_it_waits_frees_its_slot(overlapping, clock, slow_start):
    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        waited(overlapping, clock, "b", slow_start=slow_start, then=interrupt)
    assert overlapping.recurrence("job", "b").state is RecurrenceState.NOT_REACHED
    assert overlapping.open_recurrence(SPEC, "c").granted


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


def test_a_new_jobs_second_recurrence_waits_for_what_the_first_finds_out(overlapping, clock, capsys):
    def then(slept_s):
        if slept_s == 50.0:
            overlapping.suggest("job", "a", 1)
        elif slept_s == 400.0:
            overlapping.report("job", "a", 1, REACHED)

    assert waited(overlapping, clock, "b", slow_start=True, then=then) == 400.0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" finds out, ")[1][:28] for line in lines] == [
        "until 2026-01-01 00:11 UTC a",
        "until 2026-01-02 00:10 UTC a",
    ]
    assert lines[0].startswith("job job is new, and what is known of it is enough for 1 at once: this recurrence waits")
    assert lines[0].endswith("If that run is dead, `zeus-kfp recurrences close job a` says so")
    assert overlapping.suggest("job", "b", 1).purpose is not None


def test_a_recurrence_that_was_closed_while_it_waited_does_not_go_on(store_url, monkeypatch, tmp_path):
    notice = tmp_path / "notice"

    def opened(run_id):
        return open_recurrence.python_func(
            job_id="job",
            run_id=run_id,
            batch_sizes=[8, 16],
            default_batch_size=16,
            target_metric=0.9,
            max_concurrent_recurrences=2,
            notice=SimpleNamespace(path=str(notice)),
        )

    monkeypatch.setenv("ZEUS_KFP_STORE_URL", store_url)
    monkeypatch.setattr(waiting, "POLL_S", 0)
    ask = StateStore.why_must_wait

    def asked_and_closed(store, job_id, run_id, **options):
        why = ask(store, job_id, run_id, **options)
        if why:
            store.close_recurrence(job_id, run_id)
        return why

    monkeypatch.setattr(StateStore, "why_must_wait", asked_and_closed)
    assert opened("a")[0] == 1
    assert opened("b") == (0, [], "")
    assert notice.read_text() == "this run has ended its recurrence 2 of job job already (not_reached)\n"
