"""A transaction, with as few trips to the server as what is read allows.

A trip to PostgreSQL puts both processes to sleep and wakes them up again, which mostly takes longer than the statement.
So what begins the transaction, locks or writes waits until something is read or the transaction ends, and goes along
with that; and queries that do not depend on each other go together. SQLite is no server: there each statement is run
at once.
"""

import random
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from importlib import import_module
from itertools import chain
from typing import Any

from sqlalchemy import Float, Insert, Select, Table, func, select, text
from sqlalchemy.sql import ClauseElement
from sqlalchemy.types import TypeEngine

from zeus_kfp.state_store.compiled import Compiled
from zeus_kfp.state_store.prepared import PreparedStatements
from zeus_kfp.state_store.tables import UtcDateTime

Compiler = Callable[[ClauseElement, tuple[str, ...]], Compiled]
Found = tuple[Sequence[str], list[list[Any]]]
"""Names of columns, and the records."""

_NONE: Mapping[str, Any] = {}
_LONGEST_TRANSACTION_MS = 60_000
_FIRST_PAUSE_S = 0.01
_LOCK_NAME = text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 7305826124381))")


class Transaction(ABC):
    """One transaction; what it wrote is read by its own queries, whether or not it has gone out yet.

    It is rolled back by closing its connection.
    """

    dialect: str
    """SQLAlchemy's name of the kind of database."""

    def __init__(self, driver: Any, compiled: Compiler) -> None:
        """Use a driver's connection; whoever made it begins and ends the transaction, or lets this do it.

        Args:
            driver: The connection.
            compiled: Returns a statement, and the names of its values, compiled.
        """
        self._driver = driver
        self._compiled = compiled

    @abstractmethod
    def begin(self, *, write: bool) -> None:
        """Begin: to write, or to read one state of the database."""

    @abstractmethod
    def write(self, statement: ClauseElement, parameters: Mapping[str, Any] = _NONE) -> None:
        """Execute a statement that gives nothing back."""

    def write_unless_there(self, table: Table, values: Mapping[str, Any]) -> None:
        """Add a row, unless there is one with its key."""
        self.write(_insert_unless_there(self.dialect, table), values)

    @abstractmethod
    def lock_name(self, name: str) -> None:
        """Keep others who lock the same name waiting until the transaction ends."""

    @abstractmethod
    def read(self, query: Select[Any], parameters: Mapping[str, Any] = _NONE) -> Found:
        """Return what a query finds."""

    @abstractmethod
    def read_together(self, queries: Sequence[Select[Any]], parameters: Mapping[str, Any]) -> list[Found]:
        """Return what each of several queries of one table finds, in any order; parameters are those of all of them."""

    @abstractmethod
    def flush(self) -> None:
        """Let go out what waits."""

    @abstractmethod
    def commit(self) -> None:
        """End the transaction, and keep what it wrote."""


class SqliteTransaction(Transaction):
    """A transaction of SQLite; one that writes holds the whole database."""

    dialect = "sqlite"

    def __init__(self, driver: sqlite3.Connection, compiled: Compiler, patience_s: float) -> None:
        """Use a connection, and wait so long in s for others that write."""
        super().__init__(driver, compiled)
        self._patience_s = patience_s

    def begin(self, *, write: bool) -> None:
        """Begin; as the only one that writes, if this one does."""
        if write:
            begin_writing(self._driver, self._patience_s)
        else:
            self._driver.execute("BEGIN")

    def write(self, statement: ClauseElement, parameters: Mapping[str, Any] = _NONE) -> None:
        """Execute a statement."""
        compiled = self._compiled(statement, tuple(parameters))
        self._driver.execute(compiled.text, compiled.values(parameters))

    def lock_name(self, name: str) -> None:
        """Do nothing: the whole database is held."""

    def read(self, query: Select[Any], parameters: Mapping[str, Any] = _NONE) -> Found:
        """Return what a query finds."""
        compiled = self._compiled(query, tuple(parameters))
        fetched = self._driver.execute(compiled.text, compiled.values(parameters)).fetchall()
        return compiled.names, compiled.records(fetched)

    def read_together(self, queries: Sequence[Select[Any]], parameters: Mapping[str, Any]) -> list[Found]:
        """Return what each query finds."""
        return [self.read(query, parameters) for query in queries]

    def flush(self) -> None:
        """Do nothing: nothing waits."""

    def commit(self) -> None:
        """Commit."""
        self._driver.execute("COMMIT")


class PostgresqlTransaction(Transaction):
    """A transaction of PostgreSQL, on a connection that begins none by itself (autocommit)."""

    dialect = "postgresql"

    def __init__(self, driver: Any, compiled: Compiler, patience_s: float, prepared: PreparedStatements | None) -> None:
        """Use a connection of psycopg2.

        Args:
            driver: The connection.
            compiled: Returns a statement, and the names of its values, compiled.
            patience_s: How long to wait in s for locks.
            prepared: The connection's prepared statements; None where it outlives a transaction that fails.
        """
        super().__init__(driver, compiled)
        self._settings = postgresql_settings(patience_s)
        self._prepared = prepared
        self._cursor = driver.cursor()
        self._waiting: list[bytes] = []
        self._is_begun = False

    def begin(self, *, write: bool) -> None:
        """Begin, with the first statement."""
        if self._driver.get_transaction_status():
            # An interrupt kept whoever had the connection before from closing it.
            self._cursor.execute("ROLLBACK")
        # Whoever waited for a job's row must see what the one before has written; whoever reads, one state.
        level = b"READ COMMITTED" if write else b"REPEATABLE READ"
        renewal = self._prepared.begin() if self._prepared else b""
        self._waiting.append(b"BEGIN ISOLATION LEVEL " + level + b"; " + self._settings.encode() + renewal)

    def write(self, statement: ClauseElement, parameters: Mapping[str, Any] = _NONE) -> None:
        """Execute a statement, with the next query or at the end."""
        self._let_wait(self._compiled(statement, tuple(parameters)), parameters)

    def lock_name(self, name: str) -> None:
        """Hold an advisory lock."""
        self.write(_LOCK_NAME, {"name": name})

    def read(self, query: Select[Any], parameters: Mapping[str, Any] = _NONE) -> Found:
        """Return what a query finds, after all that waits."""
        compiled = self._compiled(query, tuple(parameters))
        self._let_wait(compiled, parameters)
        self.flush()
        return compiled.names, compiled.records(self._cursor.fetchall())

    def read_together(self, queries: Sequence[Select[Any]], parameters: Mapping[str, Any]) -> list[Found]:
        """Return what each query finds, in one trip: each one's records come as one JSON array."""
        _, (arrays,) = self.read(_as_json(tuple(queries)), parameters)
        return [_from_json(query, array or ()) for query, array in zip(queries, arrays, strict=True)]

    def flush(self) -> None:
        """Send what waits in one trip."""
        if self._waiting:
            statements, self._waiting = b";\n".join(self._waiting), []
            self._is_begun = True
            self._cursor.execute(statements)
            if self._prepared:
                self._prepared.have_gone_out()

    def commit(self) -> None:
        """Send what waits, and commit, in one trip; one that has sent nothing has nothing to send."""
        if self._is_begun or len(self._waiting) > 1:
            self._waiting.append(b"COMMIT")
            self.flush()

    def _let_wait(self, compiled: Compiled, parameters: Mapping[str, Any]) -> None:
        preparation, text_ = self._prepared.text_of(compiled, self._cursor) if self._prepared else (b"", compiled.text)
        if preparation:
            self._waiting.append(preparation)
        self._waiting.append(self._cursor.mogrify(text_, compiled.values(parameters)))


def postgresql_settings(patience_s: float) -> str:
    """Return what gives a transaction its time-outs, and floats in full, whatever its server is set to.

    Whoever stalls while it holds a job's row must not hold up the job's other steps for ever. The settings are the
    transaction's own, since behind a pooler the next one may have another connection.
    """
    return (
        f"SET LOCAL lock_timeout = {max(int(patience_s * 1000), 1)}; "
        f"SET LOCAL idle_in_transaction_session_timeout = {_LONGEST_TRANSACTION_MS}; "
        "SET LOCAL extra_float_digits = 3"
    )


def begin_writing(driver: Any, patience_s: float) -> None:
    """Begin a transaction as the only writer, looking from time to time whether nobody else writes.

    Whoever has waited for long looks every other millisecond, whoever has just come less often: a look takes time from
    the one that is waited for. SQLite's own waiting does it the other way round, down to ten looks a second, so that of
    many writers most would sleep while none writes, and some for long.
    """
    begun_s = time.monotonic()
    driver.execute("PRAGMA busy_timeout = 0")
    try:
        while True:
            try:
                driver.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                waited_s = time.monotonic() - begun_s
                if not error.sqlite_errorname.startswith("SQLITE_BUSY") or waited_s >= patience_s:
                    raise
            pause_s = max(_FIRST_PAUSE_S / (1 + waited_s / 0.02), 0.001)
            time.sleep(random.uniform(0.5, 1.5) * pause_s)
    finally:
        driver.execute(f"PRAGMA busy_timeout = {int(patience_s * 1000)}")


@lru_cache(maxsize=8)
def _insert_unless_there(dialect: str, table: Table) -> Insert:
    # The module of the dialect in use is loaded already; the other's would only cost its import.
    insert: Insert = import_module(f"sqlalchemy.dialects.{dialect}").insert(table).inline().on_conflict_do_nothing()
    return insert


@lru_cache(maxsize=64)
def _as_json(queries: tuple[Select[Any], ...]) -> Select[Any]:
    arrays = (query.with_only_columns(func.json_agg(_record(query)), maintain_column_froms=True) for query in queries)
    return select(*(array.order_by(None).scalar_subquery() for array in arrays))


def _record(query: Select[Any]) -> Any:
    """Return what makes one JSON object of a row; naming no column is planned in half the time."""
    columns = list(query.selected_columns)
    table = columns[0].table
    if len(columns) == len(table.columns):
        return table.table_valued()
    return func.json_build_object(*chain.from_iterable((column.key, column) for column in columns))


def _from_json(query: Select[Any], array: Sequence[Mapping[str, Any]]) -> Found:
    columns = _columns(query)
    records = [
        [value if (value := row[name]) is None or made is None else made(value) for name, made in columns]
        for row in array
    ]
    return [name for name, _ in columns], records


@lru_cache(maxsize=64)
def _columns(query: Select[Any]) -> list[tuple[str, Callable[[Any], Any] | None]]:
    return [(str(column.key), _made(column.type)) for column in query.selected_columns]


def _made(type_: TypeEngine[Any]) -> Callable[[Any], Any] | None:
    """Return how a column's values are made from JSON, which has no moments, and writes 100.0 as 100."""
    if isinstance(type_, UtcDateTime):
        return _moment
    return float if isinstance(type_, Float) else None


def _moment(written: str) -> datetime:
    return datetime.fromisoformat(written).astimezone(UTC)
