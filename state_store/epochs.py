"""How often things are done over again: preprocessing, by the key of KFP's cache, and the builder's own stages."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, insert, select
from sqlalchemy.engine import Connection

from zeus_kfp.state_store.statements import Row, locked_job, required_recurrence, rows
from zeus_kfp.state_store.tables import STAGE_TURN
from zeus_kfp.zeus_core.validation import integer, text

_TURNS = select(STAGE_TURN).where(STAGE_TURN.c.job_id == bindparam("job_id"), STAGE_TURN.c.stage == bindparam("stage"))


@dataclass(frozen=True, slots=True)
class DataOfNext:
    """The preprocessed data of a job's next recurrence.

    Attributes:
        changes: What changes in the job's row.
        data_epoch: Key of the data: the same key, no second preprocessing.
        why: Why it is made again, for people; "" if it is not, or for the first time.
    """

    changes: dict[str, Any]
    data_epoch: str
    why: str


def is_new_data(job: Row, data_version: str) -> bool:
    """Return whether a run states another version of the raw data than the recurrences before it."""
    return bool(data_version and job.recurrence_count and data_version != job.data_version)


def data_is_gone(job: Row) -> bool:
    """Return whether the preprocessed data was found gone from storage, and has not been made again yet."""
    return bool(job.data_generation and not job.data_began_number)


def data_of_next(job: Row, data_version: str) -> DataOfNext:
    """Return the data of a job's next recurrence; a run that states no version uses the job's last one."""
    number = job.recurrence_count + 1
    version = data_version or job.data_version
    is_gone = data_is_gone(job)
    is_due = bool(job.preprocess_every) and number - job.data_began_number >= job.preprocess_every
    generation, why = job.data_generation, ""
    if is_gone:
        why = "The preprocessed data was gone from storage and is made again"
    elif is_new_data(job, data_version):
        why = f"The raw data is now {version!r}, and is preprocessed again"
    elif job.data_began_number and is_due:
        why = f"The data is preprocessed again (preprocess_every {job.preprocess_every})"
    if why and not is_gone and job.preprocess_every:
        # A version that comes back would find what it left in KFP's cache, however old.
        generation += 1
    began = number if why or not job.data_began_number else job.data_began_number
    changes = {"data_version": version, "data_generation": generation, "data_began_number": began}
    return DataOfNext(changes, f"{version}-{generation}", why)


def data_gone(job: Row, recurrence: Row) -> dict[str, Any]:
    """Return what changes in a job's row once the data of a recurrence turned out to be gone from storage."""
    if recurrence.data_epoch != f"{job.data_version}-{job.data_generation}":
        return {}  # somebody has seen it before, or the data has changed since
    return {"data_generation": job.data_generation + 1, "data_began_number": 0}


def take_stage_turn(connection: Connection, job_id: str, run_id: str, stage: str, every: int) -> bool:
    """Return whether it is a stage's turn in a recurrence, and keep that it was; the same answer again if asked again.

    Args:
        connection: Inside a transaction that writes.
        job_id: The job's name.
        run_id: The KFP run.
        stage: The stage's name.
        every: Recurrences from one turn to the next; 0: once for each data epoch.
    """
    text("stage", stage)
    integer("every", every, at_least=0)
    job = locked_job(connection, job_id)
    recurrence = required_recurrence(connection, job_id, run_id)
    turns = rows(connection, _TURNS, {"job_id": job.job_id, "stage": stage})
    if any(turn.recurrence_number == recurrence.number for turn in turns):
        return True
    if not _is_turn(recurrence, turns, every):
        return False
    values = {"recurrence_number": recurrence.number, "data_epoch": recurrence.data_epoch}
    connection.execute(insert(STAGE_TURN).values(job_id=job.job_id, stage=stage, **values))
    return True


def _is_turn(recurrence: Row, turns: list[Row], every: int) -> bool:
    if not every:
        return all(turn.data_epoch != recurrence.data_epoch for turn in turns)
    return all(recurrence.number - turn.recurrence_number >= every for turn in turns)
