"""Many processes at once: nothing lost, nothing doubled, nobody refused. Figures are printed (pytest -s)."""

import dataclasses
import multiprocessing
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from tests.state_store.driving import NOT_REACHED, SPEC
from zeus_kfp.state_store import StateStore
from zeus_kfp.state_store.records import RecurrenceState
from zeus_kfp.state_store.schema import VERSIONS
from zeus_kfp.zeus_core import TrialState
from zeus_kfp.zeus_core.errors import ConflictingReportError


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


def open_later(url, run_id, now):
    with StateStore(url, clock=lambda: now) as store:
        return store.open_recurrence(SPEC, run_id).granted


def close(url, run_id):
    with StateStore(url) as store:
        return store.close_recurrence("job", run_id).state


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


def test_the_same_report_ten_times_and_from_eight_processes_is_one_row_and_one_update(store_url, pool):
    with StateStore(store_url) as store:
        store.open_recurrence(SPEC, "run")
        store.suggest("job", "run", 1)
        at_once = together(pool, report, [store_url] * 8, [NOT_REACHED] * 8)
        one_by_one = [store.report("job", "run", 1, NOT_REACHED) for _ in range(10)]
        assert len({*at_once, *one_by_one}) == 1
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


def test_a_trial_whose_lease_passed_is_expired_once_by_eight_processes(store_url, pool):
    begun = datetime(2026, 1, 1, tzinfo=UTC)
    with StateStore(store_url, clock=lambda: begun) as store:
        store.open_recurrence(SPEC, "dead")
        store.suggest("job", "dead", 1)
    # Each of a moment of its own, so that a second expiry would show in the row.
    late = [begun + timedelta(seconds=SPEC.max_trial_time_s + 601 + number) for number in range(8)]
    assert all(together(pool, open_later, [store_url] * 8, [f"run-{number}" for number in range(8)], late))
    with StateStore(store_url) as store:
        (trial,) = store.trials("job")
        closed = store.recurrence("job", "dead")
        assert trial.state is TrialState.EXPIRED and closed.state is RecurrenceState.EXPIRED
        assert trial.finished_at == closed.closed_at and trial.finished_at in late
        assert store.learnt("job") == store.learnt_from_rows("job")


def test_eight_exit_handlers_and_a_late_report_agree(store_url, pool):
    with StateStore(store_url) as store:
        store.open_recurrence(SPEC, "run")
        store.suggest("job", "run", 1)
        assert set(together(pool, close, [store_url] * 8, ["run"] * 8)) == {RecurrenceState.NOT_REACHED}
        assert [t.state for t in store.trials("job")] == [TrialState.EXPIRED]
        assert len(set(together(pool, report, [store_url] * 8, [NOT_REACHED] * 8))) == 1
        check_books(store, "job", 1)


def test_threads_share_a_store(store_url):
    with StateStore(store_url) as store, ThreadPoolExecutor(8) as threads:
        answers = threads.map(lambda n: run_trials_of(store, f"run-{n}"), range(8))
        assert sorted(number for numbers in answers for number in numbers) == list(range(1, 25))
        check_books(store, "job", 24)


def run_trials_of(store, run_id):
    assert store.open_recurrence(SPEC, run_id).granted
    numbers = []
    for slot in (1, 2, 3):
        numbers.append(store.suggest("job", run_id, slot).number)
        store.report("job", run_id, slot, NOT_REACHED)
    return numbers


def test_a_process_that_was_forked_from_one_with_an_open_store_goes_on_with_its_own_connection(store_url):
    with StateStore(store_url) as store:
        run_trials_of(store, "before")
        children = [
            multiprocessing.get_context("fork").Process(target=run_trials_of, args=(store, f"child-{number}"))
            for number in range(4)
        ]
        for child in children:
            child.start()
        run_trials_of(store, "parent")
        for child in children:
            child.join()
        assert [child.exitcode for child in children] == [0] * 4
        run_trials_of(store, "after")
        check_books(store, "job", 21)
