"""Set power limits through zeusd, the daemon of a node that may do what a pod may not.

A pod sees some of its node's GPUs and numbers them itself; the daemon sees all of its own and knows no UUIDs, and at
an address that is wrong it may be another node's. So before anything is set, each GPU is found among the daemon's by
its energy counter, which no two GPUs share to the millijoule. Where a GPU has no counter, its number is enough if the
daemon surely is this machine's (a Unix socket, a loopback address) and both see the same GPUs; else people must say
the numbers, and what can be read of those must not speak against it. A GPU that can't be told for sure is never
touched, since it may be another pod's.
"""

import re
from collections.abc import Mapping
from contextlib import closing

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.meters.device_order import visible_value
from zeus_kfp.zeus_core.meters.nvml_devices import (
    Gpu,
    LimitRefusedError,
    NvmlDevices,
    NvmlUnavailableError,
    open_devices,
)
from zeus_kfp.zeus_core.power.note import WayBack
from zeus_kfp.zeus_core.power.zeusd_client import ZeusdAddress, ZeusdClient

SOCKET_VARIABLE = "ZEUSD_SOCK_PATH"
HOST_VARIABLE = "ZEUSD_HOST_PORT"
TOKEN_VARIABLE = "ZEUSD_TOKEN"
PORT_VARIABLE = "ZEUS_KFP_ZEUSD_PORT"
NODE_ADDRESS_VARIABLE = "ZEUS_KFP_NODE_ADDRESS"
"""With the port of a daemon on every node, the address of the pod's own, which the pipeline sets."""
IDS_VARIABLE = "ZEUS_KFP_ZEUSD_GPU_IDS"
"""The daemon's numbers for the GPUs of this process, in its own order, where they can't be found out."""


def zeusd_address(environ: Mapping[str, str]) -> ZeusdAddress | None:
    """Return where the daemon listens; None if the environment names none.

    Raises:
        InvalidValueError: If ZEUSD_HOST_PORT is no host:port, or ZEUS_KFP_ZEUSD_PORT no port.
    """
    token = environ.get(TOKEN_VARIABLE, "")
    if environ.get(SOCKET_VARIABLE):
        return ZeusdAddress(socket_path=environ[SOCKET_VARIABLE], token=token)
    name, host_port = HOST_VARIABLE, environ.get(HOST_VARIABLE, "")
    if not host_port and environ.get(PORT_VARIABLE):
        name, host_port = PORT_VARIABLE, f"{environ.get(NODE_ADDRESS_VARIABLE, '')}:{environ[PORT_VARIABLE]}"
    if not host_port:
        return None
    host, _, port = host_port.rpartition(":")
    if not host or not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 65536:
        like = "node-7:4938" if name == HOST_VARIABLE else f"4938, with {NODE_ADDRESS_VARIABLE} set"
        raise InvalidValueError(f"{name} must be like {like}, not {environ[name]!r}")
    return ZeusdAddress(host=host.strip("[]"), port=int(port), token=token)


class ZeusdSetter:
    """Sets limits through a daemon."""

    name = "zeusd"

    def __init__(self, devices: NvmlDevices, environ: Mapping[str, str]) -> None:
        """Find the GPUs among those of the daemon that the environment names.

        Raises:
            InvalidValueError: If the daemon's address is none.
            LimitRefusedError: If there is no daemon, it can't be asked, or a GPU can't be told for sure.
        """
        address = zeusd_address(environ)
        if address is None:
            raise LimitRefusedError(f"{SOCKET_VARIABLE}, {HOST_VARIABLE} and {PORT_VARIABLE} name no zeusd daemon")
        self._devices = devices
        self.client = ZeusdClient(address)
        self.ids = gpu_ids(devices, self.client, told_ids(devices, environ))

    def set_limit(self, gpu: Gpu, power_limit_w: float) -> None:
        """Ask for a limit in W on one GPU.

        Raises:
            LimitRefusedError: If the daemon refuses.
        """
        self.client.set_power_limit(self.ids[gpu.uuid], round(power_limit_w * 1000))

    def way_back(self, gpu: Gpu) -> WayBack | None:
        """Return the daemon's address and number for a GPU; None where only this pod can reach the daemon."""
        if self.client.address.is_local:
            return None
        energy_j = dict(zip(self._devices.gpus, self._devices.energies_j(), strict=True))[gpu]
        return WayBack(str(self.client.address), self.ids[gpu.uuid], energy_j or 0.0)

    def close(self) -> None:
        """Do nothing; there is nothing to give back."""


def told_ids(devices: NvmlDevices, environ: Mapping[str, str]) -> dict[str, int]:
    """Return the daemon's numbers that people say the GPUs have, by UUID; none if they say none.

    Raises:
        LimitRefusedError: If they don't name as many GPUs as this process has.
    """
    value = environ.get(IDS_VARIABLE, "").strip()
    if not value:
        return {}
    if not re.fullmatch(r"[0-9]+( *, *[0-9]+)*", value) or len(value.split(",")) != devices.count:
        raise LimitRefusedError(f"{IDS_VARIABLE} must name {devices.count} GPUs of the daemon, like 0,3; not {value!r}")
    return {gpu.uuid: int(number) for gpu, number in zip(devices.gpus, value.split(","), strict=True)}


def environ_for(uuid: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process that has one GPU alone: of the daemon's numbers only that one's is left."""
    kept = {name: value for name, value in environ.items() if name != IDS_VARIABLE}
    try:
        with closing(open_devices(visible_value(environ))) as devices:
            number = told_ids(devices, environ).get(uuid)
    except (NvmlUnavailableError, InvalidValueError, LimitRefusedError):
        number = None
    return kept if number is None else kept | {IDS_VARIABLE: str(number)}


def gpu_ids(devices: NvmlDevices, client: ZeusdClient, told: Mapping[str, int]) -> dict[str, int]:
    """Return the daemon's number for each GPU, by UUID.

    Args:
        devices: The GPUs.
        client: The daemon.
        told: Numbers that people have given them.

    Raises:
        LimitRefusedError: If the daemon can't be asked, or a GPU can't be told for sure.
    """
    models = client.gpu_models()
    if not models:
        raise LimitRefusedError(f"zeusd at {client.address} has no GPU")
    before_j = devices.energies_j()
    theirs_j = _energies_j(client, sorted(models))
    after_j = devices.energies_j()
    alike = len(models) == devices.total and all(models.get(gpu.index) == gpu.model for gpu in devices.gpus)
    ids = {}
    for gpu, low_j, high_j in zip(devices.gpus, before_j, after_j, strict=True):
        # A counter that doesn't count stands at 0, like that of any other GPU of its kind.
        ours_j = (low_j, high_j) if low_j and high_j else None
        known_j = {key: theirs_j.get(key) for key, model in models.items() if model == gpu.model}
        if gpu.uuid in told:
            ids[gpu.uuid] = _not_disproved(devices, client, gpu, told[gpu.uuid], ours_j, known_j)
        elif ours_j is not None and theirs_j:
            ids[gpu.uuid] = _counted(gpu, ours_j, known_j)
        elif client.address.is_local and alike:
            ids[gpu.uuid] = gpu.index
        else:
            raise _unsure(gpu)
    return ids


def _energies_j(client: ZeusdClient, ids: list[int]) -> dict[int, float]:
    try:
        return {key: energy_mj / 1000 for key, energy_mj in client.energies_mj(ids).items()}
    except LimitRefusedError:  # a card without a counter, or a token that may not read
        return {}


def _counted(gpu: Gpu, ours_j: tuple[float, float], theirs_j: Mapping[int, float | None]) -> int:
    """Return the one GPU of the daemon whose counter lies between two readings of ours."""
    fits = [key for key, energy_j in theirs_j.items() if energy_j is not None and ours_j[0] <= energy_j <= ours_j[1]]
    if len(fits) != 1:
        raise _unsure(gpu)
    return fits[0]


def _not_disproved(
    devices: NvmlDevices,
    client: ZeusdClient,
    gpu: Gpu,
    told: int,
    ours_j: tuple[float, float] | None,
    theirs_j: Mapping[int, float | None],
) -> int:
    """Return the number that people have given a GPU, unless what the daemon tells of it is another's."""
    energy_j = theirs_j.get(told)
    other = ""
    if told not in theirs_j:
        other = f"has no {gpu.model} of that number"
    elif ours_j is not None and energy_j is not None and not ours_j[0] <= energy_j <= ours_j[1]:
        other = "tells another energy of it"
    elif (limit_mw := _limit_mw(client, told)) is not None and limit_mw / 1000 != devices.limit_w(gpu):
        other = "tells another power limit of it"
    if other:
        raise LimitRefusedError(
            f"{IDS_VARIABLE} says that GPU {gpu.index} ({gpu.uuid}) is zeusd's {told}, but zeusd at {client.address} "
            f"{other}: correct the number, or the address"
        )
    return told


def _limit_mw(client: ZeusdClient, gpu_id: int) -> int | None:
    try:
        return client.power_limit_mw(gpu_id)
    except LimitRefusedError:
        return None


def _unsure(gpu: Gpu) -> LimitRefusedError:
    return LimitRefusedError(
        f"GPU {gpu.index} ({gpu.uuid}) can't be told among zeusd's: set {IDS_VARIABLE} to zeusd's numbers for "
        "the GPUs of this process"
    )
