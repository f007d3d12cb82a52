"""Choose the best meter that this machine offers."""

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from zeus_kfp.zeus_core.meters.device_order import visible_value
from zeus_kfp.zeus_core.meters.estimate import open_estimate
from zeus_kfp.zeus_core.meters.interface import Meter
from zeus_kfp.zeus_core.meters.nvml import open_nvml
from zeus_kfp.zeus_core.meters.nvml_start import NvmlUnavailableError
from zeus_kfp.zeus_core.meters.rapl import FOLDER, FOLDER_VARIABLE, RaplUnavailableError, open_rapl

logger = logging.getLogger(__name__)


def open_meter(environ: Mapping[str, str] = os.environ) -> Meter:
    """Open the best meter for the GPUs that this process may use, or for the processors if there are none.

    In this order: the energy counter of the NVIDIA GPUs in CUDA_VISIBLE_DEVICES; their power, polled and
    integrated; without any GPU, RAPL. Failing these an estimate, from the GPUs' utilisation or from CPU time. GPUs
    that can't be read are never left to RAPL, which would count as measured what is only a part.

    Args:
        environ: Environment variables: CUDA_VISIBLE_DEVICES, ZEUS_KFP_RAPL_FOLDER, ZEUS_KFP_CPU_CORE_POWER_W.

    Raises:
        InvalidValueError: If ZEUS_KFP_CPU_CORE_POWER_W is set to something that is no power, or
            CUDA_VISIBLE_DEVICES does not say which of several models is meant.
    """
    try:
        return open_nvml(visible_value(environ))
    except NvmlUnavailableError as unavailable:
        if unavailable.advice:
            logger.warning("%s. GPUs are left out of all energy: %s", unavailable, unavailable.advice)
        if unavailable.gpus_left_out:
            return open_estimate(environ)
    return _processor_meter(environ)


def _processor_meter(environ: Mapping[str, str]) -> Meter:
    estimate = open_estimate(environ)
    try:
        return open_rapl(
            Path(environ.get(FOLDER_VARIABLE) or FOLDER),
            accelerator=estimate.accelerator,
            core_count=estimate.accelerator_count,
            rated_power_w=estimate.max_power_w,
        )
    except RaplUnavailableError as unavailable:
        logger.info("%s; energy is estimated from CPU time", unavailable)
        return estimate
