"""When a schedule starts runs: by cron or at an interval, between a start and an end."""

import math
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from zeus_kfp.pipelines.client.cron import CronExpression
from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.validation import integer, integral

SHORTEST_GAP_S = 60
MOST_AN_HOUR = 60
MOST_A_MINUTE = 10
"""Runs of one minute, for which cron may name several seconds: KFP runs no more of them at once."""

MOST_RUNS = 1000
"""Runs that a schedule faster than once a minute may start until its end."""

NO_BOUND = "none"
"""Given as a start or an end, it takes away the one that a schedule has."""

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_YEARS = range(1970, 3000)
_LONGEST_S = 100 * 366 * 86_400


@dataclass(frozen=True, slots=True)
class Trigger:
    """When runs start.

    Attributes:
        cron: By the clock, or None.
        interval_s: At this interval in s, or None; one of the two is given.
        start: No run before it, or None.
        end: No run after it, or None.
    """

    cron: CronExpression | None = None
    interval_s: int | None = None
    start: datetime | None = None
    end: datetime | None = None

    def __post_init__(self) -> None:
        """Refuse what is no trigger.

        Raises:
            InvalidValueError: If not exactly one of cron and interval is given, a time has no zone, or the end is
                not after the start.
        """
        if (self.cron is None) == (self.interval_s is None):
            raise InvalidValueError("a schedule needs a cron expression or an interval, and not both")
        if self.interval_s is not None:
            integer("the interval in s", self.interval_s, at_least=1, at_most=_LONGEST_S)
        for name, time in (("start", self.start), ("end", self.end)):
            if time is not None and time.tzinfo is None:
                raise InvalidValueError(f"the {name} {time} has no time zone: give one, such as {time}Z for UTC")
            if time is not None and time.year not in _YEARS:
                raise InvalidValueError(f"the {name} {time} must lie in the years {_YEARS[0]} to {_YEARS[-1]}")
        if self.start and self.end and self.end <= self.start:
            raise InvalidValueError(f"the end {self.end} is not after the start {self.start}")

    @classmethod
    def of(
        cls,
        *,
        cron: str | None = None,
        every: str | int | timedelta | None = None,
        start: str | datetime | None = None,
        end: str | datetime | None = None,
    ) -> Self:
        """Return the trigger that a user describes.

        Args:
            cron: Six fields, seconds first, in UTC: "0 0 3 * * *" is every night at three.
            every: An interval: "30m", "6h", "1d", "1w", "1d12h", a timedelta, or seconds.
            start: ISO time with a zone, such as 2027-01-31T03:00:00Z.
            end: Likewise.

        Raises:
            InvalidValueError: If any of them can't be used.
        """
        return cls(
            cron=None if cron is None else CronExpression.parse(cron),
            interval_s=None if every is None else seconds_of(every),
            start=_time("start", start),
            end=_time("end", end),
        )

    @classmethod
    def of_api(cls, trigger: Any) -> Self:
        """Return the trigger that a V2beta1Trigger holds.

        Raises:
            InvalidValueError: If this library would not have made it.
        """
        held = trigger.cron_schedule or trigger.periodic_schedule
        # A time that was not given may come back as the year 1970.
        start, end = (t if t and t.year > 1970 else None for t in (held.start_time, held.end_time))
        if trigger.cron_schedule:
            return cls.of(cron=held.cron, start=start, end=end)
        return cls.of(every=int(held.interval_second), start=start, end=end)

    @property
    def api_arguments(self) -> dict[str, Any]:
        """What kfp.Client.create_recurring_run takes."""
        when = {"cron_expression": self.cron.text} if self.cron else {"interval_second": self.interval_s}
        bounds = {"start_time": self.start, "end_time": self.end}
        return when | {name: rfc3339(time) for name, time in bounds.items() if time is not None}

    def in_words(self, now: datetime | None = None) -> str:
        """Return what it means, in English; a start that is past at a moment is not told."""
        words = self.cron.in_words() if self.cron else f"Every {_duration(self.interval_s or 0)}"
        start = f", from {rfc3339(self.start)}" if self.start and (now is None or self.start > now) else ""
        return words + start + (f", until {rfc3339(self.end)}" if self.end else "")

    def changed(
        self,
        *,
        cron: str | None = None,
        every: str | int | timedelta | None = None,
        start: str | datetime | None = None,
        end: str | datetime | None = None,
    ) -> "Trigger":
        """Return it with what is given in place of what it has; "none" takes a start or an end away.

        Raises:
            InvalidValueError: If any of them can't be used.
        """
        held = self if cron is None and every is None else None
        return Trigger(
            cron=held.cron if held else None if cron is None else CronExpression.parse(cron),
            interval_s=held.interval_s if held else None if every is None else seconds_of(every),
            start=self.start if start is None else _time("start", start),
            end=self.end if end is None else _time("end", end),
        )

    def as_sent(self, now: datetime, begin: datetime | None) -> "Trigger":
        """Return it as KFP is given it, so that KFP starts nothing at once that lies in the past.

        KFP starts the latest run that was missed since a start that is past. And it counts an interval from the start
        or else from when the recurring run was made, so that one that is changed more often than it fires would never
        fire; so its start is sent as its latest time, and the next run comes one interval after that.

        Args:
            now: The present.
            begin: What the interval of the schedule so far counts from, or None where there is none.
        """
        if self.start and self.start > now:
            return self
        begin = self.start or begin
        if self.interval_s is None or begin is None:
            return replace(self, start=None)
        steps = math.floor((now - begin).total_seconds() / self.interval_s)
        return replace(self, start=begin + timedelta(seconds=steps * self.interval_s))

    def means(self, other: "Trigger", now: datetime) -> bool:
        """Whether another trigger starts the same runs from now on; one that names no start takes any phase."""
        if (self.cron, self.interval_s, self.end) != (other.cron, other.interval_s, other.end):
            return False
        starts = [time for time in (self.start, other.start) if time is not None]
        if self.interval_s and len(starts) == 2 and max(starts) <= now:
            return (starts[0] - starts[1]).total_seconds() % self.interval_s == 0
        return self.start == other.start or all(time <= now for time in starts)

    def next_after(self, now: datetime, created: datetime) -> datetime | None:
        """Return when the next run starts, or None after the end.

        Args:
            now: The present.
            created: When the schedule was made; an interval counts from there, or from its start.
        """
        begin = self.start or created
        if self.cron:
            time = self.cron.next_after(max(now, self.start) if self.start else now)
        else:
            gap_s = self.interval_s or 1
            steps = max(1, math.floor((now - begin).total_seconds() / gap_s) + 1)
            time = begin + timedelta(seconds=steps * gap_s)
        return None if time is None or (self.end and time > self.end) else time

    def check_rate(self, now: datetime) -> None:
        """Refuse a schedule that would flood the cluster, or never start a run.

        Raises:
            InvalidValueError: If it starts runs more often than once a minute and has no near end, or ended already.
        """
        if self.end is not None and self.next_after(now, now) is None:
            past = " is past" if self.end <= now else f" comes before the first run ({self.in_words(now)})"
            raise InvalidValueError(f"the end {rfc3339(self.end)}{past}: the schedule would never start a run")
        an_hour, a_minute = self.cron.most if self.cron else (3600 / (self.interval_s or 1), 1)
        if an_hour <= MOST_AN_HOUR and a_minute <= MOST_A_MINUTE:
            return
        gap_s = self.cron.gap_s if self.cron else self.interval_s or 0
        begin = max(now, self.start) if self.start else now
        runs = math.inf if self.end is None else (self.end - begin).total_seconds() / gap_s
        if runs > MOST_RUNS:
            often = "without end" if self.end is None else f"{runs:.0f} times until {rfc3339(self.end)}"
            raise InvalidValueError(
                f"a schedule every {_duration(gap_s)} would start runs {often}, each some seven pods even where it has "
                f"nothing to do: use an interval of {SHORTEST_GAP_S} s or more, or an end before {MOST_RUNS} runs"
            )


def seconds_of(every: str | int | timedelta) -> int:
    """Return an interval in s.

    Raises:
        InvalidValueError: If it is no whole number of seconds above 0.
    """
    if isinstance(every, timedelta):
        every = integral("the interval in s", every.total_seconds())
    if not isinstance(every, str):
        return integer("the interval in s", every, at_least=1, at_most=_LONGEST_S)
    if not re.fullmatch(r"([1-9][0-9]{0,9}[smhdw])+", every):
        raise InvalidValueError(f"the interval {every!r} can't be read: write 90s, 30m, 6h, 1d, 1w, or 1d12h")
    total_s = sum(int(number) * _UNITS_S[unit] for number, unit in re.findall(r"([0-9]+)([smhdw])", every))
    return integer("the interval in s", total_s, at_least=1, at_most=_LONGEST_S)


def rfc3339(time: datetime) -> str:
    """Return a time as KFP's API writes it: UTC, whole seconds."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _time(name: str, value: str | datetime | None) -> datetime | None:
    if value is None or isinstance(value, datetime):
        return value
    if value == NO_BOUND:
        return None
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise InvalidValueError(
            f"the {name} {value!r} is no time: write it with its zone, such as 2027-01-31T03:00:00Z"
        ) from None


def _duration(seconds: int) -> str:
    parts = []
    for unit, size_s in reversed(_UNITS_S.items()):
        count, seconds = divmod(seconds, size_s)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts)
