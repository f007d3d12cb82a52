"""Column types that mean the same on SQLite and on PostgreSQL."""

from datetime import UTC, datetime

from sqlalchemy import DateTime
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator


def utc_now() -> datetime:
    """Return the time, with its zone."""
    return datetime.now(UTC)


class UtcDateTime(TypeDecorator[datetime]):
    """A moment: stored in UTC, handed out with its zone, also by SQLite, which knows no zones."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Bring a moment to UTC; one without a zone is a programming error."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise TypeError(f"a stored time needs a time zone: {value!r}")
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Give a stored moment its zone."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
