"""Which GPUs the numbers in CUDA_VISIBLE_DEVICES mean, on a machine with GPUs of different models.

NVML numbers GPUs by their place on the PCI bus. CUDA does so only where CUDA_DEVICE_ORDER=PCI_BUS_ID says it; else it
numbers the fastest first. Among GPUs of one model that is the same; among different ones a number may be that of one
card to CUDA and of another to NVML, so that the wrong card would be measured, or limited.
"""

import sys
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.meters.nvml_devices import NvmlDevices, NvmlUnavailableError, open_devices

_VALUE = "CUDA_VISIBLE_DEVICES"
_ORDER = "CUDA_DEVICE_ORDER"


def visible_value(environ: Mapping[str, str]) -> str | None:
    """Return the value of CUDA_VISIBLE_DEVICES as NVML's numbers have it; None if it is unset.

    Args:
        environ: Environment variables: CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER.

    Raises:
        InvalidValueError: If it holds numbers that can't be told, since the GPUs are of different models.
    """
    value = environ.get(_VALUE)
    if value is None or environ.get(_ORDER, "").strip() == "PCI_BUS_ID" or not _numbers(value):
        return value
    try:
        with closing(open_devices(None)) as devices:
            is_clear = len(devices.models) < 2 or len(_numbers(value)) >= devices.count
            named = ", ".join(f"{gpu.index}: {gpu.model}" for gpu in devices.gpus)
            return value if is_clear else _as_torch_sees(devices) or _refuse(value, named)
    except NvmlUnavailableError:  # whoever opens them next says why
        return value


def _numbers(value: str) -> set[str]:
    entries = {entry.strip() for entry in value.split(",")}
    return {entry for entry in entries if entry.isascii() and entry.isdigit()}


def _as_torch_sees(devices: NvmlDevices) -> str:
    """Return the UUIDs of the GPUs that PyTorch has begun to use, in its order; "" if it hasn't, or can't tell."""
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return ""
    uuids = [getattr(cuda.get_device_properties(index), "uuid", "") for index in range(cuda.device_count())]
    known = {gpu.uuid.removeprefix("GPU-"): gpu.uuid for gpu in devices.gpus}
    seen = [known.get(str(uuid).removeprefix("GPU-"), "") for uuid in uuids]
    return ",".join(seen) if all(seen) else ""


def _refuse(value: str, named: str) -> str:
    raise InvalidValueError(
        f"{_VALUE}={value} does not say which GPUs are meant: this machine has different models ({named}, by their "
        f"place on the bus), and CUDA numbers the fastest first. Set {_ORDER}=PCI_BUS_ID, or name them by UUID "
        "(nvidia-smi -L)"
    )
