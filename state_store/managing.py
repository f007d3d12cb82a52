"""What people do to a whole job: end it, go on with it, strike it out, let it start over."""

from sqlalchemy import delete
from sqlalchemy.engine import Connection

from zeus_kfp.state_store.generators import seeded_state
from zeus_kfp.state_store.learning import relearn
from zeus_kfp.state_store.locking import oldest_open, open_count
from zeus_kfp.state_store.records import JobPhase
from zeus_kfp.state_store.statements import Row, locked_job, put
from zeus_kfp.state_store.tables import ARM, DRIFT, JOB, PROFILE, RECURRENCE, STAGE_TURN, TRIAL
from zeus_kfp.zeus_core.errors import JobInUseError


def set_phase(connection: Connection, job_id: str, phase: JobPhase) -> None:
    """End a job, go on with it, or strike it out; its history stays."""
    job = locked_job(connection, job_id)
    if phase is JobPhase.DELETED:
        _refuse_in_use(connection, job)
    put(connection, JOB, job, phase=phase.value)


def purge(connection: Connection, job_id: str) -> None:
    """Remove a job with all its rows."""
    job = locked_job(connection, job_id)
    _refuse_in_use(connection, job)
    _remove_history(connection, job)
    connection.execute(delete(JOB).where(JOB.c.job_id == job_id))


def reset(connection: Connection, job_id: str, *, keep_history: bool) -> None:
    """Forget what was learnt of a job, as if it had never run; its earlier trials no longer count."""
    job = locked_job(connection, job_id)
    _refuse_in_use(connection, job)
    if not keep_history:
        _remove_history(connection, job)
        put(connection, JOB, job, recurrence_count=0, trial_count=0, report_count=0)
        put(connection, JOB, job, period_began_at=None, clock_back_at=None, data_began_number=0)
    put(
        connection,
        JOB,
        job,
        phase=JobPhase.RUNNING.value,
        generation=job.generation + 1,
        rated_power_w=job.max_power_w,
        generator_state=seeded_state(job.seed),
    )
    relearn(connection, job)


def _remove_history(connection: Connection, job: Row) -> None:
    for table in (STAGE_TURN, DRIFT, PROFILE, ARM, TRIAL, RECURRENCE):
        connection.execute(delete(table).where(table.c.job_id == job.job_id))


def _refuse_in_use(connection: Connection, job: Row) -> None:
    running = open_count(connection, job)
    if running:
        oldest = oldest_open(connection, job)
        raise JobInUseError(
            f"job {job.job_id!r} has {running} open recurrence(s), the oldest number {oldest.number} of run "
            f"{oldest.run_id!r}: let them end, or close them with `zeus-kfp recurrences close`"
        )
