"""A daemon that speaks zeusd's HTTP interface and may set the limits of fake GPUs, although its pods may not."""

import json
import socketserver
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

import pynvml


class _Daemon(socketserver.ThreadingMixIn):
    """What it shows can be changed while it runs.

    Attributes:
        shown: Its GPUs by its own number: model, index among the fake GPUs (None: of another node), counter in mJ.
        token: What a pod must know to set a limit; "" for nothing.
        refuses: Why it sets no limit; "" if it does.
        asked: Every wish to set a limit.
    """

    daemon_threads = True

    def __init__(self, address, gpus, shown):
        self.gpus, self.shown, self.token, self.refuses, self.asked = gpus, shown, "", "", []
        super().__init__(address, _Handler)

    def set_limit(self, key, limit_mw):
        index = self.shown[key].index
        if index is None:
            return
        self.gpus.set(SET=None)
        try:
            pynvml.nvmlDeviceSetPowerManagementLimit(pynvml.nvmlDeviceGetHandleByIndex(index), limit_mw)
        finally:
            self.gpus.set(SET="denied")


class UnixDaemon(_Daemon, socketserver.UnixStreamServer):
    pass


class TcpDaemon(_Daemon, socketserver.TCPServer):
    pass


class Shown:
    """A GPU as the daemon shows it: the fake GPU of an index, or one of another node whose figures are given."""

    def __init__(self, index=None, model="Fake GPU", energy_mj=None, limit_mw=250_000):
        self.index, self.model, self._energy_mj, self._limit_mw = index, model, energy_mj, limit_mw

    @property
    def energy_mj(self):
        if self._energy_mj is not None or self.index is None:
            return self._energy_mj
        return pynvml.nvmlDeviceGetTotalEnergyConsumption(pynvml.nvmlDeviceGetHandleByIndex(self.index))

    @property
    def limit_mw(self):
        if self.index is None:
            return self._limit_mw
        return pynvml.nvmlDeviceGetPowerManagementLimit(pynvml.nvmlDeviceGetHandleByIndex(self.index))


@contextmanager
def running(server):
    """Let a daemon answer inside the block."""
    pynvml.nvmlInit()
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        pynvml.nvmlShutdown()


class _Handler(BaseHTTPRequestHandler):
    def address_string(self):
        return "pod"

    def log_message(self, *_):
        pass

    def do_GET(self):
        shown, path = self.server.shown, urlsplit(self.path).path
        try:
            if path == "/discover":
                gpus = [{"id": key, "name": gpu.model} for key, gpu in shown.items()]
                self._answer(200, {"gpus": gpus, "cpus": []})
            elif path == "/gpu/get_power_limit":
                self._answer(200, {str(key): {"power_limit_mw": shown[key].limit_mw} for key in self._ids()})
            else:
                energies_mj = {key: shown[key].energy_mj for key in self._ids()}
                if None in energies_mj.values():
                    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
                self._answer(200, {str(key): {"energy_mj": energy_mj} for key, energy_mj in energies_mj.items()})
        except pynvml.NVMLError as error:
            self._answer(400, {"error": str(error)})

    def do_POST(self):
        self.server.asked.append((urlsplit(self.path).path, self._query()))
        if self.server.token and self.headers["Authorization"] != f"Bearer {self.server.token}":
            self._answer(403, {"error": "scope"})
        elif self.server.refuses:
            self._answer(500, {"error": self.server.refuses})
        else:
            self._set_limits()

    def _set_limits(self):
        try:
            for key in self._ids():
                self.server.set_limit(key, int(self._query()["power_limit_mw"]))
        except pynvml.NVMLError as error:
            self._answer(400, {"error": str(error)})
        else:
            self._answer(200, {})

    def _query(self):
        return {key: value[0] for key, value in parse_qs(urlsplit(self.path).query).items()}

    def _ids(self):
        return [int(key) for key in self._query()["gpu_ids"].split(",")]

    def _answer(self, status, document):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
