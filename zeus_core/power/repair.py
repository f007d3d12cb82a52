"""Put back the power limits that killed processes have left behind."""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager

from zeus_kfp.zeus_core.meters.nvml_devices import (
    Gpu,
    LimitRefusedError,
    NvmlDevices,
    NvmlUnavailableError,
    open_devices,
)
from zeus_kfp.zeus_core.power.found import FoundFile, folder_path, left_behind, limits_folder
from zeus_kfp.zeus_core.power.interface import Setter
from zeus_kfp.zeus_core.power.setters import setters

logger = logging.getLogger(__name__)

_SAME_W = 1.0
"""Two limits closer than this are the same: some drivers round to whole watts."""


def is_same(one_w: float, other_w: float) -> bool:
    """Return whether two limits in W are the same to a driver."""
    return abs(one_w - other_w) < _SAME_W


def put_back(devices: NvmlDevices, setter: Setter, gpu: Gpu, file: FoundFile) -> None:
    """Put back what a GPU's file says a killed process found, and clear the file.

    A limit that none of us has set, someone else has set since; it stays.

    Raises:
        LimitRefusedError: If the limit can't be set; the file stays as it is.
    """
    left, standing_w = file.read(), devices.limit_w(gpu)
    if left is not None and standing_w is None:
        raise LimitRefusedError(f"the limit of GPU {gpu.index} can't be read now")
    if left is not None and standing_w is not None and any(is_same(standing_w, limit_w) for limit_w in left.set_w):
        setter.set_limit(gpu, left.found_w)
        if not is_same(standing_w, left.found_w):
            logger.warning(
                "GPU %d stood at %g W, left by a process that was killed: its %g W are put back",
                gpu.index,
                standing_w,
                left.found_w,
            )
    file.clear()


def repair_limits(environ: Mapping[str, str] = os.environ) -> None:
    """Put back every power limit that a process of this machine, killed since, has left changed.

    Never raises: what can't be put back is said in a warning, and tried again by the next trial.
    """
    try:
        if not folder_path(environ).exists():
            return
        for uuid, file in left_behind(limits_folder(environ)):
            _repair_one(environ, uuid, file)
    except OSError as error:
        logger.warning("power limits that may have been left changed can't be looked up: %s", error)


def _repair_one(environ: Mapping[str, str], uuid: str, file: FoundFile) -> None:
    why = ""
    try:
        # A killed process may have had other GPUs than this one.
        with closing(open_devices(None)) as devices:
            gpu = next((known for known in devices.gpus if known.uuid == uuid), None)
            if gpu is None:
                return
            for open_setter in setters(devices, environ):
                with _tried() as refusals, closing(open_setter()) as setter:
                    put_back(devices, setter, gpu, file)
                    return
                why += "".join(refusals)
    except NvmlUnavailableError as error:
        why = str(error)
    logger.warning("the power limit that a killed process left on %s can't be put back: %s", uuid, why)


@contextmanager
def _tried() -> Iterator[list[str]]:
    refusals: list[str] = []
    try:
        yield refusals
    except LimitRefusedError as error:
        refusals.append(f"{error}. ")
