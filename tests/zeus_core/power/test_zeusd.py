"""Power limits through a daemon that speaks zeusd's HTTP interface, on GPUs of the fake NVML."""

import json
import socketserver
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

import pynvml
import pytest

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.meters.nvml_devices import LimitRefusedError, open_devices
from zeus_kfp.zeus_core.power import open_limiter, repair_limits
from zeus_kfp.zeus_core.power.zeusd import ZeusdSetter, zeusd_address
from zeus_kfp.zeus_core.power.zeusd_client import ZeusdAddress, ZeusdClient


class Daemon(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """A daemon that may set limits although its pods may not."""

    daemon_threads = True

    def __init__(self, path, gpus):
        self.gpus, self.token, self.asked = gpus, "", []
        self.shown = None
        super().__init__(str(path), Handler)

    def power_limit(self, index, limit_mw):
        self.gpus.set(SET=None)
        try:
            pynvml.nvmlDeviceSetPowerManagementLimit(pynvml.nvmlDeviceGetHandleByIndex(index), limit_mw)
        finally:
            self.gpus.set(SET="denied")


class Handler(BaseHTTPRequestHandler):
    def address_string(self):
        return "pod"

    def log_message(self, *_):
        pass

    def do_GET(self):
        gpus = self.server.shown
        if urlsplit(self.path).path == "/discover":
            self.answer(200, {"gpus": [{"id": key, "name": name} for key, (name, _) in gpus.items()], "cpus": []})
        else:
            self.answer(200, {str(key): {"energy_mj": energy_mj()} for key, (_, energy_mj) in gpus.items()})

    def do_POST(self):
        query = {key: value[0] for key, value in parse_qs(urlsplit(self.path).query).items()}
        self.server.asked.append((urlsplit(self.path).path, query))
        if self.server.token and self.headers["Authorization"] != f"Bearer {self.server.token}":
            self.answer(403, {"error": "scope"})
            return
        try:
            # The daemon's numbers start at 10, so that they can't be taken for those of the pod.
            self.server.power_limit(int(query["gpu_ids"]) % 10, int(query["power_limit_mw"]))
        except pynvml.NVMLError as error:
            self.answer(400, {"error": str(error)})
        else:
            self.answer(200, {})

    def answer(self, status, document):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def counter_mj(index):
    return pynvml.nvmlDeviceGetTotalEnergyConsumption(pynvml.nvmlDeviceGetHandleByIndex(index))


@pytest.fixture
def daemon(fake_gpus, tmp_path, monkeypatch):
    """A pod with two GPUs that may not set limits, and a daemon that numbers them 10 and 11."""
    fake_gpus.set(GPUS="2", SET="denied")
    pynvml.nvmlInit()
    path = tmp_path / "zeusd.sock"
    server = Daemon(path, fake_gpus)
    server.shown = {10 + index: ("Fake GPU", lambda index=index: counter_mj(index)) for index in range(2)}
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setenv("ZEUSD_SOCK_PATH", str(path))
    yield server
    server.shutdown()
    server.server_close()
    pynvml.nvmlShutdown()


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
    daemon.shown[12] = ("Fake GPU", lambda: 77)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    with closing(open_limiter()) as limiter:
        limiter.set(150)
        assert fake_gpus.limits_w() == [250, 150]
    assert {query["gpu_ids"] for _, query in daemon.asked} == {"11"}


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        ({10: ("Fake GPU", lambda: counter_mj(0)), 11: ("Fake GPU", lambda: 5)}, "GPU 1 (GPU-11345678-fake) can't be"),
        ({key: ("Fake GPU", lambda: counter_mj(0)) for key in (10, 11, 12)}, "GPU 0 (GPU-00345678-fake) can't be told"),
        ({10: ("Other", lambda: counter_mj(0)), 11: ("Other", lambda: counter_mj(1))}, "can't be told among zeusd's"),
        ({}, "has no GPU"),
    ],
)
def test_a_gpu_that_cannot_be_told_for_sure_is_never_touched(daemon, fake_gpus, shown, why):
    daemon.shown = shown
    limiter = open_limiter()
    assert why in limiter.why_not
    assert daemon.asked == []
    assert limiter.why_not.startswith("NVML refuses")


def test_a_killed_pod_is_repaired_through_the_daemon(daemon, fake_gpus):
    limiter = open_limiter()
    limiter.set(150)
    # What a kill leaves: the limit is set, and the locks are free.
    limiter._unlock()
    repair_limits()
    assert fake_gpus.limits_w() == [250, 250]


def test_people_can_say_which_gpus_they_are(daemon, fake_gpus, monkeypatch):
    daemon.shown = {10: ("Fake GPU", lambda: 1), 11: ("Fake GPU", lambda: 1)}
    monkeypatch.setenv("ZEUS_KFP_ZEUSD_GPU_IDS", "10, 11")
    with closing(open_limiter()) as limiter:
        assert limiter.set(150) == 150
    monkeypatch.setenv("ZEUS_KFP_ZEUSD_GPU_IDS", "10")
    assert "ZEUS_KFP_ZEUSD_GPU_IDS must name 2 GPUs of the daemon, like 0,3; not '10'" in open_limiter().why_not


def test_the_same_gpus_have_the_same_numbers(fake_gpus, daemon):
    daemon.shown = {index: ("Fake GPU", lambda: 1) for index in range(2)}
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


def test_over_tcp(fake_gpus):
    class TcpDaemon(socketserver.ThreadingTCPServer):
        daemon_threads = True
        shown = {0: ("Fake GPU", lambda: 1)}

    with TcpDaemon(("127.0.0.1", 0), Handler) as server, closing(open_devices(None)) as devices:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        address = ZeusdAddress(host="127.0.0.1", port=server.server_address[1])
        assert ZeusdClient(address).gpu_models() == {0: "Fake GPU"}
        host_port = {"ZEUSD_HOST_PORT": f"127.0.0.1:{server.server_address[1]}"}
        assert ZeusdSetter(devices, host_port).name == "zeusd"
        server.shutdown()


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
