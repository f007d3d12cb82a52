"""How often things are done over again: preprocessing, by the key of KFP's cache, and the builder's own stages."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, select, update

from zeus_kfp.state_store.locking import step_lease_from
from zeus_kfp.state_store.records import RecurrenceState
from zeus_kfp.state_store.statements import Row, add, locked_job, put, required_recurrence, rows
from zeus_kfp.state_store.tables import RECURRENCE, STAGE_TURN
from zeus_kfp.state_store.transaction import Transaction
from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.job import ONCE
from zeus_kfp.zeus_core.validation import integer, text

_TURNS = (
    select(STAGE_TURN, RECURRENCE.c.state)
    .select_from(
        STAGE_TURN.join(
            RECURRENCE,
            (RECURRENCE.c.job_id == STAGE_TURN.c.job_id) & (RECURRENCE.c.number == STAGE_TURN.c.recurrence_number),
        )
    )
    .where(STAGE_TURN.c.job_id == bindparam("job_id"), STAGE_TURN.c.stage == bindparam("stage"))
    .where(STAGE_TURN.c.recurrence_number > bindparam("after"))
)
_DONE = update(STAGE_TURN).where(
    STAGE_TURN.c.job_id == bindparam("job"),
    STAGE_TURN.c.stage == bindparam("of_stage"),
    STAGE_TURN.c.recurrence_number == bindparam("number"),
)


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
    is_due = job.preprocess_every > 0 and number - job.data_began_number >= job.preprocess_every
    generation, why = job.data_generation, ""
    if is_gone:
        why = "The preprocessed data was gone from storage and is made again"
    elif is_new_data(job, data_version) and job.preprocess_every != ONCE:
        why = f"The raw data is now {version!r}, and is preprocessed again"
    elif job.data_began_number and is_due:
        why = f"The data is preprocessed again (preprocess_every {job.preprocess_every})"
    if why and not is_gone and job.preprocess_every:
        # A version that comes back would find what it left in KFP's cache, however old.
        generation += 1
    began = number if why or not job.data_began_number else job.data_began_number
    changes = {"data_version": version, "data_generation": generation, "data_began_number": began}
    return DataOfNext(changes, _epoch(job, version, generation), why)


def data_gone(job: Row, recurrence: Row) -> dict[str, Any]:
    """Return what changes in a job's row once the data of a recurrence turned out to be gone from storage."""
    if recurrence.data_epoch != _epoch(job, job.data_version, job.data_generation):
        return {}  # somebody has seen it before, or the data has changed since
    return {"data_generation": job.data_generation + 1, "data_began_number": 0}


def _epoch(job: Row, version: str, generation: int) -> str:
    """Return the key of data; that of a job that preprocesses once holds no version, so that none makes it anew."""
    return f"{'' if job.preprocess_every == ONCE else version}-{generation}"


def take_stage_turn(transaction: Transaction, now: datetime, job_id: str, run_id: str, stage: str, every: int) -> bool:
    """Return whether it is a stage's turn in a recurrence, and keep that it was; the same answer again if asked again.

    Args:
        transaction: Writes.
        now: The present moment.
        job_id: The job's name.
        run_id: The KFP run.
        stage: The stage's name.
        every: Recurrences from one turn to the next; 0: once for each data epoch; -1: once per job.
    """
    text("stage", stage)
    integer("every", every, at_least=ONCE)
    job = locked_job(transaction, job_id)
    recurrence = required_recurrence(transaction, job_id, run_id)
    if recurrence.state == RecurrenceState.OPEN:
        put(transaction, RECURRENCE, recurrence, lease_expires_at=step_lease_from(now, job))
    # Turns that many recurrences before, or earlier, stand in no other's way.
    after = max(recurrence.number - every, 0) if every > 0 else 0
    turns = rows(transaction, _TURNS, {"job_id": job.job_id, "stage": stage, "after": after})
    if any(turn.recurrence_number == recurrence.number for turn in turns):
        return True
    in_the_way = [turn for turn in turns if not _is_lost(turn)]
    if not every:
        in_the_way = [turn for turn in in_the_way if turn.data_epoch == recurrence.data_epoch]
    if in_the_way:
        return False
    turn = {"job_id": job.job_id, "stage": stage, "recurrence_number": recurrence.number}
    add(transaction, STAGE_TURN, turn | {"data_epoch": recurrence.data_epoch})
    return True


def finish_stage_turn(transaction: Transaction, now: datetime, job_id: str, run_id: str, stage: str) -> None:
    """Keep that a stage was done in a recurrence whose turn it was; once more changes nothing."""
    text("stage", stage)
    locked_job(transaction, job_id)
    recurrence = required_recurrence(transaction, job_id, run_id)
    key = {"job_id": job_id, "stage": stage, "after": recurrence.number - 1}
    turns = [t for t in rows(transaction, _TURNS, key) if t.recurrence_number == recurrence.number]
    if not turns:
        raise InvalidValueError(
            f"it was not the turn of stage {stage!r} in run {run_id!r} of job {job_id!r}: stage_turn comes first"
        )
    if turns[0].done_at is None:
        transaction.write(_DONE, {"job": job_id, "of_stage": stage, "number": recurrence.number, "done_at": now})


def _is_lost(turn: Row) -> bool:
    """Whether a turn came to nothing: its recurrence has ended, and the stage was not done."""
    return turn.done_at is None and turn.state != RecurrenceState.OPEN
