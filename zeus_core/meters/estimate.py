"""An estimate of energy where nothing measures it: CPU time times the rated power of a core.

    energy = (CPU time of this process and its descendants) * (rated power of a busy core)

It ranks batch sizes on one machine rightly as long as training is bound by the CPU. It is no measurement, and
every result that rests on it says so.
"""

import os
import resource
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.processes import seen
from zeus_kfp.zeus_core.validation import number

CORE_POWER_VARIABLE = "ZEUS_KFP_CPU_CORE_POWER_W"
DEFAULT_CORE_POWER_W = 10.0
"""W of one busy core: server processors are rated at 6 to 12 W a core, laptop ones at 4 to 11."""

_PROC = Path("/proc")


class EstimateMeter:
    """Energy estimated from the CPU time of this process, its children and theirs."""

    name = "estimate"
    estimated = True
    power_limit_w: float | None = None
    shortest_window_s = 0.0
    settling_s = 0.0

    def __init__(
        self,
        *,
        core_power_w: float,
        core_count: int,
        accelerator: str,
        cpu_time_s: Callable[[], float],
    ) -> None:
        """Start from a rated power.

        Args:
            core_power_w: Rated power of one busy core in W, above 0.
            core_count: Cores that this process may use.
            accelerator: Model of the processor.
            cpu_time_s: Returns the CPU time in s spent so far.
        """
        self.accelerator = accelerator
        self.accelerator_count = core_count
        self.max_power_w = core_power_w * core_count
        self._core_power_w = core_power_w
        self._cpu_time_s = cpu_time_s
        self._highest_s = 0.0

    def energy_j(self) -> float | None:
        """Return the estimate in J since this process started."""
        # A child that ends between two looks is for a moment in neither of the places where its time is kept.
        self._highest_s = max(self._highest_s, self._cpu_time_s())
        return self._highest_s * self._core_power_w

    def close(self) -> None:
        """Do nothing; there is nothing to give back."""


def open_estimate(environ: Mapping[str, str] = os.environ) -> EstimateMeter:
    """Open the estimate.

    Raises:
        InvalidValueError: If ZEUS_KFP_CPU_CORE_POWER_W is no number above 0.
    """
    return EstimateMeter(
        core_power_w=_core_power_w(environ.get(CORE_POWER_VARIABLE, "")),
        core_count=_usable_core_count(),
        accelerator=_cpu_model(),
        cpu_time_s=process_tree_cpu_time_s,
    )


def process_tree_cpu_time_s() -> float:
    """Return the CPU time in s of this process, of its ended children, and of its descendants that still run."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    running = sum(process.cpu_ticks for child in _descendants("self") if (process := seen(int(child))) is not None)
    return time.process_time() + ended.ru_utime + ended.ru_stime + running / os.sysconf("SC_CLK_TCK")


def _descendants(pid: str) -> list[str]:
    # Asked for in the training loop, so that it must not take longer the more processes the machine has.
    found: list[str] = []
    for children in (_PROC / pid / "task").glob("*/children"):
        try:
            direct = children.read_text().split()
        except OSError:  # the process or thread has just ended
            continue
        for child in direct:
            found += [child, *_descendants(child)]
    return found


def _core_power_w(value: str) -> float:
    if not value.strip():
        return DEFAULT_CORE_POWER_W
    try:
        return number(CORE_POWER_VARIABLE, float(value), above=0)
    except ValueError:
        raise InvalidValueError(
            f"{CORE_POWER_VARIABLE} must be the power of a busy CPU core in W, above 0, such as 10; not {value!r}"
        ) from None


def _usable_core_count() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_model() -> str:
    try:
        lines = (_PROC / "cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return "CPU"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0][:255] if names and names[0] else "CPU"
