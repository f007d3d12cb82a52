"""What this machine or pod can measure and set, and what to change where it can't."""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from zeus_kfp.pipelines.doctor_power import power_findings
from zeus_kfp.pipelines.finding import Finding, Verdict
from zeus_kfp.zeus_core.errors import InvalidValueError, ZeusError
from zeus_kfp.zeus_core.meters import open_meter
from zeus_kfp.zeus_core.meters.device_order import visible_value
from zeus_kfp.zeus_core.meters.nvml_devices import (
    Gpu,
    LimitRefusedError,
    NvmlDevices,
    open_devices,
)
from zeus_kfp.zeus_core.meters.nvml_start import NvmlUnavailableError
from zeus_kfp.zeus_core.meters.rapl import FOLDER, FOLDER_VARIABLE, RaplUnavailableError, open_rapl
from zeus_kfp.zeus_core.power.zeusd import zeusd_address
from zeus_kfp.zeus_core.power.zeusd_client import ZeusdClient

if TYPE_CHECKING:
    from rich.table import Table


def examine(
    environ: Mapping[str, str] = os.environ, proc: Path = Path("/proc"), dev: Path = Path("/dev")
) -> list[Finding]:
    """Return what was found; nothing is changed, written or locked.

    Args:
        environ: Environment variables.
        proc: Where Linux shows processes.
        dev: Where Linux shows devices.
    """
    # What these would warn of is in the report.
    logging.getLogger("zeus_kfp").addHandler(logging.NullHandler())
    checks: list[Callable[[], Iterator[Finding]]] = [
        lambda: _gpus(environ),
        lambda: _device_order(environ),
        lambda: power_findings(environ, proc, dev),
        lambda: _zeusd(environ),
        lambda: _rapl(environ),
        lambda: _meter(environ),
        lambda: _store(environ),
        lambda: _kfp(environ),
    ]
    return [finding for check in checks for finding in check()]


def _gpus(environ: Mapping[str, str]) -> Iterator[Finding]:
    try:
        devices = open_devices(environ.get("CUDA_VISIBLE_DEVICES"))
    except NvmlUnavailableError as error:
        advice = error.advice or "on a machine with NVIDIA GPUs, install the driver; in a pod, ask for nvidia.com/gpu"
        verdict = Verdict.BROKEN if error.advice else Verdict.LACKING
        yield Finding("NVIDIA GPUs", verdict, str(error), advice)
        return
    with closing(devices):
        yield Finding("NVIDIA driver", Verdict.GOOD, devices.driver_version or "unknown version")
        for gpu, energy_j in zip(devices.gpus, devices.energies_j(), strict=True):
            yield Finding(f"GPU {gpu.index}", Verdict.GOOD, f"{gpu.model or 'unknown model'}, {_limits(devices, gpu)}")
            if not energy_j:  # one at 0 has never counted
                polled = "its power is polled instead" if devices.power_w() is not None else "nor its power can be read"
                yield Finding(f"GPU {gpu.index}: energy counter", Verdict.LACKING, f"none; {polled}")
        if devices.left_out:
            found = f"CUDA leaves out {','.join(devices.left_out)}: a list ends at its first entry that is no GPU"
            advice = f"name GPUs that are there: this machine has {devices.total}"
            yield Finding("CUDA_VISIBLE_DEVICES", Verdict.LACKING, found, advice)
        if len(devices.models) > 1:
            advice = "name GPUs of one model in CUDA_VISIBLE_DEVICES: a trial is refused otherwise"
            yield Finding("GPU models", Verdict.BROKEN, ", ".join(devices.models), advice)


def _device_order(environ: Mapping[str, str]) -> Iterator[Finding]:
    try:
        visible_value(environ)
    except InvalidValueError as error:
        yield Finding("GPU numbers", Verdict.BROKEN, str(error), "set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name UUIDs")


def _limits(devices: NvmlDevices, gpu: Gpu) -> str:
    allowed, standing = devices.allowed_w(gpu), devices.limit_w(gpu)
    if allowed is None or standing is None:
        return "power limit unknown"
    return f"power limit {standing:g} W of {allowed[0]:g} to {allowed[1]:g} W"


def _zeusd(environ: Mapping[str, str]) -> Iterator[Finding]:
    try:
        address = zeusd_address(environ)
        if address is not None:
            models = ZeusdClient(address).gpu_models()
            yield Finding("zeusd", Verdict.GOOD, f"{len(models)} GPUs at {address}")
    except (ZeusError, LimitRefusedError) as error:
        advice = "start zeusd on the node, mount its socket, or unset ZEUSD_SOCK_PATH and ZEUSD_HOST_PORT"
        yield Finding("zeusd", Verdict.BROKEN, str(error), advice)


def _rapl(environ: Mapping[str, str]) -> Iterator[Finding]:
    folder = Path(environ.get(FOLDER_VARIABLE) or FOLDER)
    try:
        meter = open_rapl(folder, accelerator="", core_count=1, rated_power_w=0.0, interval_s=float("inf"))
        meter.close()
        yield Finding("RAPL", Verdict.GOOD, f"energy of the processors, in {folder}")
    except RaplUnavailableError as error:
        advice = (
            f"let this user read {folder}/intel-rapl:*/energy_uj; in a pod, mount {FOLDER} and set {FOLDER_VARIABLE}"
        )
        yield Finding("RAPL", Verdict.LACKING, str(error), advice)


def _meter(environ: Mapping[str, str]) -> Iterator[Finding]:
    try:
        with closing(open_meter(environ)) as meter:
            found = f"{meter.name}, on {meter.accelerator_count} x {meter.accelerator}"
            estimated = meter.estimated
    except ZeusError as error:
        yield Finding("energy", Verdict.BROKEN, str(error))
        return
    if estimated:
        advice = "it ranks batch sizes of one machine; set ZEUS_KFP_CPU_CORE_POWER_W to what a busy core takes"
        yield Finding("energy", Verdict.LACKING, f"only estimated: {found}", advice)
    else:
        yield Finding("energy", Verdict.GOOD, f"measured: {found}")


def _store(environ: Mapping[str, str]) -> Iterator[Finding]:
    from sqlalchemy import literal, select

    from zeus_kfp.state_store.database import STORE_VARIABLE, Database, url_from_environment

    if not environ.get(STORE_VARIABLE):
        advice = "set ZEUS_KFP_STORE_URL, such as postgresql://user:password@host/database; training pods need none"
        yield Finding("store", Verdict.LACKING, "ZEUS_KFP_STORE_URL is not set", advice)
        return
    try:
        database = Database(url_from_environment(environ), patience_s=0)
        if database.is_missing:
            yield _to_be_made(Path(database.place))
            return
        with closing(database):
            database.read(lambda transaction: transaction.read(select(literal(1))))
        yield Finding("store", Verdict.GOOD, f"reached, at {database.place}")
    except ZeusError as error:
        yield Finding("store", Verdict.BROKEN, str(error), "check ZEUS_KFP_STORE_URL and the database's network")


def _to_be_made(store: Path) -> Finding:
    folder = store.absolute().parent
    if os.access(folder, os.W_OK | os.X_OK) and folder.is_dir():
        return Finding("store", Verdict.GOOD, f"{store} is made when it is first used")
    found = f"{store} can't be made: {folder} is no folder that this user may write to"
    return Finding("store", Verdict.BROKEN, found, "make that folder, or name another file in ZEUS_KFP_STORE_URL")


def _kfp(environ: Mapping[str, str]) -> Iterator[Finding]:
    endpoint = environ.get("KF_PIPELINES_ENDPOINT", "")
    if not endpoint:
        yield Finding("KFP", Verdict.LACKING, "KF_PIPELINES_ENDPOINT is not set", "set it to schedule from here")
        return
    from http.client import HTTPException
    from urllib.request import urlopen

    url = endpoint if "://" in endpoint else f"http://{endpoint}"
    try:
        with urlopen(f"{url.rstrip('/')}/apis/v2beta1/healthz", timeout=5) as answer:
            yield Finding("KFP", Verdict.GOOD, f"{url} answers with HTTP {answer.status}")
    except (OSError, HTTPException, ValueError) as error:
        yield Finding("KFP", Verdict.BROKEN, f"{url} does not answer: {error}", "check the address and your login")


def doctor_table(findings: Sequence[Finding]) -> "Table":
    """Return the findings as a table for the terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD)
    for name in ("", "what", "found, and what to change"):
        table.add_column(name, overflow="fold")  # a path that is cut off helps nobody
    for finding in findings:
        advice = f"\n→ {finding.advice}" if finding.advice else ""
        table.add_row(finding.verdict.value, finding.subject, Text(finding.found + advice))
    return table
