"""Put back the power limits that killed processes have left behind."""

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.meters.device_order import visible_value
from zeus_kfp.zeus_core.meters.nvml_devices import (
    Gpu,
    LimitRefusedError,
    NvmlDevices,
    NvmlUnavailableError,
    open_devices,
)
from zeus_kfp.zeus_core.power.found import FOLDER_VARIABLE, FoundFile, folder_path, limits_folder, noted, peek
from zeus_kfp.zeus_core.power.interface import LimitRange, Setter
from zeus_kfp.zeus_core.power.note import Found, is_same
from zeus_kfp.zeus_core.power.setters import set_surely, setters
from zeus_kfp.zeus_core.processes import seen

logger = logging.getLogger(__name__)


def put_back(devices: NvmlDevices, setter: Setter, gpu: Gpu, file: FoundFile) -> None:
    """Put back what a GPU's file says a killed process found, and clear the file.

    A limit that none of us has set, someone else has set since; it stays.

    Raises:
        LimitRefusedError: If the limit can't be set; the file stays as it is.
    """
    left, standing_w = file.read(), devices.limit_w(gpu)
    if left is not None and standing_w is None:
        raise LimitRefusedError(f"the limit of GPU {gpu.index} can't be read now")
    if left is not None and standing_w is not None and left.was_set(standing_w):
        give_back(devices, setter, gpu, file, left.found_w)
        if not is_same(standing_w, left.found_w):
            logger.warning(
                "GPU %d stood at %g W, left by a process that was killed: its %g W are put back",
                gpu.index,
                standing_w,
                left.found_w,
            )
    file.clear()


def give_back(devices: NvmlDevices, setter: Setter, gpu: Gpu, file: FoundFile, found_w: float) -> None:
    """Put back a limit in W that was found; where the GPU takes it no more, set the closest that it does.

    Raises:
        LimitRefusedError: If the limit found doesn't stand now; the file says that it must still be put back.
        OSError: If the file can't be written.
    """
    try:
        set_surely(devices, setter, gpu, found_w)
    except LimitRefusedError as error:
        allowed_w = devices.allowed_w(gpu)
        closest_w = found_w if allowed_w is None else LimitRange(*allowed_w).clamped(found_w)
        if closest_w == found_w:
            raise
        file.add(closest_w)
        set_surely(devices, setter, gpu, closest_w)
        raise LimitRefusedError(f"{error}. {closest_w:g} W, the closest that it takes now, are set instead") from error


def repair_limits(environ: Mapping[str, str] = os.environ, *, patience_s: float = 0.0) -> None:
    """Put back every power limit that a process of this machine, killed since, has left changed.

    Never raises: what can't be put back is said in a warning, and tried again by the next trial.

    Args:
        environ: Environment variables: ZEUS_KFP_LIMITS_FOLDER, CUDA_VISIBLE_DEVICES, and those of zeusd.
        patience_s: Time in s to wait for whoever holds the limit of a GPU of this process, and should have ended. Above
            0, one who still holds it after that is named in a warning.
    """
    try:
        if not folder_path(environ).exists():
            return
        dead: list[str] = []
        held = [
            path
            for path, found in noted(limits_folder(environ))
            if found.is_of_this_boot and not _repair_file(environ, path, 0.0, dead)
        ]
        if held and patience_s:
            _repair_own(environ, held, time.monotonic() + patience_s, dead)
    except OSError as error:
        logger.warning("power limits that may have been left changed can't be looked up: %s", error)


def _repair_own(environ: Mapping[str, str], held: Sequence[Path], latest_s: float, dead: list[str]) -> None:
    """Wait for those who hold the limit of a GPU that is this process's own."""
    own = standing_limits_w(environ)
    for path in held:
        if path.stem not in own or _repair_file(environ, path, max(latest_s - time.monotonic(), 0.0), dead):
            continue
        found = peek(path)
        if found is not None:
            logger.warning(
                "%s still holds the power limit of %s, which was %g W before: it puts that back at its end, or "
                "else the next trial on this machine does",
                _holder(found),
                path.stem,
                found.found_w,
            )


def _holder(found: Found) -> str:
    """Return who holds a GPU that a file tells of: where its writer has ended, a process with another folder."""
    is_alive = seen(found.process_id) is not None
    return f"process {found.process_id}" if is_alive else f"a process with another {FOLDER_VARIABLE}"


def standing_limits_w(environ: Mapping[str, str] = os.environ) -> dict[str, float]:
    """Return the power limit in W that each GPU of this process has now, by UUID; none where it can't be read."""
    try:
        with closing(open_devices(visible_value(environ))) as devices:
            limits_w = {gpu.uuid: devices.limit_w(gpu) for gpu in devices.gpus}
    except (NvmlUnavailableError, InvalidValueError):
        return {}
    return {uuid: limit_w for uuid, limit_w in limits_w.items() if limit_w is not None}


def _repair_file(environ: Mapping[str, str], path: Path, patience_s: float, dead: list[str]) -> bool:
    """Return whether nobody holds the file (any more).

    Args:
        environ: Environment variables.
        path: The file.
        patience_s: Time in s to wait for whoever holds it.
        dead: Gets why zeusd doesn't answer: asking again for every GPU would only take time.
    """
    try:
        file = FoundFile(path, patience_s=patience_s)
        with closing(file):
            if file.read() is not None:
                _repair_gpu(environ, path.stem, file, dead)
    except BlockingIOError:
        return False
    except OSError as error:  # the other files may be sound
        logger.warning("the power limit that may have been left changed on %s can't be looked up: %s", path.stem, error)
    return True


def _repair_gpu(environ: Mapping[str, str], uuid: str, file: FoundFile, dead: list[str]) -> None:
    why = "".join(dead)
    try:
        # A killed process may have had another GPU than this one has.
        with closing(open_devices(uuid)) as devices:
            for open_setter in setters(devices, {} if dead else _environ_for(uuid, environ)):
                with _tried(dead) as refusals, closing(open_setter()) as setter:
                    put_back(devices, setter, devices.gpus[0], file)
                    return
                why += "".join(refusals)
    except NvmlUnavailableError as error:
        why = str(error)
    logger.warning("the power limit that a killed process left on %s can't be put back: %s", uuid, why)


def _environ_for(uuid: str, environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment for one GPU of those whose numbers people have given."""
    if not environ.get("ZEUS_KFP_ZEUSD_GPU_IDS"):
        return environ
    from zeus_kfp.zeus_core.power.zeusd import environ_for

    return environ_for(uuid, environ)


@contextmanager
def _tried(dead: list[str]) -> Iterator[list[str]]:
    refusals: list[str] = []
    try:
        yield refusals
    except (LimitRefusedError, InvalidValueError) as error:
        from zeus_kfp.zeus_core.power.zeusd_client import ZeusdUnreachableError

        refusals.append(f"{error}. ")
        if isinstance(error, ZeusdUnreachableError):
            dead.extend(refusals)
