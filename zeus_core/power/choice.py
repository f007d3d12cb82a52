"""Choose how to set power limits on this machine."""

import logging
import os
from collections.abc import Mapping

from zeus_kfp.zeus_core.errors import InvalidValueError, MixedGpusError
from zeus_kfp.zeus_core.meters.device_order import visible_value
from zeus_kfp.zeus_core.meters.nvml_devices import (
    LimitRefusedError,
    NvmlDevices,
    NvmlUnavailableError,
    open_devices,
)
from zeus_kfp.zeus_core.power.found import limits_folder
from zeus_kfp.zeus_core.power.interface import NoGpu, ObserveOnly, PowerLimiter
from zeus_kfp.zeus_core.power.limiter import GpuLimiter
from zeus_kfp.zeus_core.power.setters import setters

logger = logging.getLogger(__name__)

SWITCH_VARIABLE = "ZEUS_KFP_POWER_LIMITS"
"""on (the default) or off: whether power limits may be changed."""


def open_limiter(environ: Mapping[str, str] = os.environ, *, highest_w: float | None = None) -> PowerLimiter:
    """Open the best way to set the power limit of the GPUs that this process may use.

    In this order: NVML itself, a zeusd daemon, observing only. Where there are GPUs whose limits stay as they are,
    one warning says why.

    Args:
        environ: Environment variables: CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER, ZEUS_KFP_POWER_LIMITS,
            ZEUS_KFP_LIMITS_FOLDER, and those of zeusd.
        highest_w: Highest limit that may be set, in W; None for the one found.

    Raises:
        InvalidValueError: If ZEUS_KFP_POWER_LIMITS or ZEUSD_HOST_PORT has a value that it can't have, or
            CUDA_VISIBLE_DEVICES does not say which of several models is meant.
        MixedGpusError: If the GPUs are of different models.
    """
    may_set = _may_set(environ)
    try:
        devices = open_devices(visible_value(environ))
    except NvmlUnavailableError as error:
        return ObserveOnly(str(error)) if error.gpus_left_out else NoGpu(str(error))
    _check_models(devices)
    why_not = "" if may_set else f"{SWITCH_VARIABLE}=off"
    limiter = _first_that_works(devices, environ, highest_w) if may_set else why_not
    if not isinstance(limiter, str):
        return limiter
    found_w = devices.power_limit_w
    devices.close()
    if may_set:
        logger.warning("power limits stay as they are; everything else is measured all the same. %s", limiter)
    return ObserveOnly(limiter, found_w)


def _check_models(devices: NvmlDevices) -> None:
    if len(devices.models) > 1:
        named = ", ".join(f"{gpu.index}: {gpu.model}" for gpu in devices.gpus)
        devices.close()
        raise MixedGpusError(
            f"a trial must run on GPUs of one model, not {named}: name those of one model in CUDA_VISIBLE_DEVICES, or "
            "select nodes that have only one"
        )


def _may_set(environ: Mapping[str, str]) -> bool:
    value = environ.get(SWITCH_VARIABLE, "").strip().lower() or "on"
    if value not in ("on", "off"):
        raise InvalidValueError(f"{SWITCH_VARIABLE} must be on or off, not {value!r}")
    return value == "on"


def _first_that_works(devices: NvmlDevices, environ: Mapping[str, str], highest_w: float | None) -> GpuLimiter | str:
    """Return a limiter, or why there is none."""
    refusals = []
    try:
        folder = limits_folder(environ)
    except OSError as error:
        return f"the limits found could not be kept for a repair: {error}"
    for open_setter in setters(devices, environ):
        try:
            return GpuLimiter(devices, open_setter(), folder, highest_w=highest_w)
        except LimitRefusedError as error:
            refusals.append(str(error))
    return "; ".join(refusals)
