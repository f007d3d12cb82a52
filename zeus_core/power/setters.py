"""The ways to set a power limit that this process may have, best first."""

from collections.abc import Callable, Iterator, Mapping

from zeus_kfp.zeus_core.meters.nvml_devices import Gpu, NvmlDevices
from zeus_kfp.zeus_core.power.interface import Setter


class NvmlSetter:
    """Sets limits itself, which takes the right to administer the machine."""

    name = "nvml"

    def __init__(self, devices: NvmlDevices) -> None:
        """Set the limits of ``devices``, which stay the caller's to close."""
        self._devices = devices

    def set_limit(self, gpu: Gpu, power_limit_w: float) -> None:
        """Ask for a limit in W on one GPU.

        Raises:
            LimitRefusedError: If NVML refuses.
        """
        self._devices.set_limit(gpu, power_limit_w)

    def close(self) -> None:
        """Do nothing; there is nothing to give back."""


def setters(devices: NvmlDevices, environ: Mapping[str, str]) -> Iterator[Callable[[], Setter]]:
    """Yield what opens each way to set limits; opening raises LimitRefusedError where that way is closed.

    Args:
        devices: The GPUs.
        environ: Environment variables: ZEUSD_SOCK_PATH, ZEUSD_HOST_PORT, ZEUSD_TOKEN, ZEUS_KFP_ZEUSD_GPU_IDS.
    """
    yield lambda: NvmlSetter(devices)
    if environ.get("ZEUSD_SOCK_PATH") or environ.get("ZEUSD_HOST_PORT"):
        # HTTP takes its time to import, and few have a daemon.
        from zeus_kfp.zeus_core.power.zeusd import ZeusdSetter

        yield lambda: ZeusdSetter(devices, environ)
