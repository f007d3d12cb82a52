"""A cron expression in English, told from the values that its fields allow and not from how they were written.

So a step that does not divide its range is told by its values: ``*/40`` minutes are "minutes 0 and 40", since the
scheduler begins anew with each hour. And two fields for the day are told as KFP's scheduler takes them: either fits
where both name days, and both must fit where one of them begins with a star.
"""

from collections.abc import Set
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zeus_kfp.pipelines.client.cron import CronExpression

_MOST_TIMES = 6
"""Times of the day that are told one by one."""

_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip


def in_words(expression: "CronExpression") -> str:
    """Return what an expression means."""
    count = len(expression.seconds) * len(expression.minutes) * len(expression.hours)
    time = _times(expression) if count <= _MOST_TIMES else _rhythm(expression)
    return f"{time}, {_days(expression)}{_months(expression.months)} (UTC)"


def _times(expression: "CronExpression") -> str:
    shows_seconds = expression.seconds != {0}
    times = [
        f"{hour:02}:{minute:02}" + (f":{second:02}" if shows_seconds else "")
        for hour in sorted(expression.hours)
        for minute in sorted(expression.minutes)
        for second in sorted(expression.seconds)
    ]
    return f"At {_listed(times)}"


def _rhythm(expression: "CronExpression") -> str:
    parts = [] if expression.seconds == {0} else [_values(expression.seconds, 60, "second")]
    if len(expression.minutes) < 60 or not parts:
        parts.append(_values(expression.minutes, 60, "minute"))
    if len(expression.hours) < 24 or not parts[-1].startswith("every"):
        parts.append(_values(expression.hours, 24, "hour"))
    words = " of ".join(parts)
    return words[0].upper() + words[1:] if words.startswith("every") else f"At {words}"


def _values(values: Set[int], period: int, unit: str) -> str:
    """Return the values of a field that begins with 0."""
    found = sorted(values)
    step = period // len(found)
    if found == list(range(found[0], period, step)) and step * len(found) == period and step < period:
        rhythm = f"every {unit}" if step == 1 else f"every {step} {unit}s"
        return rhythm + (f" from {unit} {found[0]}" if found[0] else "")
    return f"{unit}{'s' if len(found) > 1 else ''} {_listed(_ranges(found, [str(n) for n in range(period)]))}"


def _days(expression: "CronExpression") -> str:
    every_number, every_weekday = len(expression.days) == 31, len(expression.weekdays) == 7
    by_number, by_weekday = _by_number(expression.days), _by_weekday(expression.weekdays)
    if expression.any_of_days:
        return "every day" if every_number or every_weekday else f"{by_number} or on {by_weekday}, whichever comes"
    if every_number:
        return "every day" if every_weekday else f"on {by_weekday}"
    return by_number if every_weekday else f"{by_number}, but only if that is a {by_weekday.replace(' and ', ' or ')}"


def _by_number(days: Set[int]) -> str:
    found = sorted(days)
    plural = "s" if len(found) > 1 else ""
    return f"on day{plural} {_listed(_ranges(found, [str(n) for n in range(32)]))} of the month"


def _by_weekday(weekdays: Set[int]) -> str:
    return _listed(_ranges(sorted(weekdays), _DAYS))


def _months(months: Set[int]) -> str:
    return "" if len(months) == 12 else f", in {_listed(_ranges(sorted(months), ('', *_MONTHS)))}"


def _ranges(values: list[int], names: list[str] | tuple[str, ...]) -> list[str]:
    """Return values by name, three and more that follow one another as a range."""
    words: list[str] = []
    while values:
        run = next((i for i in range(1, len(values)) if values[i] != values[0] + i), len(values))
        taken = run if run > 2 else 1
        words.append(names[values[0]] if taken == 1 else f"{names[values[0]]} to {names[values[taken - 1]]}")
        values = values[taken:]
    return words


def _listed(words: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
