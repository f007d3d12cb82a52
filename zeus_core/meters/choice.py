"""Choose the best meter that this machine offers."""

import logging
import os
from collections.abc import Mapping

from zeus_kfp.zeus_core.meters.estimate import open_estimate
from zeus_kfp.zeus_core.meters.interface import Meter
from zeus_kfp.zeus_core.meters.nvml import open_nvml
from zeus_kfp.zeus_core.meters.nvml_devices import NvmlUnavailableError

logger = logging.getLogger(__name__)


def open_meter(environ: Mapping[str, str] = os.environ) -> Meter:
    """Open the best meter for the GPUs that this process may use, or for its CPU time if there are none.

    In this order: the energy counter of the NVIDIA GPUs in CUDA_VISIBLE_DEVICES; their power, polled and
    integrated; an estimate from CPU time.

    Args:
        environ: Environment variables: CUDA_VISIBLE_DEVICES, ZEUS_KFP_CPU_CORE_POWER_W.

    Raises:
        InvalidValueError: If ZEUS_KFP_CPU_CORE_POWER_W is set to something that is no power.
    """
    try:
        return open_nvml(environ.get("CUDA_VISIBLE_DEVICES"))
    except NvmlUnavailableError as unavailable:
        if unavailable.gpus_left_out:
            logger.warning("%s; energy is estimated from CPU time alone", unavailable)
    return open_estimate(environ)
