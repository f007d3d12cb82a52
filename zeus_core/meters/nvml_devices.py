"""The NVIDIA GPUs that this process may use, through NVML.

NVML speaks mJ and mW; both are turned into J and W here and nowhere else. Reading needs no privilege; setting a power
limit does.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from zeus_kfp.zeus_core.meters.nvml_start import NvmlUnavailableError, start_nvml
from zeus_kfp.zeus_core.meters.visible_devices import left_out, names_none, visible_devices

__all__ = ["Gpu", "LimitRefusedError", "NvmlDevices", "NvmlUnavailableError", "open_devices"]

logger = logging.getLogger(__name__)

_PAUSE_S = 0.05
_TRIES = 3


class LimitRefusedError(Exception):
    """A power limit can't be set; the message says why."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU.

    Attributes:
        handle: What NVML knows it by.
        index: Its number in NVML.
        uuid: "GPU-…".
        model: Its name; "" if unknown.
    """

    handle: Any = field(compare=False)
    index: int
    uuid: str
    model: str


class NvmlDevices:
    """The GPUs that this process may use, with NVML open.

    Attributes:
        gpus: The GPUs, in the order in which CUDA shows them.
        model: Their model; several different ones are joined with " + ".
        count: How many.
        total: How many GPUs NVML shows, those included that this process may not use.
        left_out: What CUDA_VISIBLE_DEVICES names beside them, and CUDA leaves out.
        max_power_w: Sum of their highest allowed limits in W; 0 if unknown.
        power_limit_w: Limit in W that all of them had when they were opened; None if unknown or different.
    """

    def __init__(self, nvml: Any, gpus: list[Gpu], total: int, left_out: tuple[str, ...]) -> None:
        """Read what the GPUs are.

        Args:
            nvml: The initialised pynvml module.
            gpus: Those that this process may use.
            total: How many GPUs NVML shows.
            left_out: What CUDA_VISIBLE_DEVICES names beside them.
        """
        self._nvml = nvml
        self._is_closed = False
        self.total = total
        self.left_out = left_out
        self.gpus = tuple(gpus)
        self.count = len(gpus)
        self.model = " + ".join(self.models)[:255] or "NVIDIA GPU"
        highest_w = [self._highest_w(gpu) for gpu in gpus]
        self.max_power_w = sum(power for power in highest_w if power) if all(highest_w) else 0.0
        limits_w = {self.limit_w(gpu) for gpu in gpus}
        self.power_limit_w = limits_w.pop() if len(limits_w) == 1 else None

    @property
    def models(self) -> tuple[str, ...]:
        """The different models among them."""
        return tuple(dict.fromkeys(gpu.model for gpu in self.gpus if gpu.model))

    @property
    def driver_version(self) -> str:
        """The driver's version; "" if it can't be read."""
        try:
            return _text(self._nvml.nvmlSystemGetDriverVersion())
        except self._nvml.NVMLError as error:
            logger.debug("nvmlSystemGetDriverVersion: %s", error)
            return ""

    def energies_j(self) -> list[float | None]:
        """Return each GPU's energy counter in J, None where it can't be read."""
        return [_thousandth(self._ask("GetTotalEnergyConsumption", gpu)) for gpu in self.gpus]

    def power_w(self) -> float | None:
        """Return the power in W over all GPUs now; None if any of them can't be read."""
        # No GPU draws nothing: a driver that says so, as some do of virtual ones, has nothing to say.
        powers = [_thousandth(self._ask("GetPowerUsage", gpu)) or None for gpu in self.gpus]
        known = [power for power in powers if power is not None]
        return sum(known) if len(known) == len(powers) else None

    def utilisations(self) -> list[float | None]:
        """Return the share of time, 0 to 1, in which each GPU was at work lately; None where it can't be read."""
        asked = [self._ask("GetUtilizationRates", gpu) for gpu in self.gpus]
        return [None if rates is None else rates.gpu / 100 for rates in asked]

    def limit_w(self, gpu: Gpu) -> float | None:
        """Return the power limit of a GPU in W now; None if it can't be read."""
        return _thousandth(self._ask("GetPowerManagementLimit", gpu)) or None

    def default_limit_w(self, gpu: Gpu) -> float | None:
        """Return the power limit in W that a GPU has after a boot; None if it can't be read."""
        return _thousandth(self._ask("GetPowerManagementDefaultLimit", gpu)) or None

    def allowed_w(self, gpu: Gpu) -> tuple[float, float] | None:
        """Return the lowest and the highest power limit in W that a GPU takes; None if they can't be read."""
        constraints_mw = self._ask("GetPowerManagementLimitConstraints", gpu)
        return (constraints_mw[0] / 1000, constraints_mw[1] / 1000) if constraints_mw else None

    def process_ids(self, gpu: Gpu) -> list[int]:
        """Return the processes that compute on a GPU; none where they can't be known."""
        return [process.pid for process in self._ask("GetComputeRunningProcesses", gpu) or ()]

    def is_divided(self, gpu: Gpu) -> bool:
        """Return whether a GPU is divided into parts (MIG), which several users may share."""
        mode = self._ask("GetMigMode", gpu)
        return bool(mode and mode[0])

    def set_limit(self, gpu: Gpu, power_limit_w: float) -> None:
        """Ask for a power limit in W.

        Raises:
            LimitRefusedError: If NVML refuses.
        """
        try:
            self._call("SetPowerManagementLimit", gpu.handle, round(power_limit_w * 1000))
        except self._nvml.NVMLError as error:
            raise LimitRefusedError(f"NVML refuses to set the power limit of GPU {gpu.index}: {error}") from error

    def close(self) -> None:
        """Close NVML; a second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError as error:
            logger.debug("NVML could not be closed: %s", error)

    def _highest_w(self, gpu: Gpu) -> float | None:
        allowed_w = self.allowed_w(gpu)
        return allowed_w[1] if allowed_w else self.default_limit_w(gpu) or self.limit_w(gpu)

    def _ask(self, what: str, gpu: Gpu) -> Any:
        try:
            return self._call(what, gpu.handle)
        except self._nvml.NVMLError as error:
            logger.debug("nvmlDevice%s: %s", what, error)
            return None

    def _call(self, what: str, *arguments: Any) -> Any:
        """Call a function of a GPU, once more where it says that it isn't ready yet."""
        function = getattr(self._nvml, f"nvmlDevice{what}")
        passing = (self._nvml.NVML_ERROR_NOT_READY, self._nvml.NVML_ERROR_TIMEOUT)
        for tries_left in reversed(range(_TRIES)):
            try:
                return function(*arguments)
            except self._nvml.NVMLError as error:
                if error.value not in passing or not tries_left:
                    raise
            time.sleep(_PAUSE_S)


def open_devices(cuda_visible_devices: str | None, *, load: Callable[[], Any] | None = None) -> NvmlDevices:
    """Open NVML with the GPUs that CUDA would show this process.

    Args:
        cuda_visible_devices: Value of CUDA_VISIBLE_DEVICES; None if it is unset.
        load: Returns the pynvml module; for tests.

    Raises:
        NvmlUnavailableError: If there is no NVML, or no GPU, or one of this process's can't be opened.
    """
    if names_none(cuda_visible_devices):
        raise NvmlUnavailableError(f"no GPU is visible (CUDA_VISIBLE_DEVICES={cuda_visible_devices!r})")
    nvml = (load or _load_pynvml)()
    start_nvml(nvml)
    try:
        gpus = _listed(nvml)
        uuids, entries = [gpu.uuid for gpu in gpus], _with_parents(nvml, cuda_visible_devices)
        visible = [gpus[index] for index in visible_devices(entries, uuids)]
        _check_visible(visible, len(gpus), cuda_visible_devices)
    except NvmlUnavailableError:
        nvml.nvmlShutdown()
        raise
    return NvmlDevices(nvml, visible, len(gpus), left_out(entries, uuids))


def _load_pynvml() -> Any:
    try:
        import pynvml
    except ImportError as error:
        raise NvmlUnavailableError(f"nvidia-ml-py is not installed: {error}") from error
    return pynvml


def _listed(nvml: Any) -> list[Gpu]:
    try:
        return [_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError as error:
        raise NvmlUnavailableError(
            f"the GPUs can't be listed: {error}", gpus_left_out=True, advice="see what nvidia-smi says"
        ) from error


def _with_parents(nvml: Any, value: str | None) -> str | None:
    return None if value is None else ",".join(_parent(nvml, entry.strip()) for entry in value.split(","))


def _check_visible(gpus: list[Gpu], total: int, value: str | None) -> None:
    """Refuse to go on with no GPU, or without one of this process's, whose energy would be missing."""
    if not gpus:
        named = f"no GPU is visible (CUDA_VISIBLE_DEVICES={value!r})"
        advice = f"this machine has {total} GPUs: name them by their numbers from 0, or by nvidia-smi -L's UUIDs"
        raise NvmlUnavailableError(named, advice="" if value is None else advice)
    for gpu in gpus:
        if gpu.handle is None:
            raise NvmlUnavailableError(
                f"GPU {gpu.index} can't be opened: {gpu.model}",
                gpus_left_out=True,
                advice="see what nvidia-smi says, or name the other GPUs in CUDA_VISIBLE_DEVICES",
            )


def _gpu(nvml: Any, index: int) -> Gpu:
    """Return a GPU; one that is lost has no handle, and the reason in place of its model."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        uuid = _text(nvml.nvmlDeviceGetUUID(handle))
    except nvml.NVMLError as error:
        return Gpu(None, index, "", str(error))
    try:
        model = _text(nvml.nvmlDeviceGetName(handle))
    except nvml.NVMLError as error:
        logger.debug("the name of GPU %d: %s", index, error)
        model = ""
    return Gpu(handle, index, uuid, model)


def _parent(nvml: Any, entry: str) -> str:
    """Return the UUID of the GPU that a MIG-<uuid> is a part of; anything else as it is."""
    if not entry.startswith("MIG-") or entry.startswith("MIG-GPU-"):
        return entry
    try:
        part = nvml.nvmlDeviceGetHandleByUUID(entry)
        return _text(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(part)))
    except nvml.NVMLError as error:
        logger.debug("%s in CUDA_VISIBLE_DEVICES is not known: %s", entry, error)
        return entry


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")


def _thousandth(value: int | None) -> float | None:
    return None if value is None else value / 1000
