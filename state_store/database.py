"""The connection to the database: its URL, its transactions, and its faults as the library's own errors."""

import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL, Connection, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from zeus_kfp.state_store.compiled import Compiled
from zeus_kfp.state_store.faults import own_error, passes
from zeus_kfp.state_store.prepared import PreparedStatements
from zeus_kfp.state_store.transaction import (
    PostgresqlTransaction,
    SqliteTransaction,
    Transaction,
    begin_writing,
    postgresql_settings,
)
from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.validation import number, text

if TYPE_CHECKING:
    from tenacity import Retrying

logger = logging.getLogger(__name__)

STORE_VARIABLE = "ZEUS_KFP_STORE_URL"
"""Environment variable that holds the store's URL."""

PATIENCE_S = 30.0
"""How long an operation waits for another process's transaction, and tries again after a fault that passes."""

_SHARED_FILE_SYSTEMS = ("nfs", "cifs", "smb", "fuse", "9p", "ceph", "gluster", "lustre", "gpfs", "virtiofs", "afs")
_WRITES = "zeus_kfp_writes"
_PREPARED = "zeus_kfp_prepared"
_CONNECT: dict[str, Any] = {
    "connect_timeout": 10,
    "application_name": "zeus-kfp",
    # Names are sent as they are, whatever the server or its database prefers.
    "client_encoding": "utf8",
    # A server that vanished without a word is noticed within half a minute.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}

_EXAMPLES = "sqlite:////absolute/path/store.db or postgresql://user:password@host/database"
T = TypeVar("T")


def url_from_environment(environ: Mapping[str, str] = os.environ) -> str:
    """Return the store's URL.

    Raises:
        InvalidValueError: If the variable is not set.
    """
    # A secret that was made of a file ends with the file's line end.
    url = environ.get(STORE_VARIABLE, "").strip()
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
    if scheme != "sqlite":
        _check_characters(url)
    if scheme == "sqlite" and (parsed.host or any(character in (parsed.database or "") for character in "\0\n")):
        raise InvalidValueError(f"an SQLite store's URL names a file after three slashes: such as {_EXAMPLES}")
    if scheme == "sqlite" and parsed.query:
        raise InvalidValueError(
            f"an SQLite store's URL takes no options after a question mark (and its file name holds none): {_EXAMPLES}"
        )
    if scheme == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise InvalidValueError(f"an SQLite store needs a file, since every step is a process: such as {_EXAMPLES}")
    return parsed.set(drivername=drivers[scheme])


def _check_characters(url: str) -> None:
    try:
        text("the store's URL", unquote(url), at_most=10_000)
    except InvalidValueError:  # whose message shows the URL
        raise InvalidValueError(
            f"the store's URL holds a character that no server takes (NUL, or bytes that are no UTF-8), or is too "
            f"long: give one such as {_EXAMPLES}"
        ) from None


class Database:
    """One database, its transactions serialised as the store needs them."""

    def __init__(self, url: str, patience_s: float = PATIENCE_S) -> None:
        """Prepare to connect; nothing is connected yet.

        Args:
            url: The store's URL.
            patience_s: How long to wait for others, and to try again after a fault that passes.

        Raises:
            InvalidValueError: If the URL is of no supported kind.
        """
        self.url = parse_url(url)
        number("patience_s", patience_s, at_least=0, at_most=86_400)
        self.is_sqlite = self.url.drivername == "sqlite"
        self.patience_s = patience_s
        make_engine = _sqlite_engine if self.is_sqlite else _postgresql_engine
        self.engine = make_engine(self.url, patience_s)
        self._driver: Any = self.engine.dialect.loaded_dbapi
        self._compiled = lru_cache(maxsize=512)(partial(Compiled, dialect=self.engine.dialect))
        self._process_id = os.getpid()

    def __repr__(self) -> str:
        """Show where the database is, without the password."""
        return f"Database({self.place})"

    @property
    def place(self) -> str:
        """Where the database is, for messages: never its password."""
        if self.is_sqlite:
            return str(self.url.database)
        return f"{self.url.host or self.url.query.get('host', 'localhost')}:{self.url.port or 5432}"

    @property
    def is_missing(self) -> bool:
        """Whether it is an SQLite file that is not there: whoever connects to it makes it."""
        return self.is_sqlite and not os.path.exists(self.place)

    def write(self, operation: Callable[[Transaction], T]) -> T:
        """Run ``operation`` in a transaction that writes; the same errors as :meth:`attempt`."""
        return self.attempt(lambda: self._in_transaction(operation, write=True))

    def read(self, operation: Callable[[Transaction], T]) -> T:
        """Run ``operation`` in a transaction that only reads, and sees one state of the database."""
        return self.attempt(lambda: self._in_transaction(operation, write=False))

    def attempt(self, work: Callable[[], T]) -> T:
        """Run ``work``; after a fault that passes run it again, for as long as there is patience.

        Raises:
            StoreUnavailableError: If the database can't be reached, used, or does not answer in time.
            StoreError: If it refuses what was written.
        """
        begun_s = time.monotonic()
        try:
            return work()
        except DBAPIError as error:
            fault = own_error(error, self.url, self.place)
            left_s = self.patience_s - (time.monotonic() - begun_s)
            if not passes(error) or left_s <= 0:
                raise fault from None
        logger.warning("%s (trying again for up to %.2g s)", fault, left_s)
        try:
            return self._retrying(left_s)(work)
        except DBAPIError as error:
            raise own_error(error, self.url, self.place) from None

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[Transaction]:
        """Give a transaction, which is committed at the end of the block.

        Raises:
            DBAPIError: What the driver raised.
        """
        self._leave_the_parents_connections()
        with self._as_sqlalchemys_errors(), closing(self.engine.raw_connection()) as pooled:
            prepared = pooled.info.setdefault(_PREPARED, PreparedStatements())
            transaction = self._transaction_on(pooled.dbapi_connection, prepared)
            try:
                transaction.begin(write=write)
                yield transaction
                transaction.commit()
            except BaseException:
                # Whatever state it is in, it is no longer once it is closed.
                pooled.invalidate()
                raise

    @contextmanager
    def connection(self, *, write: bool) -> Iterator[Connection]:
        """Give SQLAlchemy's own connection, for the schema, in a transaction that is committed at the block's end."""
        self._leave_the_parents_connections()
        options: dict[str, Any] = {_WRITES: write}
        if not self.is_sqlite:
            options["isolation_level"] = "READ COMMITTED"
        with self.engine.connect().execution_options(**options) as connection, connection.begin():
            if not self.is_sqlite:
                connection.exec_driver_sql(postgresql_settings(self.patience_s))
            yield connection

    @contextmanager
    def transaction_of(self, connection: Connection) -> Iterator[Transaction]:
        """Give the transaction that SQLAlchemy's connection is in; it is not ended with the block."""
        with self._as_sqlalchemys_errors():
            transaction = self._transaction_on(connection.connection.dbapi_connection)
            yield transaction
            transaction.flush()

    def close(self) -> None:
        """Give the connections back."""
        self.engine.dispose()

    def _transaction_on(self, connection: Any, prepared: PreparedStatements | None = None) -> Transaction:
        if self.is_sqlite:
            return SqliteTransaction(connection, self._compiled, self.patience_s)
        return PostgresqlTransaction(connection, self._compiled, self.patience_s, prepared)

    def _in_transaction(self, operation: Callable[[Transaction], T], *, write: bool) -> T:
        with self.transaction(write=write) as transaction:
            return operation(transaction)

    @contextmanager
    def _as_sqlalchemys_errors(self) -> Iterator[None]:
        """Let errors of the driver be those that SQLAlchemy makes of them."""
        try:
            yield
        except self._driver.Error as error:
            is_lost = self.engine.dialect.is_disconnect(error, None, None)
            raise DBAPIError.instance(
                None,
                None,
                error,
                self._driver.Error,
                hide_parameters=True,
                connection_invalidated=is_lost,
                dialect=self.engine.dialect,
            ) from error

    def _leave_the_parents_connections(self) -> None:
        """Let connections of the process that this one was forked from stay that one's."""
        if self._process_id != os.getpid():
            self.engine.dispose(close=False)
            self._process_id = os.getpid()

    def _retrying(self, left_s: float) -> "Retrying":
        # Imported late: a step that meets no fault does not wait for it.
        from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

        return Retrying(
            retry=retry_if_exception(passes),
            stop=stop_after_delay(left_s),
            wait=wait_random_exponential(multiplier=0.02, max=1),
            reraise=True,
        )


def _sqlite_engine(url: URL, patience_s: float) -> Engine:
    # Threads wait for the file's lock, as long as there is patience, and not for each other's connections.
    engine = create_engine(url, connect_args={"timeout": patience_s}, hide_parameters=True, max_overflow=-1)
    is_local = on_local_file_system(str(url.database))

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _: Any) -> None:
        # The driver would begin transactions by itself, and too late to lock.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute("PRAGMA foreign_keys=ON")
        # A committed trial survives a power cut.
        cursor.execute("PRAGMA synchronous=FULL")
        if is_local:
            _use_write_ahead_log(cursor)
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        if _writes(connection):
            begin_writing(connection.connection.dbapi_connection, patience_s)
        else:
            connection.exec_driver_sql("BEGIN")

    return engine


def _use_write_ahead_log(cursor: Any) -> None:
    # One sync a commit instead of four. The file keeps the mode, so whoever is refused now since another process is
    # at work needs nothing: the other one sets it.
    with suppress(sqlite3.OperationalError):
        cursor.execute("PRAGMA journal_mode=WAL")


def on_local_file_system(path: str, mounts: Path = Path("/proc/self/mounts")) -> bool:
    """Return whether a file lies on a disk of this machine: several machines can't share a write-ahead log."""
    folder = Path(path).resolve()
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return False
    kinds = {line.split()[1].replace("\\040", " "): line.split()[2] for line in lines}
    nearest = next((str(parent) for parent in [folder, *folder.parents] if str(parent) in kinds), "/")
    kind = kinds.get(nearest, "")
    return not kind.startswith(_SHARED_FILE_SYSTEMS)


def _postgresql_engine(url: URL, _: float) -> Engine:
    # No ping before each use: an operation that meets a lost connection is run again.
    return create_engine(
        url,
        hide_parameters=True,
        connect_args=_CONNECT,
        # The store's transactions begin and end in trips that something else makes anyway.
        isolation_level="AUTOCOMMIT",
        pool_size=1,
        max_overflow=-1,
    )


def _writes(connection: Connection) -> bool:
    return bool(connection.get_execution_options().get(_WRITES, False))
