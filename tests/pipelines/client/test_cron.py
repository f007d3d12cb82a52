"""Cron expressions mean here what KFP's scheduler takes them for, and everything else is refused with the way out."""

from datetime import UTC, datetime, timedelta

import pytest
from croniter import croniter
from hypothesis import given
from hypothesis import strategies as st

from zeus_kfp.pipelines.client.cron import CronExpression
from zeus_kfp.zeus_core.errors import InvalidValueError

NOON = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)  # a Tuesday


def fires(text, count=3, after=NOON):
    times = []
    for _ in range(count):
        after = CronExpression.parse(text).next_after(after)
        times.append(after.strftime("%m-%d %H:%M:%S"))
    return times


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("0 0 3 * * *", ["12-02 03:00:00", "12-03 03:00:00", "12-04 03:00:00"]),
        ("30 0 12 * * *", ["12-01 12:00:30", "12-02 12:00:30", "12-03 12:00:30"]),
        ("0 0 12 * * *", ["12-02 12:00:00", "12-03 12:00:00", "12-04 12:00:00"]),
        ("0 */20 12 * * *", ["12-01 12:20:00", "12-01 12:40:00", "12-02 12:00:00"]),
        ("0 50/5 12 * * *", ["12-01 12:50:00", "12-01 12:55:00", "12-02 12:50:00"]),
        ("0 0 0 ? * MON-wed", ["12-02 00:00:00", "12-07 00:00:00", "12-08 00:00:00"]),
        ("0 0 0 13 * 5", ["12-04 00:00:00", "12-11 00:00:00", "12-13 00:00:00"]),
        ("0 0 0 */2 * 1", ["12-07 00:00:00", "12-21 00:00:00", "01-11 00:00:00"]),
        ("0 0 0 29 2 *", ["02-29 00:00:00", "02-29 00:00:00", "02-29 00:00:00"]),
        ("5,10 0 0 1 jan,Jul *", ["01-01 00:00:05", "01-01 00:00:10", "07-01 00:00:05"]),
    ],
)
def test_an_expression_fires_when_the_scheduler_would(text, times):
    assert fires(text) == times


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0 3 * * *", "'0 0 3 \\* \\* \\*' is what it means elsewhere"),
        ("@daily", "write '0 0 0 \\* \\* \\*' instead"),
        ("", "has 0"),
        ("0 0 3 * * * 2027", "has 7"),
        ("60 * * * * *", "60 is outside 0 to 59"),
        ("0 0 24 * * *", "hour field '24'.*24 is outside 0 to 23"),
        ("0 0 0 0 * *", "0 is outside 1 to 31"),
        ("0 0 0 * * 7", "Sunday is 0"),
        ("0 0 0 * 13 *", "13 is outside 1 to 12"),
        ("0 0 22-2 * * *", "runs backwards"),
        ("0 */0 * * * *", "0 is outside 1"),
        ("0 0 0 L * *", "'L' is no number"),
        ("0 0 0 * * MON#2", "no number"),
        ("0 0 0 * * funday", "none of"),
        ("0 -5 * * * *", "'' is no number"),
        ("0 ,5 * * * *", "'' is no number"),
        ("0 ٣ * * * *", "no number"),
        ("0 1.5 * * * *", "no number"),
        ("0 0 0 30 2 *", "never fires"),
        ("@every 1h", "six fields"),
        (None, "must be text"),
        (5, "must be text"),
    ],
)
def test_what_the_scheduler_refuses_or_misreads_is_an_error_that_says_what_to_write(text, says):
    with pytest.raises(InvalidValueError, match=says):
        CronExpression.parse(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0 0 3 * * *", "At 03:00, every day (UTC)"),
        ("0  */15 * * * *", "Every 15 minutes, every day (UTC)"),
        ("0 */40 * * * *", "At minutes 0 and 40 of every hour, every day (UTC)"),
        ("0 5/15 8-10 * * *", "Every 15 minutes from minute 5 of hours 8 to 10, every day (UTC)"),
        ("0 0 */7 * * *", "At 00:00, 07:00, 14:00 and 21:00, every day (UTC)"),
        ("0 0 * * * *", "At minute 0 of every hour, every day (UTC)"),
        ("*/30 * * * * *", "Every 30 seconds, every day (UTC)"),
        ("0,30 0 3 * * *", "At 03:00:00 and 03:00:30, every day (UTC)"),
        ("0 30 2 * * MON-FRI", "At 02:30, on Monday to Friday (UTC)"),
        ("0 30 2 1,15 * *", "At 02:30, on days 1 and 15 of the month (UTC)"),
        ("0 0 0 13 * 5", "At 00:00, on day 13 of the month or on Friday, whichever comes (UTC)"),
        ("0 0 0 1-31 * 5", "At 00:00, every day (UTC)"),
        ("0 0 0 1 1-3,7 *", "At 00:00, on day 1 of the month, in January to March and July (UTC)"),
        (
            "0 0 0 */9 * 1,3",
            "At 00:00, on days 1, 10, 19 and 28 of the month, but only if that is a Monday or Wednesday (UTC)",
        ),
    ],
)
def test_an_expression_is_told_in_words(text, words):
    assert CronExpression.parse(text).in_words() == words


@pytest.mark.parametrize(
    ("text", "gap_s"), [("0 * * * * *", 60), ("* * * * * *", 1), ("*/15 * * * * *", 15), ("0,50 0 3 * * *", 50)]
)
def test_the_shortest_gap_within_a_minute_is_known(text, gap_s):
    assert CronExpression.parse(text).gap_s == gap_s


def field(low, high):
    number = st.integers(low, high)
    span = st.tuples(st.integers(low, high - 1), number).map(lambda p: f"{p[0]}-{max(p[0] + 1, p[1])}")
    stepped = st.tuples(span, st.integers(1, high)).map(lambda p: f"{p[0]}/{p[1]}")
    listed = st.lists(st.one_of(number.map(str), span, stepped), min_size=1, max_size=3)
    return st.one_of(st.just("*"), listed.map(",".join))


# croniter takes a span of all days, and one of Sunday alone, for a star; the scheduler does not, and the table above
# has such days.
@given(
    parts=st.tuples(field(0, 59), field(0, 59), field(0, 23), field(1, 28), field(1, 12), field(1, 6)),
    after=st.datetimes(datetime(2024, 1, 1), datetime(2030, 1, 1)).map(lambda t: t.replace(microsecond=0, tzinfo=UTC)),
)
def test_it_fires_when_an_independent_implementation_says(parts, after):
    text = " ".join(parts)
    expected = croniter(text, after, second_at_beginning=True).get_next(datetime)
    assert CronExpression.parse(text).next_after(after) == expected


def test_daylight_saving_neither_skips_nor_doubles_a_night():
    times, after = [], datetime(2026, 3, 1, tzinfo=UTC)
    for _ in range(365):
        after = CronExpression.parse("0 30 2 * * *").next_after(after)
        times.append(after)
    assert {b - a for a, b in zip(times, times[1:], strict=False)} == {timedelta(days=1)}
