"""What a training process finds on its machine: a meter, a limiter, and the processes beside it."""

import os
import socket
from collections.abc import Mapping
from contextlib import closing
from typing import TypedDict

from zeus_kfp.zeus_core.meters import Meter, open_meter
from zeus_kfp.zeus_core.meters.following import FollowingMeter
from zeus_kfp.zeus_core.meters.nvml_devices import open_devices
from zeus_kfp.zeus_core.meters.nvml_start import NvmlUnavailableError
from zeus_kfp.zeus_core.power import ObserveOnly, PowerLimiter, open_limiter
from zeus_kfp.zeus_core.power.note import boot_id
from zeus_kfp.zeus_core.power.options import ProfilingOptions
from zeus_kfp.zeus_core.training.fleet import Claim
from zeus_kfp.zeus_core.training.group import Group, open_group, own_gpus

_VISIBLE = "CUDA_VISIBLE_DEVICES"


class Machine(TypedDict):
    """What a trial works with."""

    group: Group
    profiling: ProfilingOptions
    meter: Meter
    limiter: PowerLimiter
    claim: Claim | None


def open_machine(environ: Mapping[str, str]) -> Machine:
    """Open what measures and limits the GPUs of this process.

    Of several processes the first one of a machine opens its GPUs at once; the others do what is left to them once all
    of them can talk.

    Raises:
        InvalidValueError: If an environment variable has a value that it can't have.
        MixedGpusError: If the GPUs are of different models.
    """
    group = open_group(environ)
    options = ProfilingOptions.from_environment(environ)

    def open_both(gpus: Mapping[str, str]) -> tuple[Meter, PowerLimiter]:
        limiter = open_limiter(gpus, highest_w=options.highest_w)
        return open_meter(gpus), limiter

    meter, limiter = open_both(own_gpus(environ)) if group.measures else (FollowingMeter(), ObserveOnly())
    claim = None
    if group.size > 1:
        sources, has_gpus = _sources(environ)
        claim = Claim(
            sources,
            has_gpus,
            _machine(),
            is_open=group.measures,
            open=lambda mine: open_both({**environ, _VISIBLE: ",".join(mine) if has_gpus else ""}),
        )
    return Machine(group=group, profiling=options, meter=meter, limiter=limiter, claim=claim)


def _sources(environ: Mapping[str, str]) -> tuple[tuple[str, ...], bool]:
    """Return what the energy of this process would be of, and whether that is GPUs."""
    try:
        with closing(open_devices(environ.get(_VISIBLE))) as devices:
            return _own(tuple(gpu.uuid for gpu in devices.gpus), environ), True
    except NvmlUnavailableError:
        with closing(open_meter({**environ, _VISIBLE: ""})) as meter:
            # RAPL is of the whole machine; the estimate is of a process and its children.
            return (_machine() if meter.name == "rapl" else f"{_machine()}/{os.getpid()}",), False


def _own(uuids: tuple[str, ...], environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return which of the GPUs that a process sees it may measure.

    The first process of a machine may measure those of all its processes, another one its own. Where fewer GPUs can
    be seen than there are processes, they may be shared, or each process sees its own alone.
    """
    count, local_rank = (environ.get(name, "").strip() for name in ("LOCAL_WORLD_SIZE", "LOCAL_RANK"))
    if not count.isdecimal() or not local_rank.isdecimal():
        return uuids
    if int(local_rank) == 0 or len(uuids) < int(count):
        return uuids[: int(count)]
    return uuids[int(local_rank) : int(local_rank) + 1]


def _machine() -> str:
    """Return what tells this machine from any other, though its pods have names of their own."""
    return boot_id() or socket.gethostname()
