"""Speak to a zeusd daemon: HTTP over a Unix socket or TCP."""

import http.client
import ipaddress
import json
import socket
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from zeus_kfp.zeus_core.meters.nvml_devices import LimitRefusedError

_TIMEOUT_S = 5.0
_LONGEST_ANSWER = 1 << 20


class ZeusdUnreachableError(LimitRefusedError):
    """Nobody answers at a daemon's address."""


@dataclass(frozen=True, slots=True)
class ZeusdAddress:
    """Where a daemon listens.

    Attributes:
        socket_path: Its Unix socket; "" for TCP.
        host: Its host; "" for a Unix socket.
        port: Its TCP port.
        token: What it knows us by; "" for none.
    """

    socket_path: str = ""
    host: str = ""
    port: int = 0
    token: str = field(default="", repr=False)

    @property
    def is_local(self) -> bool:
        """Whether whoever listens there surely is on this machine."""
        return bool(self.socket_path) or self.host == "localhost" or _is_loopback(self.host)

    def __str__(self) -> str:
        """Return what people know it by; never the token."""
        return self.socket_path or f"{self.host}:{self.port}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class ZeusdClient:
    """One daemon; every call is a connection of its own, so that a restart of the daemon goes unnoticed."""

    def __init__(self, address: ZeusdAddress) -> None:
        """Keep the address."""
        self.address = address

    def gpu_models(self) -> dict[int, str]:
        """Return the model of each GPU of the daemon, by the daemon's number for it.

        Raises:
            LimitRefusedError: If the daemon can't be asked, or answers nothing usable.
        """
        answer = self._json("GET", "/discover", {})
        try:
            return {int(gpu["id"]): str(gpu["name"]) for gpu in answer["gpus"]}
        except (TypeError, ValueError, KeyError) as error:
            raise self._refusal(f"tells no GPUs: {error!r}") from error

    def energies_mj(self, ids: list[int]) -> dict[int, int]:
        """Return the energy counter of GPUs in mJ.

        Raises:
            LimitRefusedError: If the daemon can't be asked, or answers nothing usable.
        """
        answer = self._json("GET", "/gpu/get_cumulative_energy", {"gpu_ids": ",".join(map(str, ids))})
        try:
            return {int(key): int(value["energy_mj"]) for key, value in answer.items()}
        except (AttributeError, TypeError, ValueError, KeyError) as error:
            raise self._refusal(f"tells no energy: {error!r}") from error

    def power_limit_mw(self, gpu_id: int) -> int:
        """Return a GPU's power limit in mW.

        Raises:
            LimitRefusedError: If the daemon can't be asked, or answers nothing usable.
        """
        answer = self._json("GET", "/gpu/get_power_limit", {"gpu_ids": gpu_id})
        try:
            return int(answer[str(gpu_id)]["power_limit_mw"])
        except (AttributeError, TypeError, ValueError, KeyError) as error:
            raise self._refusal(f"tells no power limit: {error!r}") from error

    def set_power_limit(self, gpu_id: int, power_limit_mw: int) -> None:
        """Set a GPU's power limit in mW and wait until it stands.

        Raises:
            LimitRefusedError: If the daemon can't be asked, or refuses.
        """
        query = {"gpu_ids": gpu_id, "power_limit_mw": power_limit_mw, "block": "true"}
        self._ask("POST", "/gpu/set_power_limit", query)

    def _json(self, method: str, path: str, query: dict[str, Any]) -> Any:
        answer = self._ask(method, path, query)
        try:
            return json.loads(answer)
        except ValueError as error:
            raise self._refusal(f"answers {path} with {answer[:80]!r}") from error

    def _ask(self, method: str, path: str, query: dict[str, Any]) -> bytes:
        headers = {"Authorization": f"Bearer {self.address.token}"} if self.address.token else {}
        connection = _connection(self.address)
        try:
            connection.request(method, f"{path}?{urlencode(query)}" if query else path, headers=headers)
            response = connection.getresponse()
            answer = response.read(_LONGEST_ANSWER)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ZeusdUnreachableError(f"zeusd at {self.address} can't be asked: {error}") from error
        finally:
            connection.close()
        if response.status in (401, 403):
            raise self._refusal(f"does not let this token do that (HTTP {response.status}): check ZEUSD_TOKEN")
        if response.status != 200:
            text = answer[:200].decode("utf-8", errors="replace").strip()
            raise self._refusal(f"answers {path} with HTTP {response.status}: {text}")
        return answer

    def _refusal(self, what: str) -> LimitRefusedError:
        return LimitRefusedError(f"zeusd at {self.address} {what}")


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_TIMEOUT_S)
        self.sock.connect(self._path)


def _connection(address: ZeusdAddress) -> http.client.HTTPConnection:
    if address.socket_path:
        return _UnixConnection(address.socket_path)
    return http.client.HTTPConnection(address.host, address.port, timeout=_TIMEOUT_S)
