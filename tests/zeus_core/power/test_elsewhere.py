"""Limits that killed pods left on another machine, put back through the zeusd of that machine."""

import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import closing

import pytest

from tests.fake_zeusd import Shown, TcpDaemon, running
from zeus_kfp.zeus_core.power import open_limiter, repair_elsewhere, repair_limits
from zeus_kfp.zeus_core.power.zeusd_client import ZeusdAddress

# The daemon listens at the loopback address, where no other machine would find it.
POD = """
from zeus_kfp.zeus_core.power.zeusd_client import ZeusdAddress
ZeusdAddress.is_local = False
from zeus_kfp.zeus_core.power import open_limiter
limiter = open_limiter()
limiter.set(180)
limiter.set(150)
{end}
"""
KILL = "import os; os.kill(os.getpid(), 9)"


class Hanging:
    """Hangs up on whoever calls, and counts the calls."""

    def __init__(self, listening):
        self.calls, self._listening = 0, listening
        self._thread = threading.Thread(target=self._hang_up)
        self._thread.start()

    def _hang_up(self):
        while True:
            caller, _ = self._listening.accept()
            with caller:
                if caller.recv(1 << 16) == b"end":
                    return
            self.calls += 1

    def close(self):
        with socket.create_connection(self._listening.getsockname()) as caller:
            caller.sendall(b"end")
        self._thread.join()


@pytest.fixture
def zeusd(fake_gpus, monkeypatch):
    monkeypatch.setattr(ZeusdAddress, "is_local", False)
    fake_gpus.set(SET="denied")
    server = TcpDaemon(("127.0.0.1", 0), fake_gpus, {3: Shown(energy_mj=1), 4: Shown(0)})
    monkeypatch.setenv("ZEUSD_HOST_PORT", f"127.0.0.1:{server.server_address[1]}")
    monkeypatch.setenv("ZEUS_KFP_NODE", "node-7")
    with running(server):
        yield server


@pytest.fixture
def kill_a_pod(zeusd, fake_gpus, tmp_path):
    """Kill a pod in the midst of its trial; return the file that it leaves, as one of another machine."""

    def kill():
        done = subprocess.run([sys.executable, "-c", POD.format(end=KILL)], env=fake_gpus.environ)
        assert done.returncode == -signal.SIGKILL
        assert fake_gpus.limits_w() == [150]
        [path] = (tmp_path / "limits").iterdir()
        path.write_text(path.read_text().replace(json.loads(path.read_text())["boot_id"], "another machine's"))
        return path

    return kill


def repair(**variables):
    """Repair as the exit handler does, which has neither a GPU nor an address of a daemon."""
    kept = {name: value for name, value in os.environ.items() if name != "ZEUSD_HOST_PORT"}
    return [left.line for left in repair_elsewhere(kept | variables)]


def test_a_killed_pods_limit_is_put_back_from_another_machine(zeusd, kill_a_pod, fake_gpus):
    path = kill_a_pod()
    repair_limits()
    assert fake_gpus.limits_w() == [150], "what is of another machine is nothing to this one"
    assert repair() == [
        f"{fake_gpus.uuid()} on node node-7: stood at 150 W, left by a trial that was killed: its 250 W are put back"
    ]
    assert fake_gpus.limits_w() == [250]
    assert path.read_text() == ""
    assert repair() == []


def test_a_pod_that_lives_is_left_alone(zeusd, fake_gpus):
    limiter = open_limiter()
    limiter.set(150)
    assert repair() == []
    assert fake_gpus.limits_w() == [150]
    limiter.close()


def test_what_someone_else_has_set_since_stays(zeusd, kill_a_pod, fake_gpus):
    path = kill_a_pod()
    zeusd.set_limit(4, 220_000)
    assert repair() == [
        f"{fake_gpus.uuid()} on node node-7: its power limit of 220 W is not one that a killed trial set, and stays"
    ]
    assert (fake_gpus.limits_w(), path.read_text()) == ([220], "")


def test_a_node_that_was_started_again_is_left_alone(zeusd, kill_a_pod, fake_gpus):
    kill_a_pod()
    zeusd.shown[4] = Shown(energy_mj=5, limit_mw=150_000)
    assert "was started again since" in repair()[0]
    assert fake_gpus.limits_w() == [150]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"refuses": "read only"}, "HTTP 500: "),
        ({"token": "secret"}, "check ZEUSD_TOKEN"),
        ({"shown": {0: Shown(0)}}, "zeusd at 127.0.0.1"),
    ],
)
def test_what_cannot_be_put_back_is_said_and_kept(zeusd, kill_a_pod, fake_gpus, change, why):
    path = kill_a_pod()
    before = path.read_text()
    for name, value in change.items():
        setattr(zeusd, name, value)
    [line] = repair()
    assert line.startswith(f"{fake_gpus.uuid()} on node node-7 may have been left at a power limit that a killed trial")
    assert "it had 250 W, which the next trial there puts back" in line
    assert why in line
    assert path.read_text() == before


def test_the_token_of_the_one_who_repairs_counts(zeusd, kill_a_pod, fake_gpus):
    kill_a_pod()
    zeusd.token = "secret"
    assert "are put back" in repair(ZEUSD_TOKEN="secret")[0]
    assert fake_gpus.limits_w() == [250]


def test_a_limit_that_was_set_without_a_daemon_is_named(fake_gpus, tmp_path, monkeypatch):
    monkeypatch.setenv("ZEUS_KFP_NODE", "node-8")
    subprocess.run([sys.executable, "-c", POD.format(end=KILL)], env=fake_gpus.environ)
    assert f"{fake_gpus.uuid()} on node node-8 may have been left" in repair()[0]
    assert "it can't be set from here" in repair()[0]


@pytest.mark.parametrize("variables", [{"ZEUS_KFP_LIMITS_FOLDER": ""}, {"ZEUS_KFP_LIMITS_FOLDER": "/nonexistent/x/y"}])
def test_without_a_shared_folder_there_is_nothing_to_do(variables, tmp_path):
    variables = {name: value.replace("/nonexistent", str(tmp_path)) for name, value in variables.items()}
    assert repair(**variables) == []


@pytest.mark.parametrize("way_back", ["{}", "[]", "3", '{"zeusd": "x", "gpu_id": 0, "energy_j": -1}'])
def test_a_broken_way_back_repairs_nothing(tmp_path, way_back):
    (tmp_path / "GPU-a.json").write_text(
        f'{{"found_w": 250, "set_w": [150], "boot_id": "x", "process_id": 1, "way_back": {way_back}}}'
    )
    assert repair(ZEUS_KFP_LIMITS_FOLDER=str(tmp_path)) == []


@pytest.mark.parametrize("address", ["", "node", "node:port", "/etc/passwd"])
def test_an_address_that_is_none_is_said(tmp_path, address):
    note = {"found_w": 250, "set_w": [150], "boot_id": "x", "process_id": 1}
    way_back = {"zeusd": address, "gpu_id": 0, "energy_j": 1}
    (tmp_path / "GPU-a.json").write_text(json.dumps(note | {"way_back": way_back}))
    [line] = repair(ZEUS_KFP_LIMITS_FOLDER=str(tmp_path))
    assert line.startswith("GPU-a on node unknown may have been left")


def note_gpus(folder, address, *names):
    note = {"found_w": 250, "set_w": [150], "boot_id": "x", "process_id": 1}
    for name in names:
        way_back = {"zeusd": address, "gpu_id": 4, "energy_j": 0}
        (folder / f"{name}.json").write_text(json.dumps(note | {"way_back": way_back}))


def test_a_file_that_is_of_no_use_keeps_no_other_gpu_from_its_repair(zeusd, fake_gpus, tmp_path, monkeypatch):
    zeusd.set_limit(4, 150_000)
    note_gpus(tmp_path, os.environ["ZEUSD_HOST_PORT"], "GPU-a", "GPU-b")
    bad, unlocked = (tmp_path / "GPU-a.json").stat().st_ino, fcntl.flock

    def stale(file, operation):
        if os.fstat(file).st_ino == bad:
            raise OSError(errno.ESTALE, "Stale file handle")
        unlocked(file, operation)

    monkeypatch.setattr(fcntl, "flock", stale)
    assert repair(ZEUS_KFP_LIMITS_FOLDER=str(tmp_path)) == [
        "GPU-a may have been left at a power limit that a killed trial set: [Errno 116] Stale file handle",
        "GPU-b on node unknown: stood at 150 W, left by a trial that was killed: its 250 W are put back",
    ]


def test_a_daemon_that_does_not_answer_is_asked_once(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listening, closing(Hanging(listening)) as daemon:
        note_gpus(tmp_path, f"127.0.0.1:{listening.getsockname()[1]}", "GPU-a", "GPU-b", "GPU-c")
        lines = repair(ZEUS_KFP_LIMITS_FOLDER=str(tmp_path))
    assert [line.split()[0] for line in lines] == ["GPU-a", "GPU-b", "GPU-c"]
    assert all("can't be asked" in line for line in lines)
    assert daemon.calls == 1


@pytest.fixture
def shared_folder(tmp_path):
    """A folder that everyone may write to, with the limit of a killed pod of another user."""
    folder = tmp_path / "volume"
    other = folder / f"user-{os.getuid() + 1}"
    other.mkdir(parents=True)
    folder.chmod(0o777)
    note_gpus(other, "127.0.0.1:1", "GPU-a")
    return folder


@pytest.mark.parametrize("mode", [0o700, 0o000])
def test_limits_that_another_user_has_kept_are_not_passed_over(shared_folder, mode):
    other, own = (f"user-{os.getuid() + more}" for more in (1, 0))
    (shared_folder / other).chmod(mode)
    assert repair(ZEUS_KFP_LIMITS_FOLDER=str(shared_folder)) == [
        f"{shared_folder} has power limits of trials of other users ({other}), that {own} can't look after: let trials "
        "and exit handler run as the same user (runAsUser)"
    ]
    (shared_folder / other).chmod(0o700)


def test_other_users_who_have_left_nothing_are_not_named(shared_folder):
    (shared_folder / f"user-{os.getuid() + 1}" / "GPU-a.json").write_text("")
    assert repair(ZEUS_KFP_LIMITS_FOLDER=str(shared_folder)) == []


def test_a_daemon_that_does_not_answer_is_asked_once_on_its_own_machine_too(fake_gpus, monkeypatch, caplog):
    fake_gpus.set(GPUS="3")
    subprocess.run([sys.executable, "-c", POD.format(end=KILL)], env=fake_gpus.environ)
    fake_gpus.set(SET="denied")
    with socket.create_server(("127.0.0.1", 0)) as listening, closing(Hanging(listening)) as daemon:
        monkeypatch.setenv("ZEUSD_HOST_PORT", f"127.0.0.1:{listening.getsockname()[1]}")
        repair_limits()
    assert ["can't be asked" in record.message for record in caplog.records] == [True, True, True]
    assert daemon.calls == 1
