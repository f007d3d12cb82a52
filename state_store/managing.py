"""What people do to a whole job: end it, go on with it, strike it out, let it start over."""

from datetime import datetime

from sqlalchemy import bindparam, delete

from zeus_kfp.state_store.gating import has_had_all
from zeus_kfp.state_store.generators import seeded_state
from zeus_kfp.state_store.learning import relearn
from zeus_kfp.state_store.locking import open_count, open_recurrences, reap
from zeus_kfp.state_store.records import JobPhase
from zeus_kfp.state_store.statements import Row, locked_job, put
from zeus_kfp.state_store.tables import ARM, DRIFT, JOB, PROFILE, RECURRENCE, STAGE_TURN, TRIAL
from zeus_kfp.state_store.transaction import Transaction
from zeus_kfp.zeus_core.errors import JobInUseError, UnknownJobError

_REMOVALS = {
    table: delete(table).where(table.c.job_id == bindparam("job_id"))
    for table in (STAGE_TURN, DRIFT, PROFILE, ARM, TRIAL, RECURRENCE, JOB)
}


def complete(transaction: Transaction, job_id: str) -> None:
    """End a job, whatever its num_recurrences."""
    job = locked_job(transaction, job_id)
    if job.phase == JobPhase.DELETED:
        raise JobInUseError(f"job {job_id!r} was deleted: `zeus-kfp jobs reopen` brings it back")
    put(transaction, JOB, job, phase=JobPhase.COMPLETED.value, ended_by_hand=True)


def reopen(transaction: Transaction, job_id: str) -> None:
    """Go on with a job that was completed or deleted; one that has had all its recurrences begins to count anew."""
    job = locked_job(transaction, job_id)
    counted_from = job.recurrence_count if has_had_all(transaction, job) else job.counted_from
    put(transaction, JOB, job, phase=JobPhase.RUNNING.value, ended_by_hand=False, counted_from=counted_from)


def strike_out(transaction: Transaction, now: datetime, job_id: str) -> None:
    """Delete a job and keep its history."""
    job = locked_job(transaction, job_id)
    _refuse_in_use(transaction, job, now)
    put(transaction, JOB, job, phase=JobPhase.DELETED.value)


def purge(transaction: Transaction, now: datetime, job_id: str) -> None:
    """Remove a job with all its rows; a job that is gone already stays so."""
    try:
        job = locked_job(transaction, job_id)
    except UnknownJobError:
        return
    _refuse_in_use(transaction, job, now)
    _remove_history(transaction, job)
    transaction.write(_REMOVALS[JOB], {"job_id": job_id})


def reset(transaction: Transaction, now: datetime, job_id: str, *, keep_history: bool) -> None:
    """Forget what was learnt of a job, as if it had never run; its earlier trials no longer count."""
    job = locked_job(transaction, job_id)
    _refuse_in_use(transaction, job, now)
    if not keep_history:
        _remove_history(transaction, job)
        put(transaction, JOB, job, recurrence_count=0, trial_count=0, report_count=0)
        # A new key for its data, or the first recurrence would take the old data for gone from storage.
        new_data = {"data_generation": job.data_generation + 1, "data_began_number": 1}
        put(transaction, JOB, job, period_began_at=None, clock_back_at=None, **new_data)
    put(
        transaction,
        JOB,
        job,
        phase=JobPhase.RUNNING.value,
        ended_by_hand=False,
        counted_from=job.recurrence_count,
        generation=job.generation + 1,
        rated_power_w=job.max_power_w,
        generator_state=seeded_state(job.seed),
    )
    relearn(transaction, job)


def _remove_history(transaction: Transaction, job: Row) -> None:
    for table in (STAGE_TURN, DRIFT, PROFILE, ARM, TRIAL, RECURRENCE):
        transaction.write(_REMOVALS[table], {"job_id": job.job_id})


def _refuse_in_use(transaction: Transaction, job: Row, now: datetime) -> None:
    reap(transaction, job, now)
    running = open_count(transaction, job)
    if running:
        oldest = open_recurrences(transaction, job)[0]
        raise JobInUseError(
            f"job {job.job_id!r} has {running} open recurrence(s), the oldest number {oldest.number} of run "
            f"{oldest.run_id!r}: let them end, or close them with `zeus-kfp recurrences close`"
        )
