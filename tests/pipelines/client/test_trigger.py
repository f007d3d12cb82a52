"""Triggers: intervals, bounds, and schedules that would flood a cluster."""

from datetime import UTC, datetime, timedelta

import pytest

from zeus_kfp.pipelines.client.trigger import Trigger, rfc3339, seconds_of
from zeus_kfp.zeus_core.errors import InvalidValueError

NOON = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("every", "seconds"),
    [
        ("90s", 90),
        ("30m", 1800),
        ("6h", 21_600),
        ("1d12h", 129_600),
        ("1w", 604_800),
        (60, 60),
        (timedelta(hours=1), 3600),
    ],
)
def test_intervals_are_read(every, seconds):
    assert seconds_of(every) == seconds


@pytest.mark.parametrize(
    "every",
    ["", "6", "h", "0m", "1.5h", "-1h", "6 h", "1y", "9" * 11 + "s", 0, -5, 2.5, True, float("nan"), timedelta(0), [6]],
)
def test_what_is_no_interval_is_refused(every):
    with pytest.raises(InvalidValueError, match="interval"):
        seconds_of(every)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "cron expression or an interval"),
        ({"cron": "0 0 3 * * *", "every": "6h"}, "not both"),
        ({"every": "6h", "start": "2027-01-01"}, "no time zone"),
        ({"every": "6h", "start": "soon"}, "'soon' is no time"),
        ({"every": "6h", "start": 5}, "5 is no time"),
        ({"every": "6h", "start": "9999-12-31T00:00:00Z"}, "must lie in the years 1970 to 2999"),
        ({"cron": "0 0 3 * * *", "end": "0001-01-01T00:00:00Z"}, "must lie in the years 1970 to 2999"),
        ({"every": "6h", "start": "2027-01-02T00:00:00Z", "end": "2027-01-01T00:00:00Z"}, "not after the start"),
    ],
)
def test_what_is_no_trigger_is_refused(given, says):
    with pytest.raises(InvalidValueError, match=says):
        Trigger.of(**given)


@pytest.mark.parametrize(
    "given",
    [
        {"every": 1},
        {"every": "59s"},
        {"cron": "* * * * * *"},
        {"cron": "* 0 3 * * *"},
        {"cron": "0,30 * * * * *"},
        {"every": 1, "end": "2026-12-01T13:00:00Z"},
    ],
)
def test_a_schedule_that_would_flood_the_cluster_is_refused_with_the_reason(given):
    with pytest.raises(InvalidValueError, match="would start runs .* each some seven pods"):
        Trigger.of(**given).check_rate(NOON)


@pytest.mark.parametrize(
    "given",
    [
        {"every": "1m"},
        {"cron": "0 * * * * *"},
        {"cron": "0,30 0 3 * * *"},
        {"cron": "0,30 */2 * * * *"},
        {"every": 1, "end": "2026-12-01T12:10:00Z"},
    ],
)
def test_a_schedule_once_a_minute_or_with_a_near_end_is_allowed(given):
    Trigger.of(**given).check_rate(NOON)


def test_a_schedule_that_is_over_before_it_begins_is_refused():
    with pytest.raises(InvalidValueError, match="is past"):
        Trigger.of(every="1d", end="2026-11-30T00:00:00Z").check_rate(NOON)


@pytest.mark.parametrize("given", [{"every": "1w"}, {"cron": "0 0 3 31 * *"}])
def test_a_schedule_whose_end_comes_before_its_first_run_is_refused(given):
    with pytest.raises(InvalidValueError, match="comes before the first run"):
        Trigger.of(**given, end="2026-12-04T00:00:00Z").check_rate(NOON)


@pytest.mark.parametrize(
    ("given", "next_run"),
    [
        ({"every": "6h"}, "2026-12-01T16:00:00Z"),
        ({"every": "6h", "start": "2026-12-03T01:00:00Z"}, "2026-12-03T07:00:00Z"),
        ({"cron": "0 0 3 * * *", "start": "2026-12-05T12:00:00+01:00"}, "2026-12-06T03:00:00Z"),
        ({"cron": "0 0 3 * * *", "end": "2026-12-02T02:00:00Z"}, None),
    ],
)
def test_the_next_run_is_known(given, next_run):
    time = Trigger.of(**given).next_after(NOON, created=NOON - timedelta(hours=2))
    assert (time and time.isoformat().replace("+00:00", "Z")) == next_run


def test_a_trigger_is_told_in_words_with_its_bounds():
    trigger = Trigger.of(every="1d12h", start="2027-01-01T01:00:00+01:00", end="2028-01-01T00:00:00Z")
    assert trigger.in_words(NOON) == "Every 1 d 12 h, from 2027-01-01T00:00:00Z, until 2028-01-01T00:00:00Z"
    assert trigger.api_arguments == {
        "interval_second": 129_600,
        "start_time": "2027-01-01T00:00:00Z",
        "end_time": "2028-01-01T00:00:00Z",
    }


def test_a_start_that_is_past_is_told_no_longer():
    assert Trigger.of(every="6h", start="2026-12-01T02:00:00Z").in_words(NOON) == "Every 6 h"


@pytest.mark.parametrize(
    ("given", "begin", "start"),
    [
        ({"every": "6h"}, None, None),
        ({"every": "6h"}, "2026-11-30T02:00:00Z", "2026-12-01T08:00:00Z"),
        ({"every": "6h"}, "2026-12-01T12:00:00Z", "2026-12-01T12:00:00Z"),
        ({"every": "6h"}, "2026-12-03T01:00:00Z", "2026-12-01T07:00:00Z"),
        ({"every": "6h", "start": "2020-01-01T00:30:00Z"}, "2026-11-30T02:00:00Z", "2026-12-01T06:30:00Z"),
        ({"every": "6h", "start": "2026-12-01T13:00:00Z"}, "2026-11-30T02:00:00Z", "2026-12-01T13:00:00Z"),
        ({"cron": "0 0 3 * * *", "start": "2026-12-05T00:00:00Z"}, None, "2026-12-05T00:00:00Z"),
        ({"cron": "0 0 3 * * *", "start": "2026-11-05T00:00:00Z"}, "2026-11-30T02:00:00Z", None),
    ],
)
def test_a_trigger_is_sent_so_that_nothing_past_is_started_and_an_interval_keeps_its_phase(given, begin, start):
    sent = Trigger.of(**given).as_sent(NOON, begin and datetime.fromisoformat(begin))
    assert (sent.start and rfc3339(sent.start)) == start


@pytest.mark.parametrize(
    ("given", "other", "same"),
    [
        ({"every": "6h"}, {"every": "6h", "start": "2026-12-01T08:00:00Z"}, True),
        ({"every": "6h", "start": "2020-01-01T02:00:00Z"}, {"every": "6h", "start": "2026-12-01T08:00:00Z"}, True),
        ({"every": "6h", "start": "2020-01-01T03:00:00Z"}, {"every": "6h", "start": "2026-12-01T08:00:00Z"}, False),
        ({"every": "6h"}, {"every": "6h", "start": "2026-12-02T08:00:00Z"}, False),
        ({"every": "6h"}, {"every": "8h"}, False),
        ({"cron": "0 0 3 * * *", "start": "2020-01-01T02:00:00Z"}, {"cron": "0  0 3 * * *"}, True),
        ({"cron": "0 0 3 * * *"}, {"cron": "0 0 3 * * *", "end": "2027-12-01T00:00:00Z"}, False),
    ],
)
def test_triggers_that_start_the_same_runs_are_known(given, other, same):
    assert Trigger.of(**given).means(Trigger.of(**other), NOON) is same


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cron": "0 0 3 * * *"}, "At 03:00, every day (UTC), from 2027-01-01T00:00:00Z, until 2028-01-01T00:00:00Z"),
        ({"start": "2027-06-01T00:00:00Z"}, "Every 6 h, from 2027-06-01T00:00:00Z, until 2028-01-01T00:00:00Z"),
        ({"end": "none"}, "Every 6 h, from 2027-01-01T00:00:00Z"),
        ({"start": "none", "every": "8h"}, "Every 8 h, until 2028-01-01T00:00:00Z"),
    ],
)
def test_a_change_leaves_what_it_does_not_name(change, words):
    held = Trigger.of(every="6h", start="2027-01-01T00:00:00Z", end="2028-01-01T00:00:00Z")
    assert held.changed(**change).in_words(NOON) == words
