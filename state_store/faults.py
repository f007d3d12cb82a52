"""What a database's fault means: whether it passes, and which of the library's own errors it is."""

from urllib.parse import quote

from sqlalchemy.engine import URL
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, OperationalError

from zeus_kfp.zeus_core.errors import StoreError, StoreUnavailableError

_PASSING_STATES = (
    *("08", "40001", "40P01", "53300", "55P03", "57014", "57P01", "57P02", "57P03"),
    *("26000", "42P05", "0A000"),
)
"""Beginnings of PostgreSQL's states: connection lost, deadlock, no lock in time, statement cancelled (as one that
waits for a lock is, where the server has a short statement_timeout), starting, shutting down, full. The last are met on
no new connection: a prepared statement that is gone, is another's, or gives other types since the schema changed."""

_LASTING = (
    "authentication failed",
    "does not exist",
    "no pg_hba.conf entry",
    "not permitted",
    "not support SSL",
    "certificate",
    "invalid",
)
"""What a server says that refuses a connection for good; such refusals carry no state."""

_ADVICE_BY_STATE = {
    "53100": "free space on the server's disk",
    "25006": "name the server that takes writes in the store's URL, not its standby, and let the URL's user write "
    "(default_transaction_read_only)",
    "3F000": "give the URL's user or database a search_path with a schema to make tables in",
    "57014": "give the URL's user a longer statement_timeout",
    "42501": "grant the URL's user all rights on the store's tables and schema",
}

_BUSY = ("SQLITE_BUSY", "SQLITE_LOCKED")


def passes(error: BaseException) -> bool:
    """Return whether an operation that met an error may succeed when it is tried again.

    Every operation of the store may be repeated, so a lost connection passes too, even in the midst of a commit.
    """
    if not isinstance(error, DBAPIError):
        return False
    if error.connection_invalidated:
        return True
    original = error.orig
    name = getattr(original, "sqlite_errorname", None)
    if name is not None:
        return str(name).startswith(_BUSY)
    state = getattr(original, "pgcode", None)
    if state is not None:
        return str(state).startswith(_PASSING_STATES)
    return isinstance(error, OperationalError) and not any(text in str(original) for text in _LASTING)


def own_error(error: DBAPIError, url: URL, place: str) -> StoreError:
    """Return the library's error for a driver's, without the password and the statement's values."""
    text = " ".join(str(error.orig).split())
    password = str(url.password or "")
    for secret in filter(None, (password, quote(password, safe=""), str(url.query.get("password", "")))):
        text = text.replace(secret, "***")
    if isinstance(error, IntegrityError | DataError):
        return StoreError(f"the store at {place} refused what zeus-kfp wrote, and nothing was written: {text}")
    return StoreUnavailableError(f"the store at {place} can't be used: {text}; {_advice(error, url)}")


def _advice(error: DBAPIError, url: URL) -> str:
    if url.drivername == "sqlite":
        return (
            "check that its folder is there and may be written to, that the disk is not full, and that no other "
            "program holds the file"
        )
    state = getattr(error.orig, "pgcode", None)
    return (
        _ADVICE_BY_STATE.get(state or "")
        or "check that the server runs, that it can be reached from here, and that the store's URL is right"
    )
