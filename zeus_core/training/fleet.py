"""The GPUs of all processes that train together: each counts once, whoever sees it, on however many machines.

Every process claims what it could measure. Whatever several of them claim (ranks that share a GPU, two launchers on one
machine) is the first one's. A GPU goes by its UUID, which no other in the world has.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from zeus_kfp.zeus_core.errors import MixedGpusError
from zeus_kfp.zeus_core.meters import Meter
from zeus_kfp.zeus_core.meters.following import FollowingMeter
from zeus_kfp.zeus_core.power import ObserveOnly, PowerLimiter
from zeus_kfp.zeus_core.training.group import Group


@dataclass(frozen=True, slots=True)
class Claim:
    """What a process could measure.

    Attributes:
        sources: What its energy would be of: GPUs by UUID, a machine, or this process.
        has_gpus: Whether that is GPUs.
        machine: What tells its machine from any other.
        is_open: Whether its meter counts all of that already.
        open: Opens a meter and a limiter for some of it.
    """

    sources: tuple[str, ...]
    has_gpus: bool
    machine: str
    is_open: bool
    open: Callable[[tuple[str, ...]], tuple[Meter, PowerLimiter]]


@dataclass(frozen=True, slots=True)
class Hardware:
    """What a trial runs on, over all of its processes.

    Attributes:
        accelerator: Model of the GPUs, or of the CPU.
        count: How many.
        max_power_w: Rated power in W summed over them; 0 if unknown.
        power_limit_w: Limit in W that all GPUs had in the beginning; None if unknown or different.
    """

    accelerator: str
    count: int
    max_power_w: float
    power_limit_w: float | None

    @classmethod
    def of(cls, meter: Meter) -> Self:
        """Return what one process measures."""
        return cls(meter.accelerator, meter.accelerator_count, meter.max_power_w, meter.power_limit_w)


def parted(claims: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Return what each process measures: every source once, by the first process that claims it."""
    taken: set[str] = set()
    parts = []
    for sources in claims:
        mine = tuple(source for source in dict.fromkeys(sources) if source not in taken)
        taken.update(mine)
        parts.append(mine)
    return parts


def share_out(
    group: Group, claim: Claim | None, meter: Meter, limiter: PowerLimiter
) -> tuple[Meter, PowerLimiter, Hardware]:
    """Settle who measures what; called in every process, once they can talk.

    Args:
        group: The processes.
        claim: What this one could measure; None if its meter is not to be changed.
        meter: What it measures with so far.
        limiter: What it limits with so far.

    Returns:
        What it measures and limits with from now on, and the hardware of all of them.

    Raises:
        MixedGpusError: If GPUs of different models are among them.
    """
    if claim is not None and group.can_talk:
        meter, limiter = _settled(group, claim, meter, limiter)
    own = f"process {group.rank}"
    if claim is not None and meter.name == "estimate":
        # The rated power of a machine's cores counts once, though each process has its own CPU time.
        own = claim.machine
    share = (claim is None or claim.has_gpus, own, Hardware.of(meter))
    told = [one for one in group.gather(share if group.measures else None) if one is not None] or [share]
    if any(has_gpus for has_gpus, _, _ in told):
        _check_models([(name, hardware) for _, name, hardware in told], meter, limiter)
    return meter, limiter, joined([(name, hardware) for _, name, hardware in told])


def _settled(group: Group, claim: Claim, meter: Meter, limiter: PowerLimiter) -> tuple[Meter, PowerLimiter]:
    """Return what a process measures and limits with, once all have said what they could."""
    claims = group.gather((claim.sources, claim.is_open))
    mine = parted([sources for sources, _ in claims])[group.rank]
    group.measures = bool(mine)
    # Another process, whose limiter was the first to lock one of ours, now gives it back.
    is_freed = any(set(mine) & set(sources) for sources, is_open in claims[group.rank + 1 :] if is_open)
    keeps = claim.is_open and mine == claim.sources and (limiter.allowed is not None or not is_freed)
    if not keeps:
        limiter.close()
        meter.close()
    # Nobody opens what another hasn't closed yet.
    group.gather(None)
    if keeps:
        return meter, limiter
    return claim.open(mine) if mine else (FollowingMeter(), ObserveOnly())


def joined(shares: Sequence[tuple[str, Hardware]]) -> Hardware:
    """Return several processes' hardware as one.

    Args:
        shares: Of each process what its hardware goes by, and the hardware; what goes by the same is the same.
    """
    different: dict[str, Hardware] = {}
    for own, hardware in shares:
        different.setdefault(own, hardware)
    models = dict.fromkeys(hardware.accelerator for hardware in different.values())
    powers_w = [hardware.max_power_w for hardware in different.values()]
    limits_w = {hardware.power_limit_w for hardware in different.values()}
    return Hardware(
        accelerator=" + ".join(models)[:255],
        count=sum(hardware.count for hardware in different.values()),
        max_power_w=math.fsum(powers_w) if all(powers_w) else 0.0,
        power_limit_w=limits_w.pop() if len(limits_w) == 1 else None,
    )


def _check_models(shares: Sequence[tuple[str, Hardware]], meter: Meter, limiter: PowerLimiter) -> None:
    if len({hardware.accelerator for _, hardware in shares}) > 1:
        limiter.close()
        meter.close()
        named = ", ".join(f"{own}: {hardware.count} x {hardware.accelerator}" for own, hardware in shares)
        raise MixedGpusError(
            f"a trial must run on GPUs of one model in all of its processes, not {named}: select nodes that have only "
            "one"
        )
