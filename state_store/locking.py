"""Leases, the end of a recurrence, and the reaping of what outlived its lease."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from sqlalchemy import and_, bindparam, func, select

from zeus_kfp.state_store.drifting import give_drifts_back
from zeus_kfp.state_store.records import RecurrenceState
from zeus_kfp.state_store.statements import Row, count, issued_trials, put, rows, trials_of
from zeus_kfp.state_store.tables import JOB, RECURRENCE, TRIAL
from zeus_kfp.state_store.transaction import Transaction
from zeus_kfp.zeus_core.trial import TrialState

LEASE_MARGIN = timedelta(minutes=10)
"""What a step may take beyond its own time: its pod's start, its report."""

IS_OPEN = and_(RECURRENCE.c.job_id == bindparam("job_id"), RECURRENCE.c.state == RecurrenceState.OPEN.value)
_OPEN = select(RECURRENCE).where(IS_OPEN)
_OPEN_COUNT = select(func.count()).select_from(RECURRENCE).where(IS_OPEN)
# No EXISTS: PostgreSQL would hash the trials of all jobs to look at a single recurrence.
_ANY_TRIAL = select(TRIAL.c.id).where(TRIAL.c.recurrence_id == RECURRENCE.c.id).limit(1).scalar_subquery()
COUNTS = (RECURRENCE.c.state == RecurrenceState.OPEN.value) | _ANY_TRIAL.is_not(None)
"""Whether a recurrence counts: one that ended before its first trial was as good as none."""

_LATEST_THAT_COUNTS = (
    select(RECURRENCE.c.opened_at, RECURRENCE.c.data_missing)
    .where(RECURRENCE.c.job_id == bindparam("job_id"), COUNTS)
    .order_by(RECURRENCE.c.number.desc())
    .limit(1)
)
_MAYBE_DEAD = _OPEN.where(
    (RECURRENCE.c.opened_at <= bindparam("long_ago")) | (RECURRENCE.c.opened_at > bindparam("now"))
)
_LATER = (
    select(RECURRENCE.c.id)
    .select_from(RECURRENCE.outerjoin(TRIAL, TRIAL.c.recurrence_id == RECURRENCE.c.id))
    .where(IS_OPEN)
    .where(
        (RECURRENCE.c.opened_at > bindparam("now"))
        | (TRIAL.c.issued_at > bindparam("now"))
        | (TRIAL.c.finished_at > bindparam("now"))
    )
    .limit(1)
)


def lease_from(now: datetime, job: Row) -> datetime:
    """Return until when a trial that is heard of now counts as alive."""
    return now + timedelta(seconds=job.max_trial_time_s) + LEASE_MARGIN


def step_lease_from(now: datetime, job: Row) -> datetime:
    """Return until when a recurrence that is heard of now counts as alive, at a step that is no trial."""
    return now + timedelta(seconds=job.max_step_time_s) + LEASE_MARGIN


def alive_until(job: Row, recurrence: Row, trials: Iterable[Row], now: datetime) -> datetime:
    """Return the end of a recurrence's lease, by the step that it is at.

    Before its first trial it preprocesses, and after the one that reached the target it is at the builder's stages: its
    own lease counts there, from its opening or its latest turn. In between its trials' leases do.
    """
    trials = list(trials)
    leases = [_trial_lease_end(job, trial, now) for trial in trials]
    if not trials or any(trial.state == TrialState.REACHED for trial in trials):
        leases.append(_lease_end(job, recurrence, recurrence.opened_at, now, step_lease_from))
    return max(leases)


def _trial_lease_end(job: Row, trial: Row, now: datetime) -> datetime:
    if trial.report_number is None:
        return _lease_end(job, trial, trial.issued_at, now)
    heard_at = trial.finished_at if trial.finished_at <= now else job.clock_back_at or now
    return (step_lease_from if trial.state == TrialState.REACHED else lease_from)(heard_at, job)


def open_count(transaction: Transaction, job: Row) -> int:
    """Return how many of a job's recurrences have not ended."""
    return count(transaction, _OPEN_COUNT, {"job_id": job.job_id})


def open_recurrences(transaction: Transaction, job: Row) -> list[Row]:
    """Return a job's recurrences that have not ended, by number."""
    # Asked to sort, SQLite would walk the job's whole history in its order.
    return sorted(rows(transaction, _OPEN, {"job_id": job.job_id}), key=lambda recurrence: int(recurrence.number))


def expire(transaction: Transaction, trial: Row, now: datetime, reason: str) -> None:
    """End a trial that never reported."""
    put(transaction, TRIAL, trial, state=TrialState.EXPIRED.value, finished_at=now, reason=reason)


def reap_trials(transaction: Transaction, job: Row, issued: list[Row], now: datetime) -> list[Row]:
    """Expire the trials whose lease has passed, and return the others."""
    for trial in issued:
        if _lease_end(job, trial, trial.issued_at, now) <= now:
            expire(transaction, trial, now, "its lease passed without a report")
    return [trial for trial in issued if trial.state == TrialState.ISSUED]


def reap(transaction: Transaction, job: Row, now: datetime) -> None:
    """Close the job's recurrences whose lease has passed, with all trials that were left behind."""
    note_clock(transaction, job, now)
    shortest = timedelta(seconds=min(job.max_trial_time_s, job.max_step_time_s)) + LEASE_MARGIN
    for recurrence in rows(transaction, _MAYBE_DEAD, {"job_id": job.job_id, "now": now, "long_ago": now - shortest}):
        trials = trials_of(transaction, recurrence)
        if alive_until(job, recurrence, trials, now) <= now:
            end_recurrence(
                transaction, job, recurrence, trials, now, RecurrenceState.EXPIRED, "its recurrence vanished"
            )
    reap_trials(transaction, job, issued_trials(transaction, job), now)


def note_clock(transaction: Transaction, job: Row, now: datetime) -> None:
    """Keep since when the clock shows less than it did, or that it does so no longer.

    A moment later than now was kept before the clock went back, or by a step whose clock is ahead. Leases and the
    period that began then count from when that was first noticed: they neither end at once nor wait until the clock has
    caught up, and are what they were once it has.
    """
    found = rows(transaction, _LATER, {"job_id": job.job_id, "now": now})
    is_later = bool(found) or (job.period_began_at is not None and job.period_began_at > now)
    if not is_later:
        put(transaction, JOB, job, clock_back_at=None)
    elif job.clock_back_at is None or job.clock_back_at > now:
        put(transaction, JOB, job, clock_back_at=now)


def _lease_end(
    job: Row,
    row: Row,
    since: datetime,
    now: datetime,
    lease_of: Callable[[datetime, Row], datetime] = lease_from,
) -> datetime:
    """Return until when a trial or recurrence counts as alive, by its own row."""
    lease: datetime = row.lease_expires_at
    return lease if since <= now else min(lease, lease_of(job.clock_back_at or now, job))


def end_recurrence(
    transaction: Transaction,
    job: Row,
    recurrence: Row,
    trials: Iterable[Row],
    now: datetime,
    state: RecurrenceState,
    reason: str,
) -> None:
    """End a recurrence in a state, and for a reason its trials that never reported.

    One that comes to its end before its first trial gives back what it took, so that the next run starts what this one
    did not.
    """
    trials = list(trials)
    for trial in trials:
        if trial.state == TrialState.ISSUED:
            expire(transaction, trial, now, reason)
    put(transaction, RECURRENCE, recurrence, state=state.value, closed_at=now)
    if not trials:
        _give_back(transaction, job, recurrence)


def _give_back(transaction: Transaction, job: Row, recurrence: Row) -> None:
    """Let a recurrence's drifts wait again, the period be that of the one before, and its data be still to be made."""
    give_drifts_back(transaction, job, recurrence.number)
    before = next(iter(rows(transaction, _LATEST_THAT_COUNTS, {"job_id": job.job_id})), None)
    if job.period_began_at == recurrence.opened_at:
        put(transaction, JOB, job, period_began_at=before and before.opened_at)
    if job.data_began_number == recurrence.number and before is not None and before.data_missing:
        # Nobody knows that what was gone from storage has been made again.
        put(transaction, JOB, job, data_began_number=0)
