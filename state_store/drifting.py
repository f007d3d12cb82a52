"""Drift: signs that a job's data or costs have changed; each starts one recurrence before its period is over."""

from datetime import datetime

from sqlalchemy import bindparam, insert, select, update
from sqlalchemy.engine import Connection

from zeus_kfp.state_store.records import DriftRecord
from zeus_kfp.state_store.rows import drift_record
from zeus_kfp.state_store.statements import Row, find_job, locked_job, rows
from zeus_kfp.state_store.tables import DRIFT, TRIAL
from zeus_kfp.zeus_core.cost_drift import CostDrift, cost_drift
from zeus_kfp.zeus_core.validation import number, text

MAX_REASON_CHARACTERS = 255
_LOOKED_AT = 50
"""Latest trials of a job that its costs are compared over: a report costs the same, however long the history."""

_OF_JOB = select(DRIFT).where(DRIFT.c.job_id == bindparam("job_id")).order_by(DRIFT.c.id)
_PENDING = _OF_JOB.where(DRIFT.c.recurrence_number.is_(None))
_SAME = _OF_JOB.where(DRIFT.c.reason == bindparam("reason"))
_COSTS = (
    select(TRIAL.c.cost, TRIAL.c.issued_at)
    .where(TRIAL.c.job_id == bindparam("job_id"), TRIAL.c.number > bindparam("after"), TRIAL.c.cost.is_not(None))
    .where(TRIAL.c.batch_size == bindparam("batch_size"), TRIAL.c.generation == bindparam("generation"))
    .where(TRIAL.c.accelerator == bindparam("accelerator"))
    .order_by(TRIAL.c.number)
)


def signal_drift(
    connection: Connection, now: datetime, job_id: str, reason: str, value: float | None = None
) -> DriftRecord:
    """Keep that drift was seen; while the same reason waits for a recurrence, saying so again changes nothing."""
    text("reason", reason, at_most=MAX_REASON_CHARACTERS)
    if value is not None:
        value = number("value", value)
    job = locked_job(connection, job_id)
    waiting = [row for row in pending_drifts(connection, job) if row.reason == reason]
    return drift_record(waiting[0] if waiting else _add(connection, now, job, reason, value, None))


def drifts(connection: Connection, job_id: str) -> tuple[DriftRecord, ...]:
    """Return every drift that was signalled of a job, oldest first."""
    find_job(connection, job_id)
    return tuple(drift_record(row) for row in rows(connection, _OF_JOB, {"job_id": job_id}))


def pending_drifts(connection: Connection, job: Row) -> list[Row]:
    """Return a job's drifts that have started no recurrence yet, oldest first."""
    return rows(connection, _PENDING, {"job_id": job.job_id})


def consume_drifts(
    connection: Connection, now: datetime, job: Row, recurrence_number: int, *, new_version: str = ""
) -> list[str]:
    """Let a recurrence take all drifts that wait for one, and return their reasons.

    Args:
        connection: Inside a transaction that holds the job.
        now: The present moment.
        job: The job.
        recurrence_number: The recurrence's number in the job.
        new_version: The version of the raw data where that has changed, which is a drift too.
    """
    waiting = pending_drifts(connection, job)
    if waiting:
        query = update(DRIFT).where(DRIFT.c.id.in_([row.id for row in waiting]))
        connection.execute(query.values(recurrence_number=recurrence_number))
    reasons = [row.reason for row in waiting]
    if new_version:
        reasons.append(f"data_version is now {new_version!r}"[:MAX_REASON_CHARACTERS])
        _add(connection, now, job, reasons[-1], None, recurrence_number)
    return reasons


def note_cost_drift(connection: Connection, now: datetime, job: Row, trial: Row) -> None:
    """Signal drift if the latest costs at a finished trial's batch size no longer fit the earlier ones.

    Trials on another accelerator are left aside, and so are those from before the same drift was signalled last. A job
    without a period has none that drift could cut short, and its reports need not look.
    """
    if not job.period_s or trial.cost is None or trial.data_missing or trial.generation != job.generation:
        return
    found = rows(connection, _COSTS, _key(job, trial))
    drift = cost_drift([row.cost for row in found])
    if drift is None:
        return
    reason = _reason(trial.batch_size, drift)
    before = rows(connection, _SAME, {"job_id": job.job_id, "reason": reason})
    if before:
        drift = cost_drift([row.cost for row in found if row.issued_at > before[-1].signalled_at])
    if drift is not None:
        _add(connection, now, job, reason, drift.ratio, None)


def _key(job: Row, trial: Row) -> dict[str, object]:
    return {
        "job_id": job.job_id,
        "after": job.trial_count - _LOOKED_AT,
        "batch_size": trial.batch_size,
        "generation": trial.generation,
        "accelerator": trial.accelerator,
    }


def _reason(batch_size: int, drift: CostDrift) -> str:
    direction = "risen" if drift.ratio > 1 else "fallen"
    return f"the cost at batch size {batch_size} has {direction}"


def _add(
    connection: Connection, now: datetime, job: Row, reason: str, value: float | None, recurrence_number: int | None
) -> Row:
    values = {
        "job_id": job.job_id,
        "reason": reason,
        "value": value,
        "signalled_at": now,
        "recurrence_number": recurrence_number,
    }
    connection.execute(insert(DRIFT).values(**values))
    return Row(**values)
