"""Reading and changing rows: every statement that more than one operation needs, compiled once.

The operations work below SQLAlchemy's ORM: a suggestion must cost a few milliseconds, and the unit of work would take
several times as long as the database. A row that was read is a plain namespace; `put` changes it, in the database
and in the namespace alike.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from sqlalchemy import Select, Table, Update, bindparam, insert, literal_column, select, update

from zeus_kfp.state_store.tables import ARM, DRIFT, JOB, PROFILE, RECURRENCE, STAGE_TURN, TRIAL
from zeus_kfp.state_store.transaction import Transaction
from zeus_kfp.zeus_core.errors import UnknownJobError, UnknownRecurrenceError, UnknownTrialError
from zeus_kfp.zeus_core.trial import TrialState


class Row(SimpleNamespace):
    """A row as it stands in the transaction, its columns as attributes."""


@dataclass(frozen=True, slots=True)
class HeldRun:
    """A run, and all that its trials depend on.

    Attributes:
        job: Its job.
        recurrence: Its recurrence.
        trials: Its trials, by slot.
        others: Trials of the job's other runs that have not ended, in the order in which they were handed out.
        arms: What is kept of each batch size of the job.
    """

    job: Row
    recurrence: Row
    trials: list[Row]
    others: list[Row]
    arms: dict[int, Row]

    def trial_at(self, slot: int) -> Row | None:
        """Return the trial that was handed out to a slot, if there is one."""
        return next((trial for trial in self.trials if trial.slot == slot), None)

    def required_trial_at(self, slot: int) -> Row:
        """Return the trial that was handed out to a slot.

        Raises:
            UnknownTrialError: If there is none.
        """
        trial = self.trial_at(slot)
        if trial is None:
            raise UnknownTrialError(
                f"no trial of job {self.job.job_id!r} was handed out to slot {slot!r} of run {self.recurrence.run_id!r}"
            )
        return trial


def labelled(table: Table) -> list[Any]:
    """Return a table's columns under names that no other table's have, for a join."""
    return [column.label(f"{table.name}.{column.name}") for column in table.columns]


_JOB = select(JOB).where(JOB.c.job_id == bindparam("job_id"))
_LOCKED_JOB = _JOB.with_for_update()
_LOCK_JOB: Select[Any] = _JOB.with_only_columns(literal_column("1")).with_for_update()
_RECURRENCE = select(RECURRENCE).where(
    RECURRENCE.c.job_id == bindparam("job_id"), RECURRENCE.c.run_id == bindparam("run_id")
)
_TRIALS = select(TRIAL).where(TRIAL.c.recurrence_id == bindparam("recurrence_id")).order_by(TRIAL.c.slot)
# Only what says whether a trial lives and where it looks: at most a suggestion's price, however many are under way.
_OF_ISSUED = (
    *("id", "recurrence_id", "number", "batch_size", "purpose", "generation"),
    *("state", "reason", "issued_at", "lease_expires_at", "finished_at"),
)
# Sorted by whoever reads it: asked to sort, SQLite would walk the job's whole history in its order.
_ISSUED = select(*(TRIAL.c[name] for name in _OF_ISSUED)).where(
    TRIAL.c.job_id == bindparam("job_id"), TRIAL.c.state == TrialState.ISSUED.value
)
# A join takes a server three times as long to plan.
_TRIALS_OF_RUN = select(TRIAL).where(
    TRIAL.c.recurrence_id == _RECURRENCE.with_only_columns(RECURRENCE.c.id).scalar_subquery()
)
_ARMS = select(ARM).where(ARM.c.job_id == bindparam("job_id"))
_UPDATES: dict[Table, Update] = {
    table: update(table).where(key == bindparam("key"))
    for table, key in ((JOB, JOB.c.job_id), (RECURRENCE, RECURRENCE.c.id), (TRIAL, TRIAL.c.id))
}
_UPDATE_ARM = update(ARM).where(ARM.c.job_id == bindparam("job"), ARM.c.batch_size == bindparam("size"))
_INSERTS = {table: insert(table).inline() for table in (RECURRENCE, TRIAL, PROFILE, ARM, DRIFT, STAGE_TURN)}


def rows(transaction: Transaction, query: Select[Any], parameters: Mapping[str, Any] | None = None) -> list[Row]:
    """Return the rows of a query."""
    names, records = transaction.read(query, parameters or {})
    return [_row(names, values) for values in records]


def count(transaction: Transaction, query: Select[Any], parameters: Mapping[str, Any]) -> int:
    """Return the number that a query counts."""
    _, ((number,),) = transaction.read(query, parameters)
    return int(number)


def joined(
    transaction: Transaction,
    query: Select[Any],
    left: Table,
    right: Table,
    parameters: Mapping[str, Any] | None = None,
) -> list[tuple[Row, Row]]:
    """Return the rows of a query for all columns of two tables (`labelled`), in this order, as pairs."""
    of_left, of_right = left.columns.keys(), right.columns.keys()
    border = len(of_left)
    _, found = transaction.read(query, parameters or {})
    return [(_row(of_left, values[:border]), _row(of_right, values[border:])) for values in found]


def find_job(transaction: Transaction, job_id: str) -> Row:
    """Return a job.

    Raises:
        UnknownJobError: If there is no such job.
    """
    return _required_job(rows(transaction, _JOB, {"job_id": job_id}), job_id)


def locked_job(transaction: Transaction, job_id: str) -> Row:
    """Return a job; no other process changes it until the transaction ends.

    SQLite's transaction holds the whole database already; its FOR UPDATE is none.

    Raises:
        UnknownJobError: If there is no such job.
    """
    return _required_job(rows(transaction, _LOCKED_JOB, {"job_id": job_id}), job_id)


def held_run(transaction: Transaction, job_id: str, run_id: str) -> HeldRun:
    """Return a run and all that its trials depend on; no other process changes the job until the transaction ends.

    Raises:
        UnknownJobError: If there is no such job.
        UnknownRecurrenceError: If the run opened none.
    """
    of_run = {"job_id": job_id, "run_id": run_id}
    # Those who wait for a row get it in any order, those who wait for a name in turn.
    transaction.lock_name(f"job {job_id}")
    # Before the rest is read: each statement sees what was committed before it.
    transaction.write(_LOCK_JOB, {"job_id": job_id})
    queries = (_JOB, _RECURRENCE, _TRIALS_OF_RUN, _ISSUED, _ARMS)
    jobs, recurrences, trials, issued, arms = _together(transaction, queries, of_run)
    job, recurrence = _required_job(jobs, job_id), _required_recurrence(recurrences, of_run)
    others = [trial for trial in _by_number(issued) if trial.recurrence_id != recurrence.id]
    return HeldRun(job, recurrence, _by_slot(trials), others, {arm.batch_size: arm for arm in arms})


def find_recurrence(transaction: Transaction, job_id: str, run_id: str) -> Row | None:
    """Return the recurrence of a run, None if the run opened none."""
    found = rows(transaction, _RECURRENCE, {"job_id": job_id, "run_id": run_id})
    return found[0] if found else None


def required_recurrence(transaction: Transaction, job_id: str, run_id: str) -> Row:
    """Return the recurrence of a run.

    Raises:
        UnknownRecurrenceError: If the run opened none.
    """
    of_run = {"job_id": job_id, "run_id": run_id}
    return _required_recurrence(rows(transaction, _RECURRENCE, of_run), of_run)


def recurrence_with_trials(transaction: Transaction, job_id: str, run_id: str) -> tuple[Row, list[Row]]:
    """Return the recurrence of a run, and its trials by slot.

    Raises:
        UnknownRecurrenceError: If the run opened none.
    """
    of_run = {"job_id": job_id, "run_id": run_id}
    recurrences, trials = _together(transaction, (_RECURRENCE, _TRIALS_OF_RUN), of_run)
    return _required_recurrence(recurrences, of_run), _by_slot(trials)


def trials_of(transaction: Transaction, recurrence: Row) -> list[Row]:
    """Return a recurrence's trials by slot."""
    return rows(transaction, _TRIALS, {"recurrence_id": recurrence.id})


def issued_trials(transaction: Transaction, job: Row) -> list[Row]:
    """Return a job's trials that have not ended, in the order in which they were handed out."""
    return _by_number(rows(transaction, _ISSUED, {"job_id": job.job_id}))


def arms_of(transaction: Transaction, job: Row) -> dict[int, Row]:
    """Return what is kept of each batch size of a job."""
    return {arm.batch_size: arm for arm in rows(transaction, _ARMS, {"job_id": job.job_id})}


def put(transaction: Transaction, table: Table, row: Row, **changes: Any) -> None:
    """Change a job, recurrence or trial; columns that stay as they are are not written."""
    changes = {name: value for name, value in changes.items() if getattr(row, name) != value}
    if changes:
        key = row.job_id if table is JOB else row.id
        transaction.write(_UPDATES[table], {"key": key, **changes})
        vars(row).update(changes)


def put_arms(transaction: Transaction, job: Row, changes: Mapping[int, Mapping[str, Any]]) -> None:
    """Change what is kept of batch sizes."""
    for batch_size, values in changes.items():
        transaction.write(_UPDATE_ARM, {"job": job.job_id, "size": batch_size, **values})


def add(transaction: Transaction, table: Table, values: Mapping[str, Any]) -> Row:
    """Add a row and return it; a key that the database gives it is not known."""
    transaction.write(_INSERTS[table], values)
    return Row(**values)


def add_all(transaction: Transaction, table: Table, values: Iterable[Mapping[str, Any]]) -> None:
    """Add rows."""
    for row in values:
        transaction.write(_INSERTS[table], row)


def _row(names: Sequence[str], values: Iterable[Any]) -> Row:
    row = Row()
    vars(row).update(zip(names, values, strict=True))
    return row


def _together(
    transaction: Transaction, queries: Sequence[Select[Any]], parameters: Mapping[str, Any]
) -> list[list[Row]]:
    found = transaction.read_together(queries, parameters)
    return [[_row(names, values) for values in records] for names, records in found]


def _by_number(trials: Iterable[Row]) -> list[Row]:
    return sorted(trials, key=lambda trial: int(trial.number))


def _by_slot(trials: Iterable[Row]) -> list[Row]:
    return sorted(trials, key=lambda trial: int(trial.slot))


def _required_recurrence(found: Sequence[Row], of_run: Mapping[str, str]) -> Row:
    if not found:
        raise UnknownRecurrenceError(
            f"run {of_run['run_id']!r} opened no recurrence of job {of_run['job_id']!r}: open_recurrence comes first"
        )
    return found[0]


def _required_job(found: Sequence[Row], job_id: str) -> Row:
    if not found:
        raise UnknownJobError(f"the store holds no job {job_id!r}: open_recurrence registers it")
    return found[0]
