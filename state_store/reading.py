"""Reading: jobs, recurrences, trials, profiles and arms as frozen values."""

from datetime import datetime
from typing import Any

from sqlalchemy import Select, and_, select

from zeus_kfp.state_store.drifting import drifts
from zeus_kfp.state_store.learning import load_learnt
from zeus_kfp.state_store.records import (
    JobExport,
    JobOverview,
    JobPhase,
    ProfileRecord,
    RecurrenceRecord,
    RecurrenceState,
    TrialRecord,
)
from zeus_kfp.state_store.rows import (
    job_record,
    profile_of,
    recurrence_record,
    spec_of,
    trial_record,
    winner_of,
)
from zeus_kfp.state_store.statements import (
    Row,
    find_job,
    joined,
    labelled,
    recurrence_with_trials,
    rows,
)
from zeus_kfp.state_store.tables import JOB, PROFILE, RECURRENCE, TRIAL
from zeus_kfp.state_store.transaction import Transaction
from zeus_kfp.zeus_core.policies import ArmPosterior, policy_named
from zeus_kfp.zeus_core.trial import TrialState


def jobs(
    transaction: Transaction, *, phase: JobPhase | None, user: str | None, since: datetime | None
) -> tuple[JobOverview, ...]:
    """Return jobs with their latest recurrence, by name, in one query."""
    latest = and_(RECURRENCE.c.job_id == JOB.c.job_id, RECURRENCE.c.number == JOB.c.recurrence_count)
    query = select(*labelled(JOB), *labelled(RECURRENCE)).select_from(JOB.outerjoin(RECURRENCE, latest))
    wanted = JOB.c.phase != JobPhase.DELETED.value if phase is None else JOB.c.phase == phase.value
    query = query.where(wanted)
    if user is not None:
        query = query.where(JOB.c.user == user)
    if since is not None:
        query = query.where((RECURRENCE.c.opened_at >= since) | (JOB.c.created_at >= since))
    found = joined(transaction, query.order_by(JOB.c.job_id), JOB, RECURRENCE)
    return tuple(_overview(job, recurrence) for job, recurrence in found)


def recurrences(
    transaction: Transaction, job_id: str, *, state: RecurrenceState | None, since: datetime | None
) -> tuple[RecurrenceRecord, ...]:
    """Return a job's recurrences, oldest first."""
    find_job(transaction, job_id)
    of_job = RECURRENCE.c.job_id == job_id
    query = select(RECURRENCE).where(of_job).order_by(RECURRENCE.c.number)
    if state is not None:
        query = query.where(RECURRENCE.c.state == state.value)
    if since is not None:
        query = query.where(RECURRENCE.c.opened_at >= since)
    found = rows(transaction, query)
    trials: dict[int, list[Row]] = {row.id: [] for row in found}
    first = found[0].id if found else 0
    of_found = select(TRIAL).where(TRIAL.c.job_id == job_id, TRIAL.c.recurrence_id >= first)
    for trial in rows(transaction, of_found.order_by(TRIAL.c.number)) if found else ():
        if trial.recurrence_id in trials:
            trials[trial.recurrence_id].append(trial)
    return tuple(recurrence_record(row, trials[row.id]) for row in found)


def recurrence(transaction: Transaction, job_id: str, run_id: str) -> RecurrenceRecord:
    """Return the recurrence of a run."""
    row, trials = recurrence_with_trials(transaction, job_id, run_id)
    return recurrence_record(row, trials)


def trials(
    transaction: Transaction,
    job_id: str,
    *,
    run_id: str | None,
    state: TrialState | None,
    batch_size: int | None,
    since: datetime | None,
) -> tuple[TrialRecord, ...]:
    """Return a job's trials, oldest first."""
    find_job(transaction, job_id)
    recurrence_of = TRIAL.join(RECURRENCE, TRIAL.c.recurrence_id == RECURRENCE.c.id)
    query = select(*labelled(TRIAL), *labelled(RECURRENCE)).select_from(recurrence_of).where(TRIAL.c.job_id == job_id)
    conditions = {
        RECURRENCE.c.run_id: run_id,
        TRIAL.c.state: None if state is None else state.value,
        TRIAL.c.batch_size: batch_size,
    }
    for column, value in conditions.items():
        if value is not None:
            query = query.where(column == value)
    if since is not None:
        query = query.where(TRIAL.c.issued_at >= since)
    found = joined(transaction, query.order_by(TRIAL.c.number), TRIAL, RECURRENCE)
    return tuple(trial_record(trial, recurrence) for trial, recurrence in found)


def winner(transaction: Transaction, job_id: str, run_id: str) -> TrialRecord | None:
    """Return the trial of a run that reached the target."""
    find_job(transaction, job_id)
    row, trials = recurrence_with_trials(transaction, job_id, run_id)
    first = winner_of(trials)
    return None if first is None else trial_record(first, row)


def profiles(
    transaction: Transaction, job_id: str, *, batch_size: int | None, since: datetime | None
) -> tuple[ProfileRecord, ...]:
    """Return what a job's trials measured, oldest first."""
    find_job(transaction, job_id)
    query: Select[Any] = (
        select(PROFILE, TRIAL.c.number.label("trial_number"))
        .join(TRIAL, PROFILE.c.trial_id == TRIAL.c.id)
        .where(PROFILE.c.job_id == job_id)
        .order_by(PROFILE.c.id)
    )
    if batch_size is not None:
        query = query.where(PROFILE.c.batch_size == batch_size)
    if since is not None:
        query = query.where(TRIAL.c.issued_at >= since)
    return tuple(ProfileRecord(row.trial_number, profile_of(row)) for row in rows(transaction, query))


def export(transaction: Transaction, job_id: str) -> JobExport:
    """Return everything that is known of a job."""
    return JobExport(
        job=job_record(find_job(transaction, job_id)),
        recurrences=recurrences(transaction, job_id, state=None, since=None),
        trials=trials(transaction, job_id, run_id=None, state=None, batch_size=None, since=None),
        profiles=profiles(transaction, job_id, batch_size=None, since=None),
        arms=arms(transaction, job_id),
        drifts=drifts(transaction, job_id),
    )


def arms(transaction: Transaction, job_id: str) -> tuple[ArmPosterior, ...]:
    """Return the belief about every batch size of a job, ascending."""
    job = find_job(transaction, job_id)
    spec = spec_of(job)
    return policy_named(spec.policy).posterior(spec, load_learnt(transaction, job))


def _overview(job: Row, latest: Row) -> JobOverview:
    if latest.id is None:
        return JobOverview(job_record(job), None, None, None)
    return JobOverview(job_record(job), RecurrenceState(latest.state), latest.opened_at, latest.closed_at)
