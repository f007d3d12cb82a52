"""Reading and changing rows: every statement that more than one operation needs, compiled once.

The operations work below SQLAlchemy's ORM: a suggestion must cost a few milliseconds, and the unit of work would take
several times as long as the database. A row that was read is a plain namespace; `put` changes it, in the database
and in the namespace alike.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from sqlalchemy import Select, Table, Update, bindparam, insert, select, update
from sqlalchemy.engine import Connection

from zeus_kfp.state_store.tables import ARM, JOB, PROFILE, RECURRENCE, TRIAL
from zeus_kfp.zeus_core.errors import UnknownJobError, UnknownRecurrenceError
from zeus_kfp.zeus_core.trial import TrialState


class Row(SimpleNamespace):
    """A row as it stands in the transaction, its columns as attributes."""


def labelled(table: Table) -> list[Any]:
    """Return a table's columns under names that no other table's have, for a join."""
    return [column.label(f"{table.name}.{column.name}") for column in table.columns]


_JOB = select(JOB).where(JOB.c.job_id == bindparam("job_id"))
_LOCKED_JOB = _JOB.with_for_update()
_RECURRENCE = select(RECURRENCE).where(
    RECURRENCE.c.job_id == bindparam("job_id"), RECURRENCE.c.run_id == bindparam("run_id")
)
_TRIALS = select(TRIAL).where(TRIAL.c.recurrence_id == bindparam("recurrence_id")).order_by(TRIAL.c.slot)
# Only what says whether a trial lives and where it looks: at most a suggestion's price, however many are under way.
_OF_ISSUED = (
    *("id", "number", "batch_size", "purpose", "generation"),
    *("state", "reason", "issued_at", "lease_expires_at", "finished_at"),
)
# Sorted by whoever reads it: asked to sort, SQLite would walk the job's whole history in its order.
_ISSUED = select(*(TRIAL.c[name] for name in _OF_ISSUED)).where(
    TRIAL.c.job_id == bindparam("job_id"), TRIAL.c.state == TrialState.ISSUED.value
)
_WITH_TRIALS = (
    select(*labelled(RECURRENCE), *labelled(TRIAL))
    .select_from(RECURRENCE.outerjoin(TRIAL, TRIAL.c.recurrence_id == RECURRENCE.c.id))
    .where(RECURRENCE.c.job_id == bindparam("job_id"), RECURRENCE.c.run_id == bindparam("run_id"))
    .order_by(TRIAL.c.slot)
)
_ARMS = select(ARM).where(ARM.c.job_id == bindparam("job_id"))
_UPDATES: dict[Table, Update] = {
    table: update(table).where(key == bindparam("key"))
    for table, key in ((JOB, JOB.c.job_id), (RECURRENCE, RECURRENCE.c.id), (TRIAL, TRIAL.c.id))
}
_UPDATE_ARM = update(ARM).where(ARM.c.job_id == bindparam("job"), ARM.c.batch_size == bindparam("size"))
_INSERTS = {table: insert(table) for table in (RECURRENCE, TRIAL, PROFILE, ARM)}


def rows(connection: Connection, query: Select[Any], parameters: Mapping[str, Any] | None = None) -> list[Row]:
    """Return the rows of a query."""
    result = connection.execute(query, parameters or {})
    names = tuple(result.keys())
    return [_row(names, values) for values in result]


def joined(
    connection: Connection,
    query: Select[Any],
    left: Table,
    right: Table,
    parameters: Mapping[str, Any] | None = None,
) -> list[tuple[Row, Row]]:
    """Return the rows of a query for all columns of two tables (`labelled`), in this order, as pairs."""
    of_left, of_right = left.columns.keys(), right.columns.keys()
    border = len(of_left)
    found = connection.execute(query, parameters or {})
    return [(_row(of_left, values[:border]), _row(of_right, values[border:])) for values in found]


def find_job(connection: Connection, job_id: str) -> Row:
    """Return a job.

    Raises:
        UnknownJobError: If there is no such job.
    """
    return _required_job(rows(connection, _JOB, {"job_id": job_id}), job_id)


def locked_job(connection: Connection, job_id: str) -> Row:
    """Return a job; no other process changes it until the transaction ends.

    SQLite's transaction holds the whole database already; its FOR UPDATE is none.

    Raises:
        UnknownJobError: If there is no such job.
    """
    return _required_job(rows(connection, _LOCKED_JOB, {"job_id": job_id}), job_id)


def find_recurrence(connection: Connection, job_id: str, run_id: str) -> Row | None:
    """Return the recurrence of a run, None if the run opened none."""
    found = rows(connection, _RECURRENCE, {"job_id": job_id, "run_id": run_id})
    return found[0] if found else None


def required_recurrence(connection: Connection, job_id: str, run_id: str) -> Row:
    """Return the recurrence of a run.

    Raises:
        UnknownRecurrenceError: If the run opened none.
    """
    recurrence = find_recurrence(connection, job_id, run_id)
    if recurrence is None:
        raise _unknown_recurrence(job_id, run_id)
    return recurrence


def recurrence_with_trials(connection: Connection, job_id: str, run_id: str) -> tuple[Row, list[Row]]:
    """Return the recurrence of a run, and its trials by slot.

    Raises:
        UnknownRecurrenceError: If the run opened none.
    """
    found = joined(connection, _WITH_TRIALS, RECURRENCE, TRIAL, {"job_id": job_id, "run_id": run_id})
    if not found:
        raise _unknown_recurrence(job_id, run_id)
    return found[0][0], [trial for _, trial in found if trial.id is not None]


def trials_of(connection: Connection, recurrence: Row) -> list[Row]:
    """Return a recurrence's trials by slot."""
    return rows(connection, _TRIALS, {"recurrence_id": recurrence.id})


def issued_trials(connection: Connection, job: Row) -> list[Row]:
    """Return a job's trials that have not ended, in the order in which they were handed out."""
    return sorted(rows(connection, _ISSUED, {"job_id": job.job_id}), key=lambda trial: int(trial.number))


def arms_of(connection: Connection, job: Row) -> dict[int, Row]:
    """Return what is kept of each batch size of a job."""
    return {arm.batch_size: arm for arm in rows(connection, _ARMS, {"job_id": job.job_id})}


def put(connection: Connection, table: Table, row: Row, **changes: Any) -> None:
    """Change a job, recurrence or trial; columns that stay as they are are not written."""
    changes = {name: value for name, value in changes.items() if getattr(row, name) != value}
    if changes:
        key = row.job_id if table is JOB else row.id
        connection.execute(_UPDATES[table], {"key": key, **changes})
        vars(row).update(changes)


def put_arms(connection: Connection, job: Row, changes: Mapping[int, Mapping[str, Any]]) -> None:
    """Change what is kept of batch sizes, those with the same columns in one statement."""
    alike: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for batch_size, values in changes.items():
        alike.setdefault(tuple(values), []).append({"job": job.job_id, "size": batch_size, **values})
    for parameters in alike.values():
        connection.execute(_UPDATE_ARM, parameters)


def add(connection: Connection, table: Table, values: Mapping[str, Any]) -> Row:
    """Add a row and return it."""
    result = connection.execute(_INSERTS[table], dict(values))
    keys = zip((column.name for column in table.primary_key), result.inserted_primary_key or (), strict=True)
    return Row(**{**values, **dict(keys)})


def add_all(connection: Connection, table: Table, values: Iterable[Mapping[str, Any]]) -> None:
    """Add rows."""
    listed = [dict(row) for row in values]
    if listed:
        connection.execute(_INSERTS[table], listed)


def _row(names: Sequence[str], values: Iterable[Any]) -> Row:
    row = Row()
    vars(row).update(zip(names, values, strict=True))
    return row


def _unknown_recurrence(job_id: str, run_id: str) -> UnknownRecurrenceError:
    return UnknownRecurrenceError(f"run {run_id!r} opened no recurrence of job {job_id!r}: open_recurrence comes first")


def _required_job(found: Sequence[Row], job_id: str) -> Row:
    if not found:
        raise UnknownJobError(f"the store holds no job {job_id!r}: open_recurrence registers it")
    return found[0]
