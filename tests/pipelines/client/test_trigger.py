"""Triggers: intervals, bounds, and schedules that would flood a cluster."""

from datetime import UTC, datetime, timedelta

import pytest

from zeus_kfp.pipelines.client.trigger import Trigger, seconds_of
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
        {"cron": "0,30 0 3 * * *"},
        {"every": 1, "end": "2026-12-01T13:00:00Z"},
    ],
)
def test_a_schedule_that_would_flood_the_cluster_is_refused_with_the_reason(given):
    with pytest.raises(InvalidValueError, match="would start runs .* each some seven pods"):
        Trigger.of(**given).check_rate(NOON)


@pytest.mark.parametrize(
    "given", [{"every": "1m"}, {"cron": "0 * * * * *"}, {"every": 1, "end": "2026-12-01T12:10:00Z"}]
)
def test_a_schedule_once_a_minute_or_with_a_near_end_is_allowed(given):
    Trigger.of(**given).check_rate(NOON)


def test_a_schedule_that_is_over_before_it_begins_is_refused():
    with pytest.raises(InvalidValueError, match="is past"):
        Trigger.of(every="1d", end="2026-11-30T00:00:00Z").check_rate(NOON)


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
    assert trigger.in_words() == "Every 1 d 12 h, from 2027-01-01T00:00:00Z, until 2028-01-01T00:00:00Z"
    assert trigger.api_arguments == {
        "interval_second": 129_600,
        "start_time": "2027-01-01T00:00:00Z",
        "end_time": "2028-01-01T00:00:00Z",
    }
