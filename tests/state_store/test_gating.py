"""When a recurrence starts: period, drift, slots of the job and of its user, clocks that jump."""

import dataclasses
import threading
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tests.state_store.driving import NOT_REACHED
from zeus_kfp.state_store import StateStore
from zeus_kfp.state_store.records import RecurrenceState
from zeus_kfp.zeus_core import JobSpec, TrialState
from zeus_kfp.zeus_core.errors import InvalidValueError, UnknownJobError

DAY_S = 86_400.0
WEEKLY = JobSpec(
    "job",
    (8, 16),
    16,
    target_metric=0.9,
    period_s=7 * DAY_S,
    max_concurrent_recurrences=2,
    max_trial_time_s=3600.0,
    max_step_time_s=3600.0,
)
REACHED = dataclasses.replace(NOT_REACHED, state=TrialState.REACHED, metric=0.95)


def recur(store, run_id, spec=WEEKLY, **options):
    opened = store.open_recurrence(spec, run_id, **options)
    if opened.granted:
        store.suggest(spec.job_id, run_id, 1)
        store.report(spec.job_id, run_id, 1, REACHED)
        store.close_recurrence(spec.job_id, run_id)
    return opened


def test_a_tick_before_the_period_has_passed_is_told_when_the_next_is_due(store, clock):
    assert recur(store, "first").granted
    clock.move(days=6)
    refused = store.open_recurrence(WEEKLY, "early")
    assert not refused.granted and (refused.number, refused.slots, refused.data_epoch) == (0, (), "")
    assert "period (period_s) is 7 d" in refused.why and "due 2026-01-08 00:00 UTC" in refused.why
    assert "signal-drift job" in refused.why
    assert store.job("job").next_due_at == clock.now + timedelta(days=1)
    clock.move(days=1)
    assert recur(store, "second").number == 2


@pytest.mark.parametrize(
    ("period_s", "early_s", "granted"),
    [
        (DAY_S, 299, True),
        (DAY_S, 301, False),
        (3600.0, 179, True),
        (3600.0, 181, False),
        (60.0, 3, True),
        (60.0, 4, False),
    ],
)
def test_a_tick_may_come_a_little_early_since_pods_do_not_start_to_the_second(store, clock, period_s, early_s, granted):
    spec = dataclasses.replace(WEEKLY, period_s=period_s)
    recur(store, "first", spec)
    clock.move(seconds=period_s - early_s)
    assert store.open_recurrence(spec, "second").granted is granted


def test_without_a_period_every_tick_starts(store):
    spec = dataclasses.replace(WEEKLY, period_s=0.0)
    assert [recur(store, f"run-{n}", spec).granted for n in range(3)] == [True] * 3
    assert store.job("job").next_due_at is None


def test_a_period_may_be_given_changed_and_taken_away_at_any_time(store, clock):
    none = dataclasses.replace(WEEKLY, period_s=0.0)
    recur(store, "first", none)
    clock.move(days=2)
    assert not store.open_recurrence(WEEKLY, "weekly").granted
    assert store.job("job").spec.period_s == 7 * DAY_S
    assert store.open_recurrence(dataclasses.replace(WEEKLY, period_s=DAY_S), "daily").granted


def test_the_period_counts_from_the_opening_and_not_from_the_end(store, clock):
    store.open_recurrence(WEEKLY, "slow")
    clock.move(days=7)
    assert store.open_recurrence(WEEKLY, "next").granted


def test_a_period_that_has_passed_still_needs_a_slot(store, clock):
    spec = dataclasses.replace(WEEKLY, max_concurrent_recurrences=1, max_step_time_s=30 * DAY_S)
    store.open_recurrence(spec, "slow")
    clock.move(days=8)
    refused = store.open_recurrence(spec, "next")
    assert not refused.granted and "max_concurrent_recurrences allows (1)" in refused.why
    store.close_recurrence("job", "slow")
    assert store.open_recurrence(spec, "next").granted


def test_a_completed_job_says_so_and_not_that_it_is_not_due(store):
    spec = dataclasses.replace(WEEKLY, num_recurrences=1)
    recur(store, "only", spec)
    assert "has had its 1 recurrences" in store.open_recurrence(spec, "next").why


def test_drift_starts_one_recurrence_before_the_period_and_a_new_period(store, clock):
    recur(store, "first")
    clock.move(days=1)
    drift = store.signal_drift("job", "accuracy fell", value=0.7)
    assert store.signal_drift("job", "accuracy fell", value=0.6) == drift
    store.signal_drift("job", "schema changed")
    opened = recur(store, "second")
    assert opened.granted and opened.why == (
        "recurrence 2 of job job. Drift was signalled: accuracy fell; schema changed"
    )
    assert store.recurrence("job", "second").why == opened.why
    assert [(d.reason, d.value, d.recurrence_number) for d in store.drifts("job")] == [
        ("accuracy fell", 0.7, 2), ("schema changed", None, 2)
    ]  # fmt: skip
    assert not store.open_recurrence(WEEKLY, "third").granted
    assert store.job("job").next_due_at == clock.now + timedelta(days=7)


def test_drift_without_a_free_slot_waits_for_one(store, clock):
    spec = dataclasses.replace(WEEKLY, max_concurrent_recurrences=1)
    store.open_recurrence(spec, "first")
    store.signal_drift("job", "accuracy fell")
    assert "max_concurrent_recurrences" in store.open_recurrence(spec, "second").why
    assert [d.recurrence_number for d in store.drifts("job")] == [None]
    store.close_recurrence("job", "first")
    assert store.open_recurrence(spec, "third").granted


def test_the_same_drift_may_come_again_once_a_recurrence_has_taken_it(store):
    recur(store, "first")
    for number in (2, 3):
        store.signal_drift("job", "accuracy fell")
        assert recur(store, f"run-{number}").number == number
    assert [d.recurrence_number for d in store.drifts("job")] == [2, 3]


def test_an_opening_repeated_takes_no_second_drift(store):
    recur(store, "first")
    store.signal_drift("job", "accuracy fell")
    opened = store.open_recurrence(WEEKLY, "second")
    store.signal_drift("job", "it fell further")
    assert store.open_recurrence(WEEKLY, "second") == opened
    assert [d.recurrence_number for d in store.drifts("job")] == [2, None]


def test_one_drift_starts_one_of_many_runs_that_come_at_once(store_url, clock):
    with StateStore(store_url, clock=clock) as store:
        recur(store, "first", dataclasses.replace(WEEKLY, max_concurrent_recurrences=100))
        store.signal_drift("job", "accuracy fell")
    spec, granted = dataclasses.replace(WEEKLY, max_concurrent_recurrences=100), []

    def tick(number):
        with StateStore(store_url, clock=clock) as own:
            granted.append(own.open_recurrence(spec, f"run-{number}").granted)

    threads = [threading.Thread(target=tick, args=(n,)) for n in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(granted) == [False] * 7 + [True]


@pytest.mark.parametrize("reason", ["", "x" * 256, "a\0b", 3, None, "\ud800"])
def test_a_reason_that_no_database_keeps_is_refused(store, reason):
    recur(store, "first")
    with pytest.raises(InvalidValueError, match="reason"):
        store.signal_drift("job", reason)
    assert store.drifts("job") == ()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "0.7", True])
def test_a_value_that_is_no_number_is_refused(store, value):
    recur(store, "first")
    with pytest.raises(InvalidValueError, match="value"):
        store.signal_drift("job", "accuracy fell", value=value)


def test_drift_of_a_job_that_no_recurrence_has_registered_is_refused(store):
    with pytest.raises(UnknownJobError, match="'nobody'"):
        store.signal_drift("nobody", "accuracy fell")


def test_a_new_data_version_is_drift_and_an_unstated_one_is_the_last(store):
    assert recur(store, "first", data_version="v1").data_epoch == "v1-0"
    assert not store.open_recurrence(WEEKLY, "same", data_version="v1").granted
    assert not store.open_recurrence(WEEKLY, "unstated").granted
    opened = recur(store, "second", data_version="v2")
    assert (opened.number, opened.data_epoch) == (2, "v2-0") and "data_version is now 'v2'" in opened.why
    assert [(d.reason, d.recurrence_number) for d in store.drifts("job")] == [("data_version is now 'v2'", 2)]
    store.signal_drift("job", "by hand")
    assert recur(store, "third").data_epoch == "v2-0"


@pytest.mark.parametrize(
    ("back", "days"), [(timedelta(seconds=1), 7), (timedelta(days=1), 8), (timedelta(days=6), 13), (timedelta(4000), 7)]
)
def test_a_clock_that_goes_back_neither_starts_twice_nor_blocks_for_two_periods(store, clock, back, days):
    recur(store, "first")
    clock.now -= back
    waited = 0
    while not store.open_recurrence(WEEKLY, f"tick-{waited}").granted:
        clock.move(days=1)
        waited += 1
    assert waited == days


def test_a_recurrence_that_died_before_the_clock_went_back_is_closed_after_one_lease(store, clock):
    spec = dataclasses.replace(WEEKLY, period_s=0.0, max_concurrent_recurrences=1)
    store.open_recurrence(spec, "dead")
    store.suggest("job", "dead", 1)
    clock.move(days=-400)
    assert not store.open_recurrence(spec, "second").granted
    clock.move(seconds=3600 + 601)
    assert store.open_recurrence(spec, "third").granted
    assert store.recurrence("job", "dead").state is RecurrenceState.EXPIRED
    assert store.trials("job")[0].state is TrialState.EXPIRED


def test_a_clock_that_is_put_right_again_starts_nothing_early_and_ends_nothing_alive(store, clock):
    spec = dataclasses.replace(WEEKLY, max_concurrent_recurrences=1)
    store.open_recurrence(spec, "alive")
    store.suggest("job", "alive", 1)
    clock.move(days=-400)
    assert "is not due" in store.open_recurrence(spec, "behind").why
    clock.move(days=400, minutes=30)
    assert "is not due" in store.open_recurrence(spec, "right-again").why
    assert store.report("job", "alive", 1, REACHED).state is TrialState.REACHED
    assert store.close_recurrence("job", "alive").state is RecurrenceState.REACHED
    clock.move(days=6, hours=23, minutes=30)
    assert store.open_recurrence(spec, "next").granted


def test_a_clock_that_was_ahead_for_a_while_starts_once_and_then_keeps_the_period(store, clock):
    recur(store, "first")
    clock.move(days=400)
    assert recur(store, "ahead").granted
    clock.move(days=-400)
    assert not store.open_recurrence(WEEKLY, "at-once").granted
    clock.move(days=7)
    assert recur(store, "third").granted
    clock.move(days=6)
    assert not store.open_recurrence(WEEKLY, "early").granted
    clock.move(days=1)
    assert recur(store, "fourth").granted


def test_a_report_from_before_the_clock_went_back_holds_a_slot_for_one_lease(store, clock):
    spec = dataclasses.replace(WEEKLY, period_s=0.0, max_concurrent_recurrences=1)
    store.open_recurrence(spec, "dead")
    store.suggest("job", "dead", 1)
    clock.move(days=400)
    store.report("job", "dead", 1, NOT_REACHED)
    clock.move(days=-399)
    assert not store.open_recurrence(spec, "at-once").granted
    clock.move(seconds=3600 + 601)
    assert store.open_recurrence(spec, "next").granted


def test_a_lease_is_as_long_on_the_night_when_summer_time_begins(store, clock):
    clock.now = datetime(2026, 3, 29, 1, 59, tzinfo=ZoneInfo("Europe/Berlin"))
    store.open_recurrence(WEEKLY, "run")
    store.suggest("job", "run", 1)
    (trial,) = store.trials("job")
    assert trial.lease_expires_at - trial.issued_at == timedelta(seconds=WEEKLY.max_trial_time_s, minutes=10)


def of_user(job_id, user="ann", cap=2, **knobs):
    return dataclasses.replace(
        WEEKLY, job_id=job_id, user=user, period_s=0.0, max_concurrent_recurrences_per_user=cap, **knobs
    )


def test_the_recurrences_of_all_jobs_of_a_user_share_their_slots(store):
    assert store.open_recurrence(of_user("a"), "run-a").granted
    assert store.open_recurrence(of_user("b", user="bob"), "run-bob").granted
    assert store.open_recurrence(of_user("b2"), "run-b").granted
    refused = store.open_recurrence(of_user("c"), "run-c")
    assert not refused.granted and "user 'ann' has 2 recurrences running" in refused.why
    assert "max_concurrent_recurrences_per_user of job c allows 2" in refused.why
    assert "recurrence 1 of a" in refused.why and "bob" not in refused.why
    assert store.open_recurrence(of_user("d", cap=0), "run-d").granted
    store.close_recurrence("a", "run-a")
    store.close_recurrence("d", "run-d")
    assert store.open_recurrence(of_user("c"), "run-c").granted


def test_a_dead_recurrence_of_another_job_holds_no_slot_of_its_user(store, clock):
    store.open_recurrence(of_user("dead", cap=1), "run")
    assert not store.open_recurrence(of_user("next", cap=1), "run").granted
    clock.move(seconds=3600 + 601)
    assert store.open_recurrence(of_user("next", cap=1), "run").granted


def test_jobs_of_a_user_that_start_at_once_do_not_exceed_the_cap(store_url, clock):
    with StateStore(store_url, clock=clock) as store:
        store.upgrade()
    granted = []

    def tick(number):
        with StateStore(store_url, clock=clock) as own:
            granted.append(own.open_recurrence(of_user(f"job-{number}"), "run").granted)

    threads = [threading.Thread(target=tick, args=(n,)) for n in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(granted) == [False] * 6 + [True] * 2


@pytest.mark.parametrize(
    ("knob", "value", "named"),
    [
        ("period_s", 1.0, "0 or at least 60 s, not 1.0: each start costs"),
        ("period_s", -1.0, "period_s"),
        ("period_s", float("nan"), "period_s"),
        ("period_s", float("inf"), "period_s"),
        ("period_s", "weekly", "period_s"),
        ("max_concurrent_recurrences", 1001, "at most 1000, not 1001: .*accelerator"),
        ("max_concurrent_recurrences", 0, "without a cap"),
        ("max_concurrent_recurrences", 2.0, "integer"),
        ("max_concurrent_recurrences_per_user", -1, "max_concurrent_recurrences_per_user"),
        ("preprocess_every", -2, "preprocess_every"),
        ("preprocess_every", 1.5, "preprocess_every"),
    ],
)
def test_a_job_that_would_explode_or_make_no_sense_is_refused_with_the_reason(knob, value, named):
    with pytest.raises(InvalidValueError, match=named):
        dataclasses.replace(WEEKLY, **{knob: value})


def close_by_hand(store, clock):
    store.close_recurrence("job", "died")


def let_lease_pass(store, clock):
    clock.move(hours=2)


# While it holds its drift, the same comes again and waits in its own right.
@pytest.mark.parametrize(("end", "takers"), [(close_by_hand, {3}), (let_lease_pass, {2, 3})])
def test_what_a_recurrence_that_never_trained_took_starts_the_next_run(store, clock, end, takers):
    recur(store, "first", data_version="v1")
    began_at = clock.now
    clock.move(days=1)
    store.signal_drift("job", "accuracy fell")
    assert store.open_recurrence(WEEKLY, "died", data_version="v2").number == 2
    end(store, clock)
    store.signal_drift("job", "accuracy fell")
    opened = store.open_recurrence(WEEKLY, "second", data_version="v2")
    assert (opened.number, opened.data_epoch) == (3, "v2-0")
    _, _, reasons = opened.why.partition("Drift was signalled: ")
    assert sorted(reasons.split("; ")) == ["accuracy fell", "data_version is now 'v2'"]
    assert {drift.recurrence_number for drift in store.drifts("job")} == takers
    store.close_recurrence("job", "second")
    assert store.job("job").next_due_at == began_at + timedelta(days=7)


def test_a_recurrence_that_trained_keeps_what_it_took_though_it_died(store, clock):
    recur(store, "first")
    store.signal_drift("job", "accuracy fell")
    store.open_recurrence(WEEKLY, "died")
    store.suggest("job", "died", 1)
    clock.move(hours=3)
    assert "not due" in store.open_recurrence(WEEKLY, "next").why
    assert store.recurrence("job", "died").state == RecurrenceState.EXPIRED


def test_the_period_is_that_of_the_latest_recurrence_that_trains_whichever_dies_first(store, clock):
    began_at = clock.now
    recur(store, "first")
    for run in "abc":
        clock.move(minutes=1)
        store.open_recurrence(dataclasses.replace(WEEKLY, max_concurrent_recurrences=3), run, start_now=True)
    for run, minutes in (("b", 3), ("c", 1), ("a", 0)):
        store.close_recurrence("job", run)
        assert store.job("job").next_due_at == began_at + timedelta(days=7, minutes=minutes)


def test_recurrences_that_never_trained_are_not_among_those_that_a_job_may_have(store):
    spec = dataclasses.replace(WEEKLY, period_s=0.0, num_recurrences=2)
    for number, run in enumerate("abc", start=1):
        assert store.open_recurrence(spec, run).number == number
        store.close_recurrence("job", run)
    assert [recur(store, run, spec).granted for run in "def"] == [True, True, False]
    assert store.job("job").phase == "completed"
    store.reopen_job("job")
    assert [recur(store, run, spec).granted for run in "ghi"] == [True, True, False]


def test_recurrences_under_way_are_among_those_that_a_job_may_have(store):
    spec = dataclasses.replace(WEEKLY, period_s=0.0, num_recurrences=2, max_concurrent_recurrences=5)
    assert [store.open_recurrence(spec, run).granted for run in "abc"] == [True, True, False]
    store.close_recurrence("job", "a")
    assert store.job("job").phase == "running"
    assert store.open_recurrence(spec, "d").granted


def test_a_job_whose_preprocessing_is_broken_tries_again_at_pauses_that_double_up_to_its_period(store, clock):
    recur(store, "first")
    began_at = clock.now + timedelta(days=7)
    tries = []
    for tick in range(6 * 24 * 28):
        clock.now = began_at + timedelta(minutes=10 * tick)
        opened = store.open_recurrence(WEEKLY, f"tick {tick}")
        if opened.granted:
            tries.append(10 * tick)
            store.close_recurrence("job", f"tick {tick}")
    assert tries == [0, *(10 * 2**n for n in range(11)), 10 * 2**10 + 7 * 24 * 60, 10 * 2**10 + 14 * 24 * 60]
    assert "its latest 14 recurrences ended before their first trial: it tries again from " in opened.why
    assert store.open_recurrence(WEEKLY, "now", start_now=True).granted
    store.suggest("job", "now", 1)
    store.close_recurrence("job", "now")
    clock.move(days=7)
    assert store.open_recurrence(WEEKLY, "mended").granted


def test_a_clock_that_went_back_ends_the_wait_of_a_job_that_tries_again(store, clock):
    began_at = clock.now
    for day in range(1, 4):
        clock.now = began_at + timedelta(days=day)
        assert store.open_recurrence(WEEKLY, f"day {day}").granted
        store.close_recurrence("job", f"day {day}")
    assert not store.open_recurrence(WEEKLY, "too early").granted
    clock.now = began_at
    assert store.open_recurrence(WEEKLY, "now").granted


def test_after_the_clock_went_back_a_job_tries_again_at_pauses_that_double_all_the_same(store, clock):
    began_at = clock.now
    for day in (400, 401):
        clock.now = began_at + timedelta(days=day)
        store.open_recurrence(WEEKLY, f"ahead {day}")
        store.close_recurrence("job", f"ahead {day}")
    tries = []
    for hour in range(20):
        clock.now = began_at + timedelta(hours=hour)
        if store.open_recurrence(WEEKLY, f"hour {hour}").granted:
            tries.append(hour)
            store.close_recurrence("job", f"hour {hour}")
    assert tries == [0, 1, 2, 4, 8, 16]
