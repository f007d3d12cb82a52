"""What a training process finds on its machine: a meter, a limiter, and the processes beside it."""

from collections.abc import Mapping
from typing import TypedDict

from zeus_kfp.zeus_core.meters import Meter, open_meter
from zeus_kfp.zeus_core.meters.following import FollowingMeter
from zeus_kfp.zeus_core.power import ObserveOnly, PowerLimiter, open_limiter
from zeus_kfp.zeus_core.power.options import ProfilingOptions
from zeus_kfp.zeus_core.training.group import Group, open_group, own_gpus


class Machine(TypedDict):
    """What a trial works with."""

    group: Group
    profiling: ProfilingOptions
    meter: Meter
    limiter: PowerLimiter


def open_machine(environ: Mapping[str, str]) -> Machine:
    """Open what measures and limits the GPUs of this process.

    Raises:
        InvalidValueError: If an environment variable has a value that it can't have.
        MixedGpusError: If the GPUs are of different models.
    """
    group = open_group(environ)
    options = ProfilingOptions.from_environment(environ)
    if not group.measures:
        return Machine(group=group, profiling=options, meter=FollowingMeter(), limiter=ObserveOnly())
    gpus = own_gpus(environ)
    limiter = open_limiter(gpus, highest_w=options.highest_w)
    return Machine(group=group, profiling=options, meter=open_meter(gpus), limiter=limiter)
