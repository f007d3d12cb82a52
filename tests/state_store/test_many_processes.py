"""Many processes at once: nothing lost, nothing doubled, nobody refused. Figures are printed (pytest -s)."""

import dataclasses
import multiprocessing
import time

import pytest

from tests.state_store.driving import NOT_REACHED, SPEC
from zeus_kfp.state_store import StateStore
from zeus_kfp.state_store.schema import VERSIONS
from zeus_kfp.zeus_core import TrialState
from zeus_kfp.zeus_core.errors import ConflictingReportError

PROCESSES = 8


@pytest.fixture(scope="module")
def pool():
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        pool.map(abs, range(PROCESSES), chunksize=1)
        yield pool


def together(pool, function, *columns):
    """Call a function in every process at the same time, and return what they returned."""
    return pool.starmap(function, zip(*columns, strict=True), chunksize=1)


def upgrade(url):
    with StateStore(url) as store:
        store.upgrade()
        return store.check()


def run_trials(url, job_id, number, count):
    """Run trials in recurrences of three, and return their numbers."""
    spec, numbers = dataclasses.replace(SPEC, job_id=job_id), []
    with StateStore(url) as store:
        for index in range(count):
            run, slot = f"run-{number}-{index // 3}", index % 3 + 1
            if slot == 1:
                assert store.open_recurrence(spec, run).granted
            numbers.append(store.suggest(job_id, run, slot).number)
            store.report(job_id, run, slot, NOT_REACHED)
    return numbers


def suggest(url, run_id, slot):
    with StateStore(url) as store:
        return store.suggest("job", run_id, slot)


def report(url, outcome):
    with StateStore(url) as store:
        try:
            return store.report("job", "run", 1, outcome)
        except ConflictingReportError:
            return "refused"


def open_and_suggest(url, run_id):
    with StateStore(url) as store:
        opened = store.open_recurrence(dataclasses.replace(SPEC, max_concurrent_recurrences=3), run_id)
        return opened.granted, store.suggest("job", run_id, 1) if opened.granted else None


def check_books(store, job_id, trials):
    assert [t.number for t in store.trials(job_id)] == list(range(1, trials + 1))
    assert store.learnt(job_id) == store.learnt_from_rows(job_id)
    assert sum(arm.count for arm in store.learnt(job_id).arms.values()) == trials


def test_eight_processes_share_one_job_without_a_gap_or_a_double(store_url, pool, record):
    begun = time.perf_counter()
    numbers = together(pool, run_trials, [store_url] * 8, ["job"] * 8, range(8), [100] * 8)
    record(f"one job: 800 trials by 8 processes in {time.perf_counter() - begun:.1f} s")
    assert sorted(sum(numbers, [])) == list(range(1, 801))
    with StateStore(store_url) as store:
        check_books(store, "job", 800)


def test_sixty_four_jobs_at_once_keep_apart(store_url, pool, record):
    names = [f"job-{number}" for number in range(64)]
    begun = time.perf_counter()
    numbers = together(pool, run_trials, [store_url] * 64, names, range(64), [6] * 64)
    record(f"64 jobs: 384 trials by 8 processes in {time.perf_counter() - begun:.1f} s")
    assert numbers == [list(range(1, 7))] * 64
    with StateStore(store_url) as store:
        assert len(store.jobs()) == 64
        for name in names:
            check_books(store, name, 6)


def test_eight_processes_meet_an_empty_database_twenty_times(new_store_url, pool):
    for _ in range(20):
        assert together(pool, upgrade, [new_store_url()] * 8) == [VERSIONS[-1]] * 8


def test_a_slot_asked_for_eight_times_at_once_is_one_trial(store_url, pool):
    with StateStore(store_url) as store:
        store.open_recurrence(SPEC, "run")
        assert len(set(together(pool, suggest, [store_url] * 8, ["run"] * 8, [1] * 8))) == 1
        assert len(store.trials("job")) == 1


def test_eight_runs_at_once_take_three_slots_and_one_exploration(store_url, pool):
    answers = together(pool, open_and_suggest, [store_url] * 8, [f"run-{number}" for number in range(8)])
    plans = [plan for granted, plan in answers if granted]
    assert len(plans) == 3
    assert sorted(plan.number for plan in plans) == [1, 2, 3]
    assert sorted(plan.purpose.value for plan in plans) == ["concurrent", "concurrent", "exploration"]


def test_the_same_report_from_eight_processes_is_one_row_and_one_update(store_url, pool):
    with StateStore(store_url) as store:
        store.open_recurrence(SPEC, "run")
        store.suggest("job", "run", 1)
        assert len(set(together(pool, report, [store_url] * 8, [NOT_REACHED] * 8))) == 1
        check_books(store, "job", 1)


def test_of_different_reports_at_once_one_is_kept_and_the_others_refused(store_url, pool):
    with StateStore(store_url) as store:
        store.open_recurrence(SPEC, "run")
        store.suggest("job", "run", 1)
        different = [dataclasses.replace(NOT_REACHED, energy_j=1.0 + number) for number in range(8)]
        answers = together(pool, report, [store_url] * 8, different)
        assert answers.count("refused") == 7
        assert store.trials("job") == tuple(answer for answer in answers if answer != "refused")
        check_books(store, "job", 1)


def test_a_dead_trial_is_expired_once_by_whoever_comes_first(store_url, pool):
    with StateStore(store_url) as store:
        for number in range(9):
            store.open_recurrence(SPEC, f"run-{number}")
        assert store.suggest("job", "run-0", 1).purpose.value == "exploration"
        # The recurrence goes on without its first trial, while others ask too.
        runs, slots = [f"run-{number}" for number in range(8)], [2] + [1] * 7
        plans = together(pool, suggest, [store_url] * 8, runs, slots)
        states = [t.state for t in store.trials("job")]
        assert states.count(TrialState.EXPIRED) == 1 and states.count(TrialState.ISSUED) == 8
        assert [plan.purpose.value for plan in plans].count("exploration") == 1
