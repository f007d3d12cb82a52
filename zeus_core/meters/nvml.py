"""Energy of NVIDIA GPUs: their energy counter, or their power integrated over time, or an estimate of that."""

import logging
from collections.abc import Callable
from typing import Any

from zeus_kfp.zeus_core.meters.checked import CheckedMeter
from zeus_kfp.zeus_core.meters.interface import Meter
from zeus_kfp.zeus_core.meters.nvml_devices import NvmlDevices, open_devices
from zeus_kfp.zeus_core.meters.nvml_start import NvmlUnavailableError
from zeus_kfp.zeus_core.meters.polling import PollingMeter

logger = logging.getLogger(__name__)


class CounterMeter:
    """Sum of the GPUs' own energy counters."""

    name = "nvml"
    estimated = False
    shortest_window_s = 1.0
    """The counter is renewed every 20 to 100 ms, so that a second is off by a tenth at most."""
    settling_s = 0.2

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
        # One at 0 says nothing: of a reset the next reading tells.
        now = [energy_j or None for energy_j in self._devices.energies_j()]
        for index, (last, current) in enumerate(zip(self._last_j, now, strict=True)):
            if current is None or (last is not None and _is_misread(last, current)):
                continue
            if last is not None:
                self._total_j += current - (last if current >= last else 0.0)
            self._last_j[index] = current
        return None if None in now else self._total_j

    def close(self) -> None:
        """Close NVML; later readings are None."""
        if not self._closed:
            self._closed = True
            self._devices.close()


def _is_misread(last_j: float, current_j: float) -> bool:
    """Return whether a counter fell a little; one that fell far was reset with its driver, and restarted at 0."""
    return last_j / 2 <= current_j < last_j


class UtilisationSource:
    """Power as the share of time in which the GPUs are at work, times their rated power: an estimate."""

    def __init__(self, devices: NvmlDevices) -> None:
        """Start from devices whose rated power is known."""
        self._devices = devices
        self.model = devices.model
        self.count = devices.count
        self.max_power_w = devices.max_power_w
        self.power_limit_w = devices.power_limit_w

    def power_w(self) -> float | None:
        """Return the estimate in W; None if any GPU tells no utilisation."""
        shares = self._devices.utilisations()
        known = [share for share in shares if share is not None]
        return sum(known) * self.max_power_w / self.count if len(known) == self.count else None

    def close(self) -> None:
        """Close NVML."""
        self._devices.close()


def open_nvml(cuda_visible_devices: str | None, *, load: Callable[[], Any] | None = None) -> Meter:
    """Open a meter over the GPUs that CUDA would show this process.

    Args:
        cuda_visible_devices: Value of CUDA_VISIBLE_DEVICES; None if it is unset.
        load: Returns the pynvml module; for tests.

    Raises:
        NvmlUnavailableError: If there is no NVML, no GPU, or none of them can be read.
    """
    devices = open_devices(cuda_visible_devices, load=load)
    _tell_left_out(devices)
    _tell_divided(devices)
    # A counter at 0 has never counted, though the driver may say that there is one.
    if all(devices.energies_j()):
        return _checked(devices)
    if devices.power_w() is not None:
        return PollingMeter(devices)
    guess = UtilisationSource(devices)
    if devices.max_power_w and guess.power_w() is not None:
        return PollingMeter(guess, name="nvml-utilisation", estimated=True)
    devices.close()
    raise NvmlUnavailableError(
        f"neither the energy nor the power of {devices.count} x {devices.model} can be read",
        gpus_left_out=True,
        advice="cost is estimated from CPU time alone; virtual GPUs need a profile that shows their power",
    )


def _tell_left_out(devices: NvmlDevices) -> None:
    if devices.left_out:
        logger.warning(
            "CUDA leaves out %s of CUDA_VISIBLE_DEVICES, which ends at its first entry that is none of this machine's "
            "%d GPUs; GPU %s counts",
            ",".join(devices.left_out),
            devices.total,
            ", ".join(str(gpu.index) for gpu in devices.gpus),
        )


def _tell_divided(devices: NvmlDevices) -> None:
    divided = [str(gpu.index) for gpu in devices.gpus if devices.is_divided(gpu)]
    if divided:
        logger.warning(
            "divided (MIG): GPU %s. Only a whole GPU has an energy, so that what others do on its parts counts too",
            ", ".join(divided),
        )


def _checked(devices: NvmlDevices) -> Meter:
    """Return the counters' meter, checked by the power where that can be read too."""
    counter = CounterMeter(devices)
    return counter if devices.power_w() is None else CheckedMeter(counter, PollingMeter(devices, interval_s=1.0))
