"""The connection to the database: its URL, its transactions, and its faults as the library's own errors."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import quote

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL, Connection, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError, OperationalError
from sqlmodel import Session
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from zeus_kfp.zeus_core.errors import InvalidValueError, StoreUnavailableError

STORE_VARIABLE = "ZEUS_KFP_STORE_URL"
"""Environment variable that holds the store's URL."""

BUSY_TIMEOUT_S = 30
"""How long an operation waits for another process's transaction, and tries again after a lost connection."""

_EXAMPLES = "sqlite:////absolute/path/store.db or postgresql://user:password@host/database"
_TRANSIENT = ("database is locked", "deadlock detected", "could not serialize", "server closed the connection")
T = TypeVar("T")


def url_from_environment(environ: Mapping[str, str] = os.environ) -> str:
    """Return the store's URL.

    Raises:
        InvalidValueError: If the variable is not set.
    """
    url = environ.get(STORE_VARIABLE, "")
    if not url:
        raise InvalidValueError(
            f"{STORE_VARIABLE} is not set: set it to the store's URL, such as {_EXAMPLES}; in a pod it comes from a "
            "Kubernetes secret"
        )
    return url


def parse_url(url: str) -> URL:
    """Return the URL with the driver that the library uses.

    Raises:
        InvalidValueError: If it is no SQLite or PostgreSQL URL; the message never shows it.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # the latter where a password with / or @ is not quoted
        raise InvalidValueError(f"the store's URL can't be read: give one such as {_EXAMPLES}") from None
    scheme = parsed.drivername.split("+")[0]
    drivers = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg2", "postgres": "postgresql+psycopg2"}
    if scheme not in drivers:
        raise InvalidValueError(f"the store's URL is of kind {scheme!r}; allowed are {_EXAMPLES}")
    if scheme != "sqlite" and "@" in f"{parsed.host}{parsed.database}":
        # An unquoted password was cut in two, and the parts of it taken for host and database.
        raise InvalidValueError(
            f"the store's URL can't be read: quote the password (%2F for /, %40 for @, %3A for :), as in {_EXAMPLES}"
        )
    if scheme == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise InvalidValueError(f"an SQLite store needs a file, since every step is a process: such as {_EXAMPLES}")
    return parsed.set(drivername=drivers[scheme])


class Database:
    """One database, its transactions serialised as the store needs them."""

    def __init__(self, url: str) -> None:
        """Prepare to connect; nothing is connected yet.

        Raises:
            InvalidValueError: If the URL is of no supported kind.
        """
        self.url = parse_url(url)
        self.is_sqlite = self.url.drivername == "sqlite"
        self.engine = _sqlite_engine(self.url) if self.is_sqlite else _postgresql_engine(self.url)

    def __repr__(self) -> str:
        """Show where the database is, without the password."""
        return f"Database({self.place})"

    @property
    def place(self) -> str:
        """Where the database is, for messages: never its password."""
        if self.is_sqlite:
            return str(self.url.database)
        return f"{self.url.host or self.url.query.get('host', 'localhost')}:{self.url.port or 5432}"

    def write(self, operation: Callable[[Session], T]) -> T:
        """Run ``operation`` in a transaction that writes; again after a fault that passes.

        Raises:
            StoreUnavailableError: If the database can't be reached, written, or does not answer in time.
        """
        return self._attempt(lambda: self._in_session(operation, write=True))

    def read(self, operation: Callable[[Session], T]) -> T:
        """Run ``operation`` in a transaction that only reads.

        Raises:
            StoreUnavailableError: If the database can't be reached or does not answer in time.
        """
        return self._attempt(lambda: self._in_session(operation, write=False))

    @contextmanager
    def connection(self, *, write: bool) -> Iterator[Connection]:
        """Give a connection inside a transaction, which is committed at the end of the block."""
        with self.engine.connect().execution_options(zeus_kfp_write=write) as connection, connection.begin():
            yield connection

    def close(self) -> None:
        """Give the connections back."""
        self.engine.dispose()

    def _in_session(self, operation: Callable[[Session], T], *, write: bool) -> T:
        with self.connection(write=write) as connection, Session(connection, expire_on_commit=False) as session:
            result = operation(session)
            session.flush()
            return result

    def _attempt(self, work: Callable[[], T]) -> T:
        retrying = Retrying(
            retry=retry_if_exception(_is_transient),
            stop=stop_after_delay(BUSY_TIMEOUT_S),
            wait=wait_random_exponential(multiplier=0.02, max=1),
            reraise=True,
        )
        return self.guarded(lambda: retrying(work))

    def guarded(self, work: Callable[[], T]) -> T:
        """Run ``work`` and turn a driver's error into the library's own.

        Raises:
            StoreUnavailableError: If the database can't be reached, used, or does not answer in time.
        """
        try:
            return work()
        except DatabaseError as error:
            raise self.unavailable(error) from None

    def unavailable(self, error: DBAPIError) -> StoreUnavailableError:
        """Return the library's error for a driver's, without the password and the statement's values."""
        text = " ".join(str(error.orig).split())
        password = str(self.url.password or "")
        for secret in filter(None, (password, quote(password, safe=""), str(self.url.query.get("password", "")))):
            text = text.replace(secret, "***")
        return StoreUnavailableError(
            f"the store at {self.place} can't be used: {text}; check that it runs, that it can be reached from here "
            f"and that {STORE_VARIABLE} is right"
        )


def _is_transient(error: BaseException) -> bool:
    if not isinstance(error, OperationalError | DBAPIError):
        return False
    return error.connection_invalidated or any(text in str(error.orig) for text in _TRANSIENT)


def _sqlite_engine(url: URL) -> Engine:
    engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S}, hide_parameters=True)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _: Any) -> None:
        # The driver would begin transactions by itself, and too late to lock.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute("PRAGMA foreign_keys=ON")
        # A committed trial survives a power cut; the rollback journal works on every file system.
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        write = connection.get_execution_options().get("zeus_kfp_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def _postgresql_engine(url: URL) -> Engine:
    return create_engine(
        url, pool_pre_ping=True, hide_parameters=True, connect_args={"connect_timeout": 10}, pool_size=1
    )
