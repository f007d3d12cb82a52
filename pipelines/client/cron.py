"""The cron expressions of KFP's recurring runs: six fields, seconds first.

    second (0-59)  minute (0-59)  hour (0-23)  day of month (1-31)  month (1-12)  day of week (0-6, Sunday is 0)

It is the dialect of the scheduler that KFP is built on, and stricter than most: Sunday is never 7, a range does not
wrap around, and there is no L, W or #. A five-field expression is not refused by KFP but read with its first field as
the seconds, so that "0 3 * * *" starts a run at the third minute of every hour; here it is an error.

Times are in UTC, as KFP's controller has them unless its own setting CRON_SCHEDULE_TIMEZONE says otherwise.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Self

from zeus_kfp.pipelines.client.cron_words import in_words
from zeus_kfp.zeus_core.errors import InvalidValueError

_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_DAYS = "sun mon tue wed thu fri sat".split()
_SHORTHANDS = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}
_HORIZON_DAYS = 8 * 366
"""Eight years hold a 29 February whatever the century."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    def values(self, text: str) -> frozenset[int]:
        """Return the values that a field of an expression allows."""
        return frozenset(value for part in text.split(",") for value in self._part(text, part))

    def _part(self, text: str, part: str) -> range:
        span, slash, step_text = part.partition("/")
        first, dash, last = span.partition("-")
        if first in ("*", "?") and not dash:
            low, high = self.low, self.high
        else:
            low = self._number(text, first)
            high = self._number(text, last) if dash else (self.high if slash else low)
        step = self._number(text, step_text, at_least=1, at_most=None) if slash else 1
        if low > high:
            raise self._wrong(text, f"the range {span!r} runs backwards: write it as two, joined by a comma")
        return range(low, high + 1, step)

    def _number(self, text: str, word: str, at_least: int | None = None, at_most: int | None = -1) -> int:
        low = self.low if at_least is None else at_least
        high = self.high if at_most == -1 else at_most
        if word.lower() in self.names:
            return self.names.index(word.lower()) + self.low
        if not (word.isascii() and word.isdigit()):
            raise self._wrong(text, f"{word!r} is no number" + (f" and none of {self.names}" if self.names else ""))
        value = int(word)
        if value < low or (high is not None and value > high):
            sunday = "; Sunday is 0" if (self.name, value) == ("day of week", 7) else ""
            raise self._wrong(text, f"{value} is outside {low} to {high}{sunday}")
        return value

    def _wrong(self, text: str, why: str) -> InvalidValueError:
        return InvalidValueError(f"the {self.name} field {text!r} of the cron expression can't be read: {why}")


_FIELDS = (
    _Field("second", 0, 59),
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, tuple(_MONTHS)),
    _Field("day of week", 0, 6, tuple(_DAYS)),
)


@dataclass(frozen=True, slots=True)
class CronExpression:
    """A checked cron expression.

    Attributes:
        text: The expression, with single spaces.
        seconds: Seconds of the minute at which it fires; the other fields likewise.
        any_of_days: Whether a day fits by its number or by its day of the week, as where both are given.
    """

    text: str
    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_of_days: bool

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the expression that a text holds.

        Raises:
            InvalidValueError: If KFP would refuse it, or read it as something else than was meant.
        """
        if not isinstance(text, str):
            raise InvalidValueError(f"a cron expression must be text, not {text!r} ({type(text).__name__})")
        words = text.split()
        _check_shape(text, words)
        values = (field.values(word) for field, word in zip(_FIELDS, words, strict=True))
        seconds, minutes, hours, days, months, weekdays = values
        any_of_days = not any(part[0] in "*?" for word in (words[3], words[5]) for part in word.split(","))
        expression = cls(" ".join(words), seconds, minutes, hours, days, months, weekdays, any_of_days)
        if expression.next_after(datetime(2000, 1, 1, tzinfo=UTC)) is None:
            raise InvalidValueError(f"the cron expression {text!r} never fires: no month has such a day")
        return expression

    @property
    def gap_s(self) -> int:
        """Shortest time between two firings of one minute, in s; 60 where it fires once a minute at most."""
        seconds = sorted(self.seconds)
        return min([60, *(b - a for a, b in zip(seconds, seconds[1:], strict=False))])

    @property
    def most(self) -> tuple[int, int]:
        """How often it fires at most in an hour and in a minute."""
        return len(self.minutes) * len(self.seconds), len(self.seconds)

    def in_words(self) -> str:
        """Return what it means, in English."""
        return in_words(self)

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first time after a moment at which it fires, or None if there is none in eight years."""
        moment = moment.astimezone(UTC)
        for offset in range(_HORIZON_DAYS):
            day = moment.date() + timedelta(days=offset)
            if self._fits(day):
                for time in self._times(day, moment if offset == 0 else None):
                    return time
        return None

    def _fits(self, day: date) -> bool:
        by_number, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        fits = (by_number or by_weekday) if self.any_of_days else (by_number and by_weekday)
        return fits and day.month in self.months

    def _times(self, day: date, after: datetime | None) -> Iterator[datetime]:
        for hour in sorted(self.hours):
            if after is not None and hour < after.hour:
                continue
            for minute in sorted(self.minutes):
                for second in sorted(self.seconds):
                    time = datetime(day.year, day.month, day.day, hour, minute, second, tzinfo=UTC)
                    if after is None or time > after:
                        yield time


def _check_shape(text: str, words: list[str]) -> None:
    if text.strip() in _SHORTHANDS:
        raise InvalidValueError(f"write {_SHORTHANDS[text.strip()]!r} instead of {text.strip()!r}")
    if len(words) == 5:
        raise InvalidValueError(
            f"the cron expression {text!r} has five fields and KFP wants six, seconds first: "
            f"{'0 ' + ' '.join(words)!r} is what it means elsewhere"
        )
    if len(words) != 6:
        raise InvalidValueError(
            f"a cron expression has six fields (second minute hour day-of-month month day-of-week), such as "
            f"'0 0 3 * * *' for every night at three; {text!r} has {len(words)}"
        )
