"""The schema's versions: made or upgraded on first use, by one process at a time."""

from pathlib import Path

from sqlalchemy import inspect, text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import OperationalError, ProgrammingError

from zeus_kfp.state_store.database import Database
from zeus_kfp.zeus_core.errors import StoreVersionError

VERSIONS = ("0001", "0002", "0003")
"""Every released schema, oldest first; the last is what this code needs."""

VERSION_TABLE = "zeus_kfp_version"
"""The table in which Alembic keeps the version, named so that another application's is never taken for it."""

_UNDEFINED_TABLE = "42P01"
_LOCK_KEY = 7_305_826_124_381
"""PostgreSQL advisory lock under which the schema is made; any number that nobody else uses."""


def ensure_schema(database: Database) -> None:
    """Make or upgrade the schema unless it is up to date.

    Raises:
        StoreVersionError: If the schema is newer than this code, or foreign tables stand in its way.
        StoreUnavailableError: If the database can't be reached or written.
    """

    def ensure() -> None:
        if current_version(database) != VERSIONS[-1]:
            _upgrade(database)

    database.attempt(ensure)


def current_version(database: Database) -> str | None:
    """Return the schema's version, None for a database without one.

    Raises:
        StoreVersionError: If this code does not know the version.
    """
    try:
        with database.connection(write=False) as connection:
            return _version(connection)
    except (OperationalError, ProgrammingError) as error:
        is_missing = getattr(error.orig, "pgcode", "") == _UNDEFINED_TABLE or "no such table" in str(error.orig)
        if is_missing:
            return None
        raise


def _version(connection: Connection) -> str | None:
    version = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    if version is not None and version not in VERSIONS:
        raise StoreVersionError(
            f"the store's schema is version {version!r}, newer than this code, which knows {', '.join(VERSIONS)}: "
            "upgrade zeus-kfp, or use another database"
        )
    return None if version is None else str(version)


def _upgrade(database: Database) -> None:
    # Imported here: a store that is up to date, the usual case, does not wait for it.
    from alembic import command
    from alembic.config import Config

    from zeus_kfp.state_store.learning import relearn_all

    with database.connection(write=True) as connection:
        if not database.is_sqlite:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
        _refuse_foreign_tables(connection)
        # Others may have been first while the lock was waited for, and be at work already.
        found = _version(connection) if inspect(connection).has_table(VERSION_TABLE) else None
        if found == VERSIONS[-1]:
            return
        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
        config.attributes["connection"] = connection
        config.attributes["version_table"] = VERSION_TABLE
        command.upgrade(config, "head")
        if found is not None:
            with database.transaction_of(connection) as transaction:
                relearn_all(transaction)


def _refuse_foreign_tables(connection: Connection) -> None:
    from zeus_kfp.state_store.tables import METADATA

    existing = set(inspect(connection).get_table_names())
    clashing = sorted(existing & set(METADATA.tables))
    if clashing and VERSION_TABLE not in existing:
        raise StoreVersionError(
            f"the database has tables {clashing} that are not zeus-kfp's: use a database of its own"
        )
