"""A job's lock, leases, and the reaping of what outlived them."""

from datetime import datetime, timedelta

from sqlmodel import Session, col, select

from zeus_kfp.state_store.records import RecurrenceState
from zeus_kfp.state_store.tables import JobRow, RecurrenceRow, TrialRow
from zeus_kfp.zeus_core.errors import UnknownJobError, UnknownRecurrenceError
from zeus_kfp.zeus_core.trial import TrialState

LEASE_MARGIN = timedelta(minutes=10)
"""What a step may take beyond the trial's own time cap: its pod's start, its report."""


def locked_job(session: Session, job_id: str) -> JobRow:
    """Return a job's row; no other process changes the job until the transaction ends.

    SQLite's transaction holds the whole database already; its FOR UPDATE is none.

    Raises:
        UnknownJobError: If there is no such job.
    """
    job = session.exec(select(JobRow).where(JobRow.job_id == job_id).with_for_update()).first()
    if job is None:
        raise UnknownJobError(f"the store holds no job {job_id!r}: open_recurrence registers it")
    return job


def find_recurrence(session: Session, job_id: str, run_id: str) -> RecurrenceRow | None:
    """Return the recurrence of a run, None if the run opened none."""
    query = select(RecurrenceRow).where(RecurrenceRow.job_id == job_id, RecurrenceRow.run_id == run_id)
    return session.exec(query).first()


def required_recurrence(session: Session, job_id: str, run_id: str) -> RecurrenceRow:
    """Return the recurrence of a run.

    Raises:
        UnknownRecurrenceError: If the run opened none.
    """
    recurrence = find_recurrence(session, job_id, run_id)
    if recurrence is None:
        raise UnknownRecurrenceError(
            f"run {run_id!r} opened no recurrence of job {job_id!r}: open_recurrence comes first"
        )
    return recurrence


def trials_of(session: Session, recurrence: RecurrenceRow) -> list[TrialRow]:
    """Return a recurrence's trials by slot."""
    query = select(TrialRow).where(TrialRow.recurrence_id == recurrence.id).order_by(col(TrialRow.slot))
    return list(session.exec(query))


def lease_from(now: datetime, job: JobRow) -> datetime:
    """Return until when a trial or recurrence that is heard of now counts as alive."""
    return now + timedelta(seconds=job.max_trial_time_s) + LEASE_MARGIN


def expire(trial: TrialRow, now: datetime, reason: str) -> None:
    """End a trial that never reported."""
    trial.state = TrialState.EXPIRED.value
    trial.finished_at = now
    trial.reason = reason


def reap_trials(session: Session, job: JobRow, now: datetime) -> None:
    """Expire the job's trials whose lease has passed."""
    query = select(TrialRow).where(TrialRow.job_id == job.job_id, TrialRow.state == TrialState.ISSUED.value)
    for trial in session.exec(query):
        if trial.lease_expires_at <= now:
            expire(trial, now, "its lease passed without a report")


def reap_recurrences(session: Session, job: JobRow, now: datetime) -> None:
    """Close the job's recurrences whose lease has passed, with the trials that they left behind."""
    query = select(RecurrenceRow).where(
        RecurrenceRow.job_id == job.job_id, RecurrenceRow.state == RecurrenceState.OPEN.value
    )
    for recurrence in session.exec(query):
        if recurrence.lease_expires_at <= now:
            expire_issued(session, recurrence, now, "its recurrence vanished")
            recurrence.state = RecurrenceState.EXPIRED.value
            recurrence.closed_at = now


def expire_issued(session: Session, recurrence: RecurrenceRow, now: datetime, reason: str) -> None:
    """Expire the trials of a recurrence that never reported."""
    for trial in trials_of(session, recurrence):
        if trial.state == TrialState.ISSUED:
            expire(trial, now, reason)
