"""Set power limits through zeusd, the daemon of a node that may do what a pod may not.

A pod sees some of its node's GPUs and numbers them itself; the daemon sees all of them and knows no UUIDs. So before
anything is set, each GPU is found among the daemon's: by its number where both see the same GPUs, otherwise by its
energy counter, which no two GPUs share to the millijoule. A GPU that can't be told for sure is never touched, since
it may be another pod's.
"""

import re
from collections.abc import Mapping

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.meters.nvml_devices import Gpu, LimitRefusedError, NvmlDevices
from zeus_kfp.zeus_core.power.zeusd_client import ZeusdAddress, ZeusdClient

SOCKET_VARIABLE = "ZEUSD_SOCK_PATH"
HOST_VARIABLE = "ZEUSD_HOST_PORT"
TOKEN_VARIABLE = "ZEUSD_TOKEN"
IDS_VARIABLE = "ZEUS_KFP_ZEUSD_GPU_IDS"
"""The daemon's numbers for the GPUs of this process, in its own order, where they can't be found out."""


def zeusd_address(environ: Mapping[str, str]) -> ZeusdAddress | None:
    """Return where the daemon listens; None if the environment names none.

    Raises:
        InvalidValueError: If ZEUSD_HOST_PORT is no host:port.
    """
    token = environ.get(TOKEN_VARIABLE, "")
    if environ.get(SOCKET_VARIABLE):
        return ZeusdAddress(socket_path=environ[SOCKET_VARIABLE], token=token)
    host_port = environ.get(HOST_VARIABLE, "")
    if not host_port:
        return None
    host, _, port = host_port.rpartition(":")
    if not host or not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 65536:
        raise InvalidValueError(f"{HOST_VARIABLE} must be like node-7:4938, not {host_port!r}")
    return ZeusdAddress(host=host.strip("[]"), port=int(port), token=token)


class ZeusdSetter:
    """Sets limits through a daemon."""

    name = "zeusd"

    def __init__(self, devices: NvmlDevices, environ: Mapping[str, str]) -> None:
        """Find the GPUs among those of the daemon that the environment names.

        Raises:
            InvalidValueError: If ZEUSD_HOST_PORT is no host:port.
            LimitRefusedError: If there is no daemon, it can't be asked, or a GPU can't be told for sure.
        """
        address = zeusd_address(environ)
        if address is None:
            raise LimitRefusedError(f"neither {SOCKET_VARIABLE} nor {HOST_VARIABLE} names a zeusd daemon")
        self._client = ZeusdClient(address)
        self._ids = _told_ids(devices, environ) or _ids(devices, self._client)

    def set_limit(self, gpu: Gpu, power_limit_w: float) -> None:
        """Ask for a limit in W on one GPU.

        Raises:
            LimitRefusedError: If the daemon refuses.
        """
        self._client.set_power_limit(self._ids[gpu.uuid], round(power_limit_w * 1000))

    def close(self) -> None:
        """Do nothing; there is nothing to give back."""


def _told_ids(devices: NvmlDevices, environ: Mapping[str, str]) -> dict[str, int]:
    value = environ.get(IDS_VARIABLE, "").strip()
    if not value:
        return {}
    if not re.fullmatch(r"[0-9]+( *, *[0-9]+)*", value) or len(value.split(",")) != devices.count:
        raise LimitRefusedError(f"{IDS_VARIABLE} must name {devices.count} GPUs of the daemon, like 0,3; not {value!r}")
    return {gpu.uuid: int(number) for gpu, number in zip(devices.gpus, value.split(","), strict=True)}


def _ids(devices: NvmlDevices, client: ZeusdClient) -> dict[str, int]:
    models = client.gpu_models()
    if not models:
        raise LimitRefusedError(f"zeusd at {client.address} has no GPU")
    if len(models) == devices.total and all(models.get(gpu.index) == gpu.model for gpu in devices.gpus):
        return {gpu.uuid: gpu.index for gpu in devices.gpus}
    before_j = devices.energies_j()
    theirs_mj = client.energies_mj(sorted(models))
    after_j = devices.energies_j()
    return {
        gpu.uuid: _match(gpu, low_j, high_j, {key: mj for key, mj in theirs_mj.items() if models.get(key) == gpu.model})
        for gpu, low_j, high_j in zip(devices.gpus, before_j, after_j, strict=True)
    }


def _match(gpu: Gpu, low_j: float | None, high_j: float | None, theirs_mj: Mapping[int, int]) -> int:
    """Return the one GPU of the daemon whose counter lies between two readings of ours."""
    if low_j is not None and high_j is not None:
        fits = [key for key, energy_mj in theirs_mj.items() if low_j <= energy_mj / 1000 <= high_j]
        if len(fits) == 1:
            return fits[0]
    raise LimitRefusedError(
        f"GPU {gpu.index} ({gpu.uuid}) can't be told among zeusd's: set {IDS_VARIABLE} to zeusd's numbers for "
        "the GPUs of this process"
    )
