"""Opening and closing a recurrence."""

import importlib
import shlex
from datetime import datetime
from typing import Any

from sqlmodel import Session, col, select

from zeus_kfp.state_store.generators import generator_at, seeded_state
from zeus_kfp.state_store.learning import load_learnt, price_again, relearn
from zeus_kfp.state_store.locking import (
    expire_issued,
    find_recurrence,
    lease_from,
    locked_job,
    reap_recurrences,
    reap_trials,
    required_recurrence,
    trials_of,
)
from zeus_kfp.state_store.records import JobPhase, OpenedRecurrence, RecurrenceRecord, RecurrenceState
from zeus_kfp.state_store.rows import knobs_of, recurrence_record, spec_of
from zeus_kfp.state_store.tables import JobRow, RecurrenceRow
from zeus_kfp.zeus_core.errors import InvalidValueError, JobChangedError
from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.policies import policy_named
from zeus_kfp.zeus_core.trial import TrialState

OPERATIONAL_KNOBS = {"max_retries", "num_recurrences", "max_concurrent_recurrences", "max_trial_time_s", "user"}
"""Knobs that say how a job runs and not what it learns: they may change at any time."""

MEANING_KNOBS = {"target_metric", "higher_is_better", "max_epochs"}
"""Knobs that decide what reaching the target means: once they change, earlier trials no longer count."""

ON_KNOB_CHANGE = ("refuse", "accept")


def open_recurrence(
    session: Session, now: datetime, spec: JobSpec, run_id: str, on_knob_change: str, data_version: str
) -> OpenedRecurrence:
    """Register the job the first time, take its changes, and open a recurrence or say why not."""
    if on_knob_change not in ON_KNOB_CHANGE:
        raise InvalidValueError(f"on_knob_change must be one of {', '.join(ON_KNOB_CHANGE)}, not {on_knob_change!r}")
    policy = policy_named(spec.policy)
    _register(session, now, spec)
    job = locked_job(session, spec.job_id)
    reap_recurrences(session, job, now)
    reap_trials(session, job, now)
    earlier = find_recurrence(session, job.job_id, run_id)
    if earlier is not None:
        # A step started twice: its knobs were taken the first time, and others may have been accepted since.
        return _reopened(job, earlier, now)
    _take_changes(session, job, spec, on_knob_change)
    refusal = _why_not(session, job)
    if refusal:
        return OpenedRecurrence(False, refusal, 0, (), "")
    # A job whose sizes are all ruled out has nothing to open for; whatever is drawn here is thrown away.
    policy.suggest(spec_of(job), load_learnt(session, job), (), generator_at(job.generator_state))
    return _open(session, job, run_id, now, data_version)


def close_recurrence(session: Session, now: datetime, job_id: str, run_id: str) -> RecurrenceRecord:
    """End a recurrence and free its slot; one that has ended stays as it is."""
    job = locked_job(session, job_id)
    recurrence = required_recurrence(session, job.job_id, run_id)
    if recurrence.state == RecurrenceState.OPEN:
        expire_issued(session, recurrence, now, "its recurrence ended without a report")
        reached = any(t.state == TrialState.REACHED for t in trials_of(session, recurrence))
        recurrence.state = (RecurrenceState.REACHED if reached else RecurrenceState.NOT_REACHED).value
        recurrence.closed_at = now
        session.flush()
        _complete(session, job)
    return recurrence_record(recurrence, trials_of(session, recurrence))


def _complete(session: Session, job: JobRow) -> None:
    """Note that a job is complete, once its last recurrence has ended."""
    if job.num_recurrences and job.recurrence_count >= job.num_recurrences and not _running(session, job):
        job.phase = JobPhase.COMPLETED.value


def _running(session: Session, job: JobRow) -> list[RecurrenceRow]:
    open_ones = RecurrenceRow.state == RecurrenceState.OPEN.value
    query = select(RecurrenceRow).where(RecurrenceRow.job_id == job.job_id, open_ones)
    return list(session.exec(query.order_by(col(RecurrenceRow.number))))


def _register(session: Session, now: datetime, spec: JobSpec) -> None:
    values: dict[str, Any] = knobs_of(spec) | {
        "phase": JobPhase.RUNNING.value,
        "generation": 0,
        "data_generation": 0,
        "rated_power_w": spec.max_power_w,
        "recurrence_count": 0,
        "trial_count": 0,
        "report_count": 0,
        "generator_state": seeded_state(spec.seed),
        "created_at": now,
    }
    # The module of the dialect in use is loaded already; the other's would only cost its import.
    dialect = importlib.import_module(f"sqlalchemy.dialects.{session.get_bind().dialect.name}")
    session.connection().execute(dialect.insert(JobRow).values(**values).on_conflict_do_nothing())


def _take_changes(session: Session, job: JobRow, spec: JobSpec, on_knob_change: str) -> None:
    changes = spec_of(job).differences(spec)
    learning = {name: pair for name, pair in changes.items() if name not in OPERATIONAL_KNOBS}
    if learning and on_knob_change == "refuse":
        shown = "; ".join(f"{name} was {old!r}, now {new!r}" for name, (old, new) in learning.items())
        raise JobChangedError(
            f"job {job.job_id!r} was registered with other knobs: {shown}. Use another job_id to start a new job, or "
            "pass on_knob_change='accept' to go on with the new ones"
        )
    columns = knobs_of(spec)
    for name in changes:
        setattr(job, name, columns[name])
    if learning:
        _apply(session, job, spec, set(learning))


def _apply(session: Session, job: JobRow, spec: JobSpec, changed: set[str]) -> None:
    if "seed" in changed:
        job.generator_state = seeded_state(spec.seed)
    if spec.max_power_w:
        job.rated_power_w = spec.max_power_w
    job.generation += bool(changed & MEANING_KNOBS)
    if changed & {"eta_knob", "max_power_w"} and job.rated_power_w:
        price_again(session, job)
    session.flush()
    relearn(session, job)


def _reopened(job: JobRow, earlier: RecurrenceRow, now: datetime) -> OpenedRecurrence:
    if earlier.state != RecurrenceState.OPEN:
        why = f"this run has ended its recurrence {earlier.number} of job {job.job_id} already ({earlier.state})"
        return OpenedRecurrence(False, why, 0, (), "")
    earlier.lease_expires_at = lease_from(now, job)
    return _opened(job, earlier)


def _why_not(session: Session, job: JobRow) -> str:
    if job.num_recurrences and job.recurrence_count >= job.num_recurrences:
        job.phase = JobPhase.COMPLETED.value
        return f"job {job.job_id} is complete: it has had its {job.num_recurrences} recurrences (num_recurrences)"
    job.phase = JobPhase.RUNNING.value
    running = _running(session, job)
    if len(running) < job.max_concurrent_recurrences:
        return ""
    oldest = running[0]
    return (
        f"job {job.job_id} has as many recurrences running as max_concurrent_recurrences allows "
        f"({job.max_concurrent_recurrences}): this run trains nothing. The oldest is recurrence {oldest.number} of run "
        f"{oldest.run_id}; if that run is dead, its slot is free from {oldest.lease_expires_at:%Y-%m-%d %H:%M} UTC on, "
        f"or at once after `zeus-kfp recurrences close {shlex.quote(job.job_id)} {shlex.quote(oldest.run_id)}`"
    )


def _open(session: Session, job: JobRow, run_id: str, now: datetime, data_version: str) -> OpenedRecurrence:
    job.recurrence_count += 1
    recurrence = RecurrenceRow(
        job_id=job.job_id,
        run_id=run_id,
        number=job.recurrence_count,
        state=RecurrenceState.OPEN.value,
        data_epoch=f"{data_version}-{job.data_generation}",
        opened_at=now,
        lease_expires_at=lease_from(now, job),
    )
    session.add(recurrence)
    return _opened(job, recurrence)


def _opened(job: JobRow, recurrence: RecurrenceRow) -> OpenedRecurrence:
    slots = tuple(range(1, job.max_retries + 1))
    why = f"recurrence {recurrence.number} of job {job.job_id}"
    return OpenedRecurrence(True, why, recurrence.number, slots, recurrence.data_epoch)
