"""Checks of what the store's callers give."""

from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import TypeVar

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.profile import Profile
from zeus_kfp.zeus_core.trial import TrialOutcome
from zeus_kfp.zeus_core.validation import MAX_INTEGER, integer, text

E = TypeVar("E", bound=StrEnum)

_YEARS = range(1900, 9000)
"""A lease or period of MAX_TIME_S, three centuries, ends in a year that every supported database keeps."""


def check_names(job_id: str, *run_ids: str) -> None:
    """Refuse names that no store can keep.

    Raises:
        InvalidValueError: If one is empty, too long, or holds what a database can't.
    """
    text("job_id", job_id)
    for run_id in run_ids:
        text("run_id", run_id)


def checked_report(outcome: TrialOutcome, profiles: Iterable[Profile]) -> tuple[Profile, ...]:
    """Return the profiles of a report whose values are of the right kinds.

    Raises:
        InvalidValueError: If one is not.
    """
    if not isinstance(outcome, TrialOutcome):
        raise InvalidValueError(f"outcome must be a TrialOutcome, not {outcome!r}")
    measured = tuple(profiles) if isinstance(profiles, Iterable) else (profiles,)
    if any(not isinstance(profile, Profile) for profile in measured):
        raise InvalidValueError(f"profiles must be Profile values, not {profiles!r}")
    return measured


def check_spec(spec: JobSpec) -> None:
    """Refuse what holds no knobs of a job.

    Raises:
        InvalidValueError: If it is no JobSpec.
    """
    if not isinstance(spec, JobSpec):
        raise InvalidValueError(f"spec must be a JobSpec, not {spec!r}")


def checked_since(since: datetime | None) -> datetime | None:
    """Return a moment that both databases can compare with; None for any.

    Raises:
        InvalidValueError: If it is no datetime with a time zone.
    """
    return None if since is None else _moment("since", since)


def checked_now(now: datetime) -> datetime:
    """Return a clock's moment in UTC: in any other zone a day has 23 or 25 hours when summer time begins or ends.

    Raises:
        InvalidValueError: If it is no datetime with a time zone, or no lease could be counted from it.
    """
    moment = _moment("what the store's clock gives", now)
    if moment.year not in _YEARS:
        raise InvalidValueError(
            f"the store's clock must give a year from {_YEARS[0]} to {_YEARS[-1]}, not {now.isoformat()}"
        )
    return moment


def _moment(name: str, value: datetime) -> datetime:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidValueError(f"{name} must be a datetime with a time zone, not {value!r}")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise InvalidValueError(f"{name} must lie between the years 1 and 9999 in UTC, not {value!r}") from None


def checked_size(batch_size: int | None) -> int | None:
    """Return a batch size to look for; None for any.

    Raises:
        InvalidValueError: If it can't be one.
    """
    return None if batch_size is None else integer("batch_size", batch_size, at_least=1, at_most=MAX_INTEGER)


def checked_member(name: str, kind: type[E], value: E | str | None) -> E | None:
    """Return a member of an enumeration, given as such or by its value.

    Raises:
        InvalidValueError: If there is none.
    """
    try:
        return None if value is None else kind(value)
    except ValueError:
        allowed = ", ".join(member.value for member in kind)
        raise InvalidValueError(f"{name} must be one of {allowed}, not {value!r}") from None
