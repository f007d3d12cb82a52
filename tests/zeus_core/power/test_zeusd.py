"""Power limits through a daemon that speaks zeusd's HTTP interface, on GPUs of the fake NVML."""

import os
import signal
import socketserver
import subprocess
import sys
import threading
from contextlib import closing

import pytest

from tests.fake_zeusd import Shown, TcpDaemon, UnixDaemon, running
from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.meters.nvml_devices import LimitRefusedError
from zeus_kfp.zeus_core.power import open_limiter, repair_limits
from zeus_kfp.zeus_core.power.zeusd import zeusd_address
from zeus_kfp.zeus_core.power.zeusd_client import ZeusdAddress, ZeusdClient


@pytest.fixture(params=["socket", "tcp"])
def daemon(request, fake_gpus, tmp_path, monkeypatch):
    """A pod with two GPUs that may not set limits, and a daemon that numbers them 10 and 11."""
    fake_gpus.set(GPUS="2", SET="denied")
    shown = {10 + index: Shown(index) for index in range(2)}
    if request.param == "socket":
        server = UnixDaemon(str(tmp_path / "zeusd.sock"), fake_gpus, shown)
        monkeypatch.setenv("ZEUSD_SOCK_PATH", str(tmp_path / "zeusd.sock"))
    else:
        server = TcpDaemon(("127.0.0.1", 0), fake_gpus, shown)
        monkeypatch.setenv("ZEUS_KFP_NODE_ADDRESS", "127.0.0.1")
        monkeypatch.setenv("ZEUS_KFP_ZEUSD_PORT", str(server.server_address[1]))
    with running(server):
        yield server


@pytest.fixture
def remote(fake_gpus, monkeypatch):
    """A daemon whose address may be that of another node."""
    fake_gpus.set(SET="denied")
    monkeypatch.setattr(ZeusdAddress, "is_local", False)
    server = TcpDaemon(("127.0.0.1", 0), fake_gpus, {0: Shown()})
    monkeypatch.setenv("ZEUSD_HOST_PORT", f"127.0.0.1:{server.server_address[1]}")
    with running(server):
        yield server


def test_a_pod_that_may_not_sets_its_limits_through_the_daemon(daemon, fake_gpus):
    with closing(open_limiter()) as limiter:
        assert (limiter.name, limiter.found_w) == ("zeusd", 250)
        assert limiter.set(150) == 150
        assert fake_gpus.limits_w() == [150, 150]
    assert fake_gpus.limits_w() == [250, 250]
    assert daemon.asked[-1] == (
        "/gpu/set_power_limit",
        {"gpu_ids": "11", "power_limit_mw": "250000", "block": "true"},
    )


def test_gpus_are_told_by_their_counters_where_the_numbers_differ(daemon, fake_gpus, monkeypatch):
    daemon.shown[12] = Shown(energy_mj=77)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    with closing(open_limiter()) as limiter:
        limiter.set(150)
        assert fake_gpus.limits_w() == [250, 150]
    assert {query["gpu_ids"] for _, query in daemon.asked} == {"11"}


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        ({10: Shown(0), 11: Shown(energy_mj=5)}, "GPU 1 ({1}) can't be told among zeusd's"),
        ({key: Shown(0) for key in (10, 11, 12)}, "GPU 0 ({0}) can't be told among zeusd's"),
        ({10: Shown(0, "Other"), 11: Shown(1, "Other")}, "can't be told among zeusd's"),
        ({0: Shown(energy_mj=7), 1: Shown(energy_mj=8)}, "can't be told among zeusd's"),
        ({}, "has no GPU"),
    ],
)
def test_a_gpu_that_cannot_be_told_for_sure_is_never_touched(daemon, fake_gpus, shown, why):
    daemon.shown = shown
    limiter = open_limiter()
    assert why.format(fake_gpus.uuid(0), fake_gpus.uuid(1)) in limiter.why_not
    assert daemon.asked == []
    assert limiter.why_not.startswith("NVML refuses")


@pytest.mark.parametrize("energy_mj", [None, 5])
def test_a_daemon_of_another_node_with_as_many_gpus_of_the_same_model_is_not_trusted(remote, fake_gpus, energy_mj):
    remote.shown = {0: Shown(energy_mj=energy_mj)}
    assert f"GPU 0 ({fake_gpus.uuid()}) can't be told among zeusd's" in open_limiter().why_not
    fake_gpus.set(ENERGY="unsupported")
    assert f"GPU 0 ({fake_gpus.uuid()}) can't be told among zeusd's" in open_limiter().why_not
    assert remote.asked == []


def test_a_counter_that_never_counts_tells_no_gpu_from_another_nodes(remote, fake_gpus):
    fake_gpus.set(ENERGY="stuck")
    remote.shown = {0: Shown(energy_mj=0)}
    assert "can't be told among zeusd's" in open_limiter().why_not
    assert remote.asked == []


def test_a_daemon_at_any_address_that_tells_the_same_energy_is_this_nodes(remote, fake_gpus):
    remote.shown = {0: Shown(energy_mj=5), 1: Shown(0)}
    with closing(open_limiter()) as limiter:
        assert limiter.set(150) == 150
    assert {query["gpu_ids"] for _, query in remote.asked} == {"1"}


@pytest.mark.parametrize(
    ("shown", "number", "why"),
    [
        ({0: Shown(energy_mj=5)}, "0", "tells another energy of it"),
        ({0: Shown(limit_mw=180_000)}, "0", "tells another power limit of it"),
        ({0: Shown(model="Other")}, "0", "has no Fake GPU of that number"),
        ({0: Shown()}, "1", "has no Fake GPU of that number"),
    ],
)
def test_a_number_that_people_give_is_not_trusted_blindly(remote, fake_gpus, monkeypatch, shown, number, why):
    remote.shown = shown
    monkeypatch.setenv("ZEUS_KFP_ZEUSD_GPU_IDS", number)
    why_not = open_limiter().why_not
    assert f"({fake_gpus.uuid()}) is zeusd's {number}, but zeusd at 127.0.0.1" in why_not
    assert why in why_not
    assert remote.asked == []


def test_a_daemon_that_refuses_leaves_everything_as_it_is(daemon, fake_gpus):
    daemon.refuses = "the driver is gone"
    assert "HTTP 500" in (why_not := open_limiter().why_not)
    assert "the driver is gone" in why_not
    assert fake_gpus.limits_w() == [250, 250]


KILLED = "from zeus_kfp.zeus_core.power import open_limiter as o; import os; o().set(150); os.kill(os.getpid(), 9)"


def test_a_killed_pod_is_repaired_through_the_daemon(daemon, fake_gpus):
    assert subprocess.run([sys.executable, "-c", KILLED], env=fake_gpus.environ).returncode == -signal.SIGKILL
    assert fake_gpus.limits_w() == [150, 150]
    repair_limits()
    assert fake_gpus.limits_w() == [250, 250]


def test_a_repair_takes_the_numbers_that_people_give_for_the_gpus_that_they_mean(daemon, fake_gpus, monkeypatch):
    fake_gpus.set(ENERGY="unsupported")
    daemon.shown = {3: Shown(1), 7: Shown(0), 8: Shown()}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    monkeypatch.setenv("ZEUS_KFP_ZEUSD_GPU_IDS", "3,7")
    subprocess.run([sys.executable, "-c", KILLED], env=fake_gpus.environ)
    assert fake_gpus.limits_w() == [150, 150]
    daemon.asked.clear()
    # Only the first of the two is left to this pod.
    repair_limits(os.environ | {"CUDA_VISIBLE_DEVICES": "1", "ZEUS_KFP_ZEUSD_GPU_IDS": "3"})
    assert fake_gpus.limits_w() == [150, 250]
    assert [query["gpu_ids"] for _, query in daemon.asked] == ["3"]
    repair_limits()
    assert fake_gpus.limits_w() == [250, 250]
    assert [query["gpu_ids"] for _, query in daemon.asked] == ["3", "7"]


def test_people_can_say_which_gpus_they_are(daemon, fake_gpus, monkeypatch):
    fake_gpus.set(ENERGY="unsupported")
    daemon.shown = {10: Shown(0), 11: Shown(1), 12: Shown()}
    assert "can't be told among zeusd's" in open_limiter().why_not
    monkeypatch.setenv("ZEUS_KFP_ZEUSD_GPU_IDS", "10, 11")
    with closing(open_limiter()) as limiter:
        assert limiter.set(150) == 150
    monkeypatch.setenv("ZEUS_KFP_ZEUSD_GPU_IDS", "10")
    assert "ZEUS_KFP_ZEUSD_GPU_IDS must name 2 GPUs of the daemon, like 0,3; not '10'" in open_limiter().why_not


def test_without_counters_the_same_gpus_on_the_same_machine_have_the_same_numbers(daemon, fake_gpus):
    fake_gpus.set(ENERGY="unsupported")
    daemon.shown = {index: Shown(index) for index in range(2)}
    with closing(open_limiter()) as limiter:
        assert limiter.set(150) == 150
    assert [query["gpu_ids"] for _, query in daemon.asked][:2] == ["0", "1"]


def test_the_daemon_wants_a_token(daemon, fake_gpus, monkeypatch):
    daemon.token = "secret"
    assert "does not let this token do that (HTTP 403): check ZEUSD_TOKEN" in open_limiter().why_not
    monkeypatch.setenv("ZEUSD_TOKEN", "secret")
    with closing(open_limiter()) as limiter:
        assert limiter.name == "zeusd"


def test_the_token_is_never_shown():
    address = zeusd_address({"ZEUSD_HOST_PORT": "node-7:4938", "ZEUSD_TOKEN": "secret"})
    assert (str(address), address.token) == ("node-7:4938", "secret")
    assert "secret" not in repr(address)


@pytest.mark.parametrize("value", ["node-7", ":1", "node:port", "node:0", "node:65536", "node:-1", "node:1:x"])
def test_an_address_that_is_none_is_named(value):
    with pytest.raises(InvalidValueError, match="ZEUSD_HOST_PORT must be like node-7:4938"):
        zeusd_address({"ZEUSD_HOST_PORT": value})


def test_a_daemon_that_is_gone_is_no_error(fake_gpus, monkeypatch, tmp_path):
    fake_gpus.set(SET="denied")
    monkeypatch.setenv("ZEUSD_SOCK_PATH", str(tmp_path / "none.sock"))
    assert "none.sock can't be asked: [Errno 2] No such file" in open_limiter().why_not


def test_a_port_needs_the_address_of_the_node():
    told = {"ZEUS_KFP_ZEUSD_PORT": "4938", "ZEUS_KFP_NODE_ADDRESS": "10.0.0.7"}
    assert str(zeusd_address(told)) == "10.0.0.7:4938"
    assert str(zeusd_address(told | {"ZEUSD_HOST_PORT": "node-7:1"})) == "node-7:1"
    with pytest.raises(InvalidValueError, match="ZEUS_KFP_ZEUSD_PORT must be like 4938, with ZEUS_KFP_NODE_ADDRESS"):
        zeusd_address({"ZEUS_KFP_ZEUSD_PORT": "4938"})


@pytest.mark.parametrize(
    ("address", "is_local"),
    [
        (ZeusdAddress(socket_path="/run/zeusd.sock"), True),
        (ZeusdAddress(host="localhost"), True),
        (ZeusdAddress(host="127.0.0.9"), True),
        (ZeusdAddress(host="::1"), True),
        (ZeusdAddress(host="10.0.0.7"), False),
        (ZeusdAddress(host="node-7"), False),
    ],
)
def test_which_addresses_are_this_machines_for_sure(address, is_local):
    assert address.is_local is is_local


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\n\r\nnot json", b"HTTP/1.1 200 OK\r\n\r\n[1]", b"\0\xff"])
def test_answers_that_make_no_sense_are_named(tmp_path, answer):
    class Nonsense(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.recv(4096)
            self.request.sendall(answer)

    with socketserver.UnixStreamServer(str(tmp_path / "s"), Nonsense) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        with pytest.raises(LimitRefusedError, match="zeusd at .*/s "):
            ZeusdClient(ZeusdAddress(socket_path=str(tmp_path / "s"))).gpu_models()
        server.shutdown()
