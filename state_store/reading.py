"""Reading: jobs, recurrences, trials and profiles as frozen values."""

from sqlmodel import Session, col, select

from zeus_kfp.state_store.locking import required_recurrence, trials_of
from zeus_kfp.state_store.records import JobRecord, ProfileRecord, RecurrenceRecord, TrialRecord
from zeus_kfp.state_store.rows import job_record, profile_of, recurrence_record, trial_record
from zeus_kfp.state_store.tables import JobRow, ProfileRow, RecurrenceRow, TrialRow
from zeus_kfp.zeus_core.errors import UnknownJobError
from zeus_kfp.zeus_core.trial import TrialState


def job_row(session: Session, job_id: str) -> JobRow:
    """Return a job's row.

    Raises:
        UnknownJobError: If there is no such job.
    """
    job = session.get(JobRow, job_id)
    if job is None:
        raise UnknownJobError(f"the store holds no job {job_id!r}: open_recurrence registers it")
    return job


def jobs(session: Session) -> tuple[JobRecord, ...]:
    """Return every job, by name."""
    return tuple(job_record(row) for row in session.exec(select(JobRow).order_by(JobRow.job_id)))


def recurrences(session: Session, job_id: str) -> tuple[RecurrenceRecord, ...]:
    """Return a job's recurrences, oldest first."""
    job_row(session, job_id)
    trials: dict[int, list[TrialRow]] = {}
    for trial in session.exec(select(TrialRow).where(TrialRow.job_id == job_id).order_by(col(TrialRow.number))):
        trials.setdefault(trial.recurrence_id, []).append(trial)
    rows = session.exec(select(RecurrenceRow).where(RecurrenceRow.job_id == job_id).order_by(col(RecurrenceRow.number)))
    return tuple(recurrence_record(row, trials.get(row.id or 0, [])) for row in rows)


def recurrence(session: Session, job_id: str, run_id: str) -> RecurrenceRecord:
    """Return the recurrence of a run."""
    row = required_recurrence(session, job_id, run_id)
    return recurrence_record(row, trials_of(session, row))


def trials(session: Session, job_id: str, run_id: str | None) -> tuple[TrialRecord, ...]:
    """Return a job's trials, or those of one run, oldest first."""
    job_row(session, job_id)
    query = select(TrialRow, RecurrenceRow).where(TrialRow.job_id == job_id, TrialRow.recurrence_id == RecurrenceRow.id)
    if run_id is not None:
        query = query.where(RecurrenceRow.run_id == run_id)
    return tuple(trial_record(trial, row) for trial, row in session.exec(query.order_by(col(TrialRow.number))))


def winner(session: Session, job_id: str, run_id: str) -> TrialRecord | None:
    """Return the trial of a run that reached the target."""
    job_row(session, job_id)
    row = required_recurrence(session, job_id, run_id)
    reached = [t for t in trials_of(session, row) if t.state == TrialState.REACHED]
    return trial_record(reached[0], row) if reached else None


def profiles(session: Session, job_id: str) -> tuple[ProfileRecord, ...]:
    """Return what a job's trials measured, oldest first."""
    job_row(session, job_id)
    query = select(ProfileRow, TrialRow).where(ProfileRow.job_id == job_id, ProfileRow.trial_id == TrialRow.id)
    rows = session.exec(query.order_by(col(ProfileRow.id)))
    return tuple(ProfileRecord(trial.number, profile_of(profile)) for profile, trial in rows)
