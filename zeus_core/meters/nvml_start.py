"""Open the driver's library, and say what is wrong where it is there and won't open.

A machine without any NVIDIA GPU has no such library, and nobody needs to hear of that. Every other failure is one of a
machine that has it: training would go on, on a GPU whose energy is missing or on none at all, so people must know.
"""

from pathlib import Path
from typing import Any

_CONTROL_DEVICE = "nvidiactl"


class NvmlUnavailableError(Exception):
    """NVML can't be used here.

    Attributes:
        gpus_left_out: Whether there may be GPUs that this process works on, which the processors' energy leaves out.
        advice: What to do about it; "" where there simply is no GPU, or none for this process.
    """

    def __init__(self, why: str, *, gpus_left_out: bool = False, advice: str = "") -> None:
        """Keep why."""
        super().__init__(why)
        self.gpus_left_out = gpus_left_out
        self.advice = advice


def start_nvml(nvml: Any, dev: Path = Path("/dev")) -> None:
    """Open NVML.

    Args:
        nvml: The pynvml module.
        dev: Where Linux shows devices.

    Raises:
        NvmlUnavailableError: If it can't be opened.
    """
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        advice = _advice(nvml, error.value, (dev / _CONTROL_DEVICE).exists())
        # Without the kernel's module, or its device, nothing here can work on a GPU.
        nothing = nvml.NVML_ERROR_LIBRARY_NOT_FOUND, nvml.NVML_ERROR_DRIVER_NOT_LOADED
        raise NvmlUnavailableError(
            f"NVML can't be opened: {error}",
            gpus_left_out=bool(advice) and (error.value not in nothing or (dev / _CONTROL_DEVICE).exists()),
            advice=advice,
        ) from error


def _advice(nvml: Any, code: int, has_device: bool) -> str:
    """Return what to do about a failure; "" where it only says that there is no GPU."""
    if code == nvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        return "let the container have it: NVIDIA_DRIVER_CAPABILITIES=compute,utility" if has_device else ""
    known = {
        nvml.NVML_ERROR_DRIVER_NOT_LOADED: "load the driver (modprobe nvidia), or, in a pod, ask for nvidia.com/gpu; "
        "to train without any GPU, set CUDA_VISIBLE_DEVICES to nothing",
        nvml.NVML_ERROR_NO_PERMISSION: "let this user, or this container, open /dev/nvidiactl and /dev/nvidia0, …",
        nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the library and the kernel's module are of different versions: "
        "reboot the machine, or load the driver again, after its upgrade",
    }
    return known.get(code, "see what nvidia-smi and the kernel's log (dmesg) say")
