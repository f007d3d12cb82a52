"""Drift: signs that a job's data or costs have changed; each starts one recurrence before its period is over."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import bindparam, select, update

from zeus_kfp.state_store.records import DriftRecord
from zeus_kfp.state_store.rows import drift_record
from zeus_kfp.state_store.statements import Row, add, find_job, locked_job, rows
from zeus_kfp.state_store.tables import DRIFT, TRIAL
from zeus_kfp.state_store.transaction import Transaction
from zeus_kfp.zeus_core.cost_drift import cost_drift
from zeus_kfp.zeus_core.trial import TrialState
from zeus_kfp.zeus_core.validation import number, text

MAX_REASON_CHARACTERS = 255
_LOOKED_AT = 50
"""Latest trials of a job that its costs are compared over: a report costs the same, however long the history."""

_OF_JOB = select(DRIFT).where(DRIFT.c.job_id == bindparam("job_id")).order_by(DRIFT.c.id)
_PENDING = _OF_JOB.where(DRIFT.c.recurrence_number.is_(None))
_TAKE = update(DRIFT).where(DRIFT.c.job_id == bindparam("job"), DRIFT.c.recurrence_number.is_(None))
_SAME = _OF_JOB.where(DRIFT.c.reason == bindparam("reason"))
_WAITING = DRIFT.alias("waiting")
_GIVE_BACK = (
    update(DRIFT)
    .where(DRIFT.c.job_id == bindparam("job"), DRIFT.c.recurrence_number == bindparam("number"))
    .where(
        DRIFT.c.reason.not_in(
            select(_WAITING.c.reason).where(
                _WAITING.c.job_id == bindparam("job"), _WAITING.c.recurrence_number.is_(None)
            )
        )
    )
    .values(recurrence_number=None)
)
_COSTS = (
    select(TRIAL.c.cost, TRIAL.c.metric, TRIAL.c.state, TRIAL.c.num_epochs, TRIAL.c.issued_at)
    .where(TRIAL.c.job_id == bindparam("job_id"), TRIAL.c.number > bindparam("after"), TRIAL.c.cost.is_not(None))
    .where(TRIAL.c.batch_size == bindparam("batch_size"), TRIAL.c.generation == bindparam("generation"))
    .where(TRIAL.c.accelerator == bindparam("accelerator"), TRIAL.c.least_epochs.is_(None))
    .order_by(TRIAL.c.number)
)


def signal_drift(
    transaction: Transaction, now: datetime, job_id: str, reason: str, value: float | None = None
) -> DriftRecord:
    """Keep that drift was seen; while the same reason waits for a recurrence, saying so again changes nothing."""
    text("reason", reason, at_most=MAX_REASON_CHARACTERS)
    if value is not None:
        value = number("value", value)
    job = locked_job(transaction, job_id)
    waiting = [row for row in pending_drifts(transaction, job) if row.reason == reason]
    return drift_record(waiting[0] if waiting else _add(transaction, now, job, reason, value, None))


def drifts(transaction: Transaction, job_id: str) -> tuple[DriftRecord, ...]:
    """Return every drift that was signalled of a job, oldest first."""
    find_job(transaction, job_id)
    return tuple(drift_record(row) for row in rows(transaction, _OF_JOB, {"job_id": job_id}))


def pending_drifts(transaction: Transaction, job: Row) -> list[Row]:
    """Return a job's drifts that have started no recurrence yet, oldest first."""
    return rows(transaction, _PENDING, {"job_id": job.job_id})


def consume_drifts(
    transaction: Transaction, now: datetime, job: Row, recurrence_number: int, *, new_version: str = ""
) -> list[str]:
    """Let a recurrence take all drifts that wait for one, and return their reasons.

    Args:
        transaction: Holds the job.
        now: The present moment.
        job: The job.
        recurrence_number: The recurrence's number in the job.
        new_version: The version of the raw data where that has changed, which is a drift too.
    """
    waiting = pending_drifts(transaction, job)
    if waiting:
        transaction.write(_TAKE, {"job": job.job_id, "recurrence_number": recurrence_number})
    reasons = [row.reason for row in waiting]
    if new_version:
        reasons.append(f"data_version is now {new_version!r}"[:MAX_REASON_CHARACTERS])
        _add(transaction, now, job, reasons[-1], None, recurrence_number)
    return reasons


def give_drifts_back(transaction: Transaction, job: Row, recurrence_number: int) -> None:
    """Let what a recurrence took wait for the next one, but for what has come again meanwhile and waits already."""
    transaction.write(_GIVE_BACK, {"job": job.job_id, "number": recurrence_number})


def note_cost_drift(transaction: Transaction, now: datetime, job: Row, trial: Row) -> None:
    """Signal drift if the latest costs or metrics at a finished trial's batch size no longer fit the earlier ones.

    Trials on another accelerator are left aside, and so are those from before the same drift was signalled last. The
    metrics are those of trials that came to the target or had all their epochs: of others they say nothing. A job
    without a period has none that drift could cut short, and its reports need not look.
    """
    # What a hopeless trial cost up to its early end is no sign of anything.
    is_measured = trial.cost is not None and trial.least_epochs is None and not trial.data_missing
    if not job.period_s or not is_measured or trial.generation != job.generation:
        return
    found = rows(transaction, _COSTS, _key(job, trial))
    _note(transaction, now, job, f"the cost at batch size {trial.batch_size}", [(r.cost, r.issued_at) for r in found])
    full = [r for r in found if r.metric is not None and _was_full(job, r)]
    _note(
        transaction, now, job, f"the metric at batch size {trial.batch_size}", [(r.metric, r.issued_at) for r in full]
    )


def _was_full(job: Row, trial: Row) -> bool:
    return bool(trial.state == TrialState.REACHED or (trial.num_epochs or 0) >= job.max_epochs)


def _note(
    transaction: Transaction, now: datetime, job: Row, what: str, values: Sequence[tuple[float, datetime]]
) -> None:
    """Signal drift if the latest of values no longer fit the earlier ones, each with when its trial was handed out."""
    drift = cost_drift([value for value, _ in values])
    if drift is None:
        return
    reason = f"{what} has {'risen' if drift.rises else 'fallen'}"
    before = rows(transaction, _SAME, {"job_id": job.job_id, "reason": reason})
    if before:
        drift = cost_drift([value for value, issued_at in values if issued_at > before[-1].signalled_at])
    if drift is not None:
        _add(transaction, now, job, reason, drift.recent_mean if "metric" in what else drift.ratio, None)


def _key(job: Row, trial: Row) -> dict[str, object]:
    return {
        "job_id": job.job_id,
        "after": job.trial_count - _LOOKED_AT,
        "batch_size": trial.batch_size,
        "generation": trial.generation,
        "accelerator": trial.accelerator,
    }


def _add(
    transaction: Transaction, now: datetime, job: Row, reason: str, value: float | None, recurrence_number: int | None
) -> Row:
    values = {
        "job_id": job.job_id,
        "reason": reason,
        "value": value,
        "signalled_at": now,
        "recurrence_number": recurrence_number,
    }
    return add(transaction, DRIFT, values)
