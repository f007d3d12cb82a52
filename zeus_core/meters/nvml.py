"""Energy of NVIDIA GPUs, through NVML: its energy counter, or its power integrated over time.

NVML speaks mJ and mW; both are turned into J and W here and nowhere else. Reading needs no privilege.
"""

import logging
from collections.abc import Callable
from typing import Any

from zeus_kfp.zeus_core.meters.polling import PollingMeter
from zeus_kfp.zeus_core.meters.visible_devices import visible_devices

logger = logging.getLogger(__name__)


class NvmlUnavailableError(Exception):
    """NVML can't measure here.

    Attributes:
        gpus_left_out: Whether there are GPUs that this process may use, so that people should know.
    """

    def __init__(self, why: str, *, gpus_left_out: bool = False) -> None:
        """Keep why NVML can't measure."""
        super().__init__(why)
        self.gpus_left_out = gpus_left_out


class NvmlDevices:
    """The GPUs that this process may use, with NVML open.

    Attributes:
        model: Their model; several different ones are joined with " + ".
        count: How many.
        max_power_w: Sum of their highest allowed limits in W; 0 if unknown.
        power_limit_w: Limit in W that all of them have now; None if unknown or different.
    """

    def __init__(self, nvml: Any, handles: list[Any]) -> None:
        """Read what the GPUs are; ``nvml`` is the initialised pynvml module."""
        self._nvml = nvml
        self._handles = handles
        self.count = len(handles)
        names = [_text(self._ask("GetName", handle)) for handle in handles]
        self.model = " + ".join(dict.fromkeys(name for name in names if name))[:255] or "NVIDIA GPU"
        highest = [self._max_limit_mw(handle) for handle in handles]
        self.max_power_w = sum(mw for mw in highest if mw) / 1000 if all(highest) else 0.0
        limits = {self._ask("GetPowerManagementLimit", handle) for handle in handles}
        limit_mw = limits.pop() if len(limits) == 1 else None
        self.power_limit_w = limit_mw / 1000 if limit_mw else None

    def energies_j(self) -> list[float | None]:
        """Return each GPU's energy counter in J, None where it can't be read."""
        return [_thousandth(self._ask("GetTotalEnergyConsumption", handle)) for handle in self._handles]

    def power_w(self) -> float | None:
        """Return the power in W over all GPUs now; None if any of them can't be read."""
        powers = [_thousandth(self._ask("GetPowerUsage", handle)) for handle in self._handles]
        known = [power for power in powers if power is not None]
        return sum(known) if len(known) == len(powers) else None

    def close(self) -> None:
        """Close NVML."""
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError as error:
            logger.debug("NVML could not be closed: %s", error)

    def _max_limit_mw(self, handle: Any) -> int | None:
        constraints = self._ask("GetPowerManagementLimitConstraints", handle)
        if constraints:
            return int(constraints[1])
        rated: int | None = self._ask("GetPowerManagementDefaultLimit", handle)
        return rated or self._ask("GetPowerManagementLimit", handle)

    def _ask(self, what: str, handle: Any) -> Any:
        try:
            return getattr(self._nvml, f"nvmlDevice{what}")(handle)
        except self._nvml.NVMLError as error:
            logger.debug("nvmlDevice%s: %s", what, error)
            return None


class CounterMeter:
    """Sum of the GPUs' own energy counters."""

    name = "nvml"
    estimated = False

    def __init__(self, devices: NvmlDevices) -> None:
        """Start from devices whose counters can be read."""
        self._devices = devices
        self.accelerator = devices.model
        self.accelerator_count = devices.count
        self.max_power_w = devices.max_power_w
        self.power_limit_w = devices.power_limit_w
        self._last_j: list[float | None] = [None] * devices.count
        self._total_j = 0.0
        self._closed = False

    def energy_j(self) -> float | None:
        """Return the energy in J over all GPUs since the first reading; None while any can't be read."""
        if self._closed:
            return None
        now = self._devices.energies_j()
        for index, (last, current) in enumerate(zip(self._last_j, now, strict=True)):
            if current is None:
                continue
            if last is not None:
                # A counter that runs backwards was reset by a reload of the driver; it restarted at 0.
                self._total_j += current - last if current >= last else current
            self._last_j[index] = current
        return None if None in now else self._total_j

    def close(self) -> None:
        """Close NVML; later readings are None."""
        if not self._closed:
            self._closed = True
            self._devices.close()


def open_nvml(
    cuda_visible_devices: str | None, *, load: Callable[[], Any] | None = None
) -> CounterMeter | PollingMeter:
    """Open a meter over the GPUs that CUDA would show this process.

    Args:
        cuda_visible_devices: Value of CUDA_VISIBLE_DEVICES; None if it is unset.
        load: Returns the pynvml module; for tests.

    Raises:
        NvmlUnavailableError: If there is no NVML, no GPU, or none of them can be read.
    """
    nvml = _initialised(load or _load_pynvml)
    handles = _visible_handles(nvml, cuda_visible_devices)
    devices = NvmlDevices(nvml, handles)
    if not handles:
        devices.close()
        raise NvmlUnavailableError(f"no GPU is visible (CUDA_VISIBLE_DEVICES={cuda_visible_devices!r})")
    if None not in devices.energies_j():
        return CounterMeter(devices)
    if devices.power_w() is not None:
        return PollingMeter(devices)
    devices.close()
    raise NvmlUnavailableError(
        f"neither the energy nor the power of {devices.count} x {devices.model} can be read", gpus_left_out=True
    )


def _load_pynvml() -> Any:
    try:
        import pynvml
    except ImportError as error:
        raise NvmlUnavailableError(f"nvidia-ml-py is not installed: {error}") from error
    return pynvml


def _initialised(load: Callable[[], Any]) -> Any:
    nvml = load()
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise NvmlUnavailableError(f"NVML can't be opened: {error}") from error
    return nvml


def _visible_handles(nvml: Any, value: str | None) -> list[Any]:
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        uuids = [_text(nvml.nvmlDeviceGetUUID(handle)) for handle in handles]
    except nvml.NVMLError as error:
        nvml.nvmlShutdown()
        raise NvmlUnavailableError(f"the GPUs can't be listed: {error}", gpus_left_out=True) from error
    entries = None if value is None else ",".join(_parent(nvml, entry.strip()) for entry in value.split(","))
    return [handles[index] for index in visible_devices(entries, uuids)]


def _parent(nvml: Any, entry: str) -> str:
    """Return the UUID of the GPU that a MIG-<uuid> is a part of; anything else as it is."""
    if not entry.startswith("MIG-") or entry.startswith("MIG-GPU-"):
        return entry
    try:
        part = nvml.nvmlDeviceGetHandleByUUID(entry)
        return _text(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(part)))
    except nvml.NVMLError as error:
        logger.warning("%s in CUDA_VISIBLE_DEVICES is not known: %s", entry, error)
        return entry


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")


def _thousandth(value: int | None) -> float | None:
    return None if value is None else value / 1000
