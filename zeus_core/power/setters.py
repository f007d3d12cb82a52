"""The ways to set a power limit that this process may have, best first."""

import time
from collections.abc import Callable, Iterator, Mapping

from zeus_kfp.zeus_core.meters.nvml_devices import Gpu, LimitRefusedError, NvmlDevices
from zeus_kfp.zeus_core.power.interface import Setter
from zeus_kfp.zeus_core.power.note import WayBack, is_same

_TRIES = 3
_PAUSE_S = 0.1


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

    def way_back(self, gpu: Gpu) -> WayBack | None:
        """Return None: nobody else can."""
        return None

    def close(self) -> None:
        """Do nothing; there is nothing to give back."""


def setters(devices: NvmlDevices, environ: Mapping[str, str]) -> Iterator[Callable[[], Setter]]:
    """Yield what opens each way to set limits; opening raises LimitRefusedError where that way is closed.

    Args:
        devices: The GPUs.
        environ: Environment variables: ZEUSD_SOCK_PATH, ZEUSD_HOST_PORT or ZEUS_KFP_ZEUSD_PORT, ZEUSD_TOKEN,
            ZEUS_KFP_ZEUSD_GPU_IDS.
    """
    yield lambda: NvmlSetter(devices)
    if any(environ.get(name) for name in ("ZEUSD_SOCK_PATH", "ZEUSD_HOST_PORT", "ZEUS_KFP_ZEUSD_PORT")):
        # HTTP takes its time to import, and few have a daemon.
        from zeus_kfp.zeus_core.power.zeusd import ZeusdSetter

        yield lambda: ZeusdSetter(devices, environ)


def set_surely(devices: NvmlDevices, setter: Setter, gpu: Gpu, power_limit_w: float) -> None:
    """Set a limit in W that must stand in the end: read it back, and try a few times where it doesn't.

    Raises:
        LimitRefusedError: If it is refused, or has no effect, every time.
    """
    for tries_left in reversed(range(_TRIES)):
        try:
            setter.set_limit(gpu, power_limit_w)
            check_standing(devices, gpu, power_limit_w)
            return
        except LimitRefusedError:
            if not tries_left:
                raise
        time.sleep(_PAUSE_S)


def check_standing(devices: NvmlDevices, gpu: Gpu, power_limit_w: float) -> None:
    """Make sure that a limit in W stands.

    Raises:
        LimitRefusedError: If another one does, or none can be read.
    """
    standing_w = devices.limit_w(gpu)
    if standing_w is None or not is_same(standing_w, power_limit_w):
        stands = "it can't be read what stands" if standing_w is None else f"{standing_w:g} W stand"
        raise LimitRefusedError(f"{power_limit_w:g} W were asked for on GPU {gpu.index}, but {stands}")
