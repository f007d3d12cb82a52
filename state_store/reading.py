"""Reading: jobs, recurrences, trials, profiles and arms as frozen values."""

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, bindparam, select

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

_OF_LATEST = and_(RECURRENCE.c.job_id == JOB.c.job_id, RECURRENCE.c.number == JOB.c.recurrence_count)
_JOBS = (
    select(*labelled(JOB), *labelled(RECURRENCE))
    .select_from(JOB.outerjoin(RECURRENCE, _OF_LATEST))
    .order_by(JOB.c.job_id)
)
_LISTED = _JOBS.where(JOB.c.phase != JobPhase.DELETED.value)
_WHICH_JOBS = {
    "phase": JOB.c.phase == bindparam("phase"),
    "user": JOB.c.user == bindparam("user"),
    "since": (RECURRENCE.c.opened_at >= bindparam("since")) | (JOB.c.created_at >= bindparam("since")),
}
RECURRENCES_OF_JOB = select(RECURRENCE).where(RECURRENCE.c.job_id == bindparam("job_id")).order_by(RECURRENCE.c.number)
_WHICH_RECURRENCES = {
    "state": RECURRENCE.c.state == bindparam("state"),
    "since": RECURRENCE.c.opened_at >= bindparam("since"),
}
_TRIALS_SINCE = (
    select(TRIAL)
    .where(TRIAL.c.job_id == bindparam("job_id"), TRIAL.c.recurrence_id >= bindparam("first"))
    .order_by(TRIAL.c.number)
)
TRIALS_OF_JOB = (
    select(*labelled(TRIAL), *labelled(RECURRENCE))
    .select_from(TRIAL.join(RECURRENCE, TRIAL.c.recurrence_id == RECURRENCE.c.id))
    .where(TRIAL.c.job_id == bindparam("job_id"))
    .order_by(TRIAL.c.number)
)
_WHICH_TRIALS = {
    "run_id": RECURRENCE.c.run_id == bindparam("run_id"),
    "state": TRIAL.c.state == bindparam("state"),
    "batch_size": TRIAL.c.batch_size == bindparam("batch_size"),
    "since": TRIAL.c.issued_at >= bindparam("since"),
}
_PROFILES: Select[Any] = (
    select(PROFILE, TRIAL.c.number.label("trial_number"))
    .join(TRIAL, PROFILE.c.trial_id == TRIAL.c.id)
    .where(PROFILE.c.job_id == bindparam("job_id"))
    .order_by(PROFILE.c.id)
)
_WHICH_PROFILES = {
    "batch_size": PROFILE.c.batch_size == bindparam("batch_size"),
    "since": TRIAL.c.issued_at >= bindparam("since"),
}


def jobs(
    transaction: Transaction, *, phase: JobPhase | None, user: str | None, since: datetime | None
) -> tuple[JobOverview, ...]:
    """Return jobs with their latest recurrence, by name, in one query."""
    of_phase = phase and phase.value
    query, wanted = _narrowed(_JOBS if phase else _LISTED, _WHICH_JOBS, phase=of_phase, user=user, since=since)
    return tuple(_overview(job, recurrence) for job, recurrence in joined(transaction, query, JOB, RECURRENCE, wanted))


def recurrences(
    transaction: Transaction, job_id: str, *, state: RecurrenceState | None, since: datetime | None
) -> tuple[RecurrenceRecord, ...]:
    """Return a job's recurrences, oldest first."""
    find_job(transaction, job_id)
    query, wanted = _narrowed(RECURRENCES_OF_JOB, _WHICH_RECURRENCES, state=state and state.value, since=since)
    found = rows(transaction, query, {"job_id": job_id, **wanted})
    trials: dict[int, list[Row]] = {row.id: [] for row in found}
    for trial in rows(transaction, _TRIALS_SINCE, {"job_id": job_id, "first": found[0].id}) if found else ():
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
    query, wanted = _narrowed(
        TRIALS_OF_JOB, _WHICH_TRIALS, run_id=run_id, state=state and state.value, batch_size=batch_size, since=since
    )
    found = joined(transaction, query, TRIAL, RECURRENCE, {"job_id": job_id, **wanted})
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
    query, wanted = _narrowed(_PROFILES, _WHICH_PROFILES, batch_size=batch_size, since=since)
    found = rows(transaction, query, {"job_id": job_id, **wanted})
    return tuple(ProfileRecord(row.trial_number, profile_of(row)) for row in found)


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


def _narrowed(
    query: Select[Any], which: Mapping[str, ColumnElement[bool]], **wanted: Any
) -> tuple[Select[Any], dict[str, Any]]:
    """Return a query of what is wanted, where None is anything, and the parameters that say so."""
    given = {name: value for name, value in wanted.items() if value is not None}
    return _where(query, tuple(which[name] for name in given)), given


@lru_cache(maxsize=64)
def _where(query: Select[Any], conditions: tuple[ColumnElement[bool], ...]) -> Select[Any]:
    """Return the same query each time, since it is compiled once; it takes longer than to run it."""
    return query.where(*conditions)
