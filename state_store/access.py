"""The way to the store's database: its schema is brought up to date, and each operation is a transaction."""

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Self, TypeVar

from zeus_kfp.state_store.database import PATIENCE_S, Database, url_from_environment
from zeus_kfp.state_store.schema import current_version, ensure_schema
from zeus_kfp.state_store.transaction import Transaction
from zeus_kfp.zeus_core.errors import InvalidValueError

T = TypeVar("T")


def utc_now() -> datetime:
    """Return the present moment."""
    return datetime.now(UTC)


class Access:
    """A database that holds a store."""

    def __init__(self, url: str, *, clock: Callable[[], datetime] = utc_now, patience_s: float = PATIENCE_S) -> None:
        """Name the database; it is reached, and its schema made, on first use.

        Args:
            url: sqlite:////absolute/path/store.db or postgresql://user:password@host/database.
            clock: Gives the present moment, with a time zone.
            patience_s: How long an operation waits for others, and tries again after a fault that passes.

        Raises:
            InvalidValueError: If the URL is of no supported kind.
        """
        self._database = Database(url, patience_s)
        self._clock = clock
        self._schema_is_there = False

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ, *, patience_s: float = PATIENCE_S) -> Self:
        """Return the store that ZEUS_KFP_STORE_URL names.

        Args:
            environ: Environment variables.
            patience_s: How long an operation waits for others, and tries again after a fault that passes.

        Raises:
            InvalidValueError: If the variable is not set or no supported URL.
        """
        return cls(url_from_environment(environ), patience_s=patience_s)

    def __repr__(self) -> str:
        """Show where the store is, without its password."""
        return f"StateStore({self._database.place})"

    def __enter__(self) -> Self:
        """Use the store in a with block, which closes it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store."""
        self.close()

    def close(self) -> None:
        """Give the connections back."""
        self._database.close()

    def upgrade(self) -> None:
        """Make or upgrade the schema."""
        ensure_schema(self._database)
        self._schema_is_there = True

    def check(self) -> str | None:
        """Return the schema's version, None for a database without one."""
        return self._database.attempt(lambda: current_version(self._database))

    def _now(self) -> datetime:
        now = self._clock()
        if now.tzinfo is None:
            raise InvalidValueError(f"the store's clock must give moments with a time zone, not {now!r}")
        # In any other zone a day would be 23 or 25 hours long when summer time begins or ends.
        return now.astimezone(UTC)

    def _write(self, operation: Callable[[Transaction], T]) -> T:
        self._ensure_schema()
        return self._database.write(operation)

    def _read(self, operation: Callable[[Transaction], T]) -> T:
        self._ensure_schema()
        return self._database.read(operation)

    def _ensure_schema(self) -> None:
        if not self._schema_is_there:
            self.upgrade()
