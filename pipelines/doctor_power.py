"""What a trial here would do with power limits. Nothing is set, written or locked to find that out."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

from zeus_kfp.pipelines.finding import Finding, Verdict
from zeus_kfp.zeus_core.errors import InvalidValueError, ZeusError
from zeus_kfp.zeus_core.meters.nvml_devices import Gpu, LimitRefusedError, NvmlDevices, open_devices
from zeus_kfp.zeus_core.meters.nvml_start import NvmlUnavailableError
from zeus_kfp.zeus_core.power.choice import SWITCH_VARIABLE
from zeus_kfp.zeus_core.power.found import FOLDER_VARIABLE, found_path, own_folder, peek
from zeus_kfp.zeus_core.power.governing import is_governed
from zeus_kfp.zeus_core.power.neighbours import neighbours
from zeus_kfp.zeus_core.power.note import is_same
from zeus_kfp.zeus_core.power.options import ProfilingOptions
from zeus_kfp.zeus_core.power.zeusd import ZeusdSetter, zeusd_address

_SYS_ADMIN = 21
"""Bit of CAP_SYS_ADMIN among a process's capabilities."""
_PRIVILEGE_ADVICE = (
    "run zeusd on the node and name it in ZEUSD_SOCK_PATH or ZEUSD_HOST_PORT; outside of KFP, root with CAP_SYS_ADMIN "
    "will do. Until then the limits stay as they are"
)


def power_findings(environ: Mapping[str, str], proc: Path, dev: Path) -> Iterator[Finding]:
    """Yield what a trial would do with the limits of each GPU, and with what killed trials have left.

    Args:
        environ: Environment variables.
        proc: Where Linux shows processes.
        dev: Where Linux shows devices.
    """
    switch = environ.get(SWITCH_VARIABLE, "").strip().lower() or "on"
    if switch not in ("on", "off"):
        yield Finding("power limits", Verdict.BROKEN, f"{SWITCH_VARIABLE} must be on or off, not {switch!r}")
        return
    try:
        ProfilingOptions.from_environment(environ)
    except InvalidValueError as error:
        yield Finding("power profiling", Verdict.BROKEN, str(error), "every trial is refused until that is changed")
    try:
        devices = open_devices(environ.get("CUDA_VISIBLE_DEVICES"))
    except NvmlUnavailableError:  # the GPUs' own lines say so
        return
    off = Finding("power limits", Verdict.GOOD, f"stay as they are: {SWITCH_VARIABLE}=off") if switch == "off" else None
    with closing(devices):
        try:
            folder = own_folder(environ)
        except OSError as error:
            obstacle = f"would not be set: the limits found could not be kept for a repair: {error}"
            yield off or Finding("power limits", Verdict.LACKING, obstacle, f"name a folder in {FOLDER_VARIABLE}")
            return
        yield from _left_behind(devices, folder, proc)
        yield off or _settable(devices, environ, proc, dev)


def _left_behind(devices: NvmlDevices, folder: Path, proc: Path) -> Iterator[Finding]:
    """Yield the GPUs whose limit a killed process has left changed."""
    for gpu in devices.gpus:
        found, standing_w = peek(found_path(folder, gpu.uuid)), devices.limit_w(gpu)
        if found is None or standing_w is None or not found.is_of_this_boot or is_governed(gpu.uuid, proc):
            continue
        if found.was_set(standing_w) and not is_same(standing_w, found.found_w):
            yield Finding(
                f"GPU {gpu.index}: limit left by a killed trial",
                Verdict.LACKING,
                f"{standing_w:g} W stand, {found.found_w:g} W were found",
                f"the next trial on this machine puts them back; or do it now: nvidia-smi -i {gpu.index} "
                f"-pl {found.found_w:g}",
            )


def _settable(devices: NvmlDevices, environ: Mapping[str, str], proc: Path, dev: Path) -> Finding:
    obstacles = [why for gpu in devices.gpus for why in _obstacles(devices, gpu, proc)]
    if obstacles:
        advice = "until that is changed the limits stay as they are; everything is measured all the same"
        return Finding("power limits", Verdict.LACKING, f"would not be set: {'; '.join(obstacles)}", advice)
    privileges, may_set = _privileges(proc, dev)
    if may_set:
        return Finding("power limits", Verdict.GOOD, f"would be set through nvml ({privileges}); not tried here")
    try:
        if zeusd_address(environ) is not None:
            ZeusdSetter(devices, environ).close()
            return Finding("power limits", Verdict.GOOD, f"would be set through zeusd ({privileges}); not tried here")
        why = "there is no zeusd"
    except (ZeusError, LimitRefusedError) as error:
        why = str(error)
    found = f"would not be set: this process may not ({privileges}), and {why}"
    return Finding("power limits", Verdict.LACKING, found, _PRIVILEGE_ADVICE)


def _obstacles(devices: NvmlDevices, gpu: Gpu, proc: Path) -> Iterator[str]:
    if devices.is_divided(gpu):
        yield f"GPU {gpu.index} is divided (MIG), and its limit would hold for others too"
    for process_id in neighbours(devices.process_ids(gpu))[:1]:
        yield f"process {process_id} works on GPU {gpu.index}, and its limit would hold for that too"
    if is_governed(gpu.uuid, proc):
        yield f"another trial sets the limit of GPU {gpu.index} right now"
    if devices.allowed_w(gpu) is None or devices.limit_w(gpu) is None:
        yield f"GPU {gpu.index} doesn't tell its power limits"


def _privileges(proc: Path, dev: Path) -> tuple[str, bool]:
    """Return what setting a limit through NVML takes, and whether this process has it.

    That is CAP_SYS_ADMIN, and the ownership of the GPUs' control device, which a user namespace may take away.
    """
    try:
        match = re.search(r"^CapEff:\s*([0-9a-fA-F]+)", (proc / "self" / "status").read_text(), re.MULTILINE)
        has = bool(match and int(match[1], 16) >> _SYS_ADMIN & 1)
        capability = f"CAP_SYS_ADMIN: {'yes' if has else 'no'}"
    except OSError:
        has, capability = False, "CAP_SYS_ADMIN: unknown"
    try:
        owner_id = (dev / "nvidiactl").stat().st_uid
        owner, is_owner = f"/dev/nvidiactl belongs to user {owner_id}", owner_id == os.getuid()
    except OSError:
        owner, is_owner = "there is no /dev/nvidiactl", True
    return f"{capability}; {owner}, this is user {os.getuid()}", has and is_owner
