"""The power limit of a trial while it trains: profiled, or known from earlier trials, and put back at the end."""

import math
from collections.abc import Callable, Sequence

from zeus_kfp.zeus_core.power.interface import LimitRange, PowerLimiter, common_range
from zeus_kfp.zeus_core.power.note import is_same
from zeus_kfp.zeus_core.power.on_signal import RestoreAtEnd
from zeus_kfp.zeus_core.power.options import ProfilingOptions
from zeus_kfp.zeus_core.power.profiling import Part, PowerProfiler
from zeus_kfp.zeus_core.power.selectors import parse_selector
from zeus_kfp.zeus_core.training.fleet import Hardware
from zeus_kfp.zeus_core.training.group import Group
from zeus_kfp.zeus_core.training.instrument import Instrument
from zeus_kfp.zeus_core.training.phases import PhaseTotals
from zeus_kfp.zeus_core.trial import TrialPlan


class SharedLimiter:
    """A limiter of which every process that measures has its own; all of them see what holds for every GPU."""

    def __init__(self, limiter: PowerLimiter, group: Group) -> None:
        """Agree on what may be set: what every GPU takes; called in every process."""
        self._limiter = limiter
        self._group = group
        self.name = limiter.name
        self.why_not = limiter.why_not
        self.allowed = common(group.gather((group.measures, limiter.allowed)))
        self.found_w = self._everywhere(limiter.found_w)

    def set(self, power_limit_w: float) -> float | None:
        """Set a limit on every GPU, and return the one that stands; called in every process.

        Where it doesn't stand on all of them, the limits found are put back in every process, and None is returned.
        """
        standing_w = self._everywhere(self._limiter.set(power_limit_w))
        if standing_w is None:
            self._limiter.restore()
        return standing_w

    def standing_w(self) -> float | None:
        """Return the limit in W that all GPUs of all processes have now; called in every process."""
        return self._everywhere(self._limiter.standing_w())

    @property
    def is_over(self) -> bool:
        """Whether this process has put back what it found."""
        return self._limiter.is_over

    def restore(self) -> None:
        """Put back what this process found."""
        self._limiter.restore()

    def close(self) -> None:
        """Restore, and give back what the limiter holds."""
        self._limiter.close()

    def _everywhere(self, limit_w: float | None) -> float | None:
        """Return the limit in W that all processes that measure have; None if theirs differ or one is unknown."""
        told: list[float | None] = [
            one_w for measures, one_w in self._group.gather((self._group.measures, limit_w)) if measures
        ]
        first_w = told[0] if told else None
        if first_w is None or not all(one_w is not None and is_same(one_w, first_w) for one_w in told):
            return None
        return first_w


def common(told: Sequence[tuple[bool, LimitRange | None]]) -> LimitRange | None:
    """Return what all processes that have GPUs may set; None if that is nothing, or one of them may set none.

    Args:
        told: Of each process whether it has any, and what it may set.
    """
    ranges = [allowed for has_gpus, allowed in told if has_gpus]
    known = [(allowed.lowest_w, allowed.highest_w) if allowed else None for allowed in ranges]
    return common_range(known, math.inf)


class PowerControl:
    """Sets the power limits of a trial.

    Attributes:
        profiler: What finds the best limit; None where it is known, or can't be set.
    """

    def __init__(
        self,
        plan: TrialPlan,
        limiter: PowerLimiter,
        instrument: Instrument,
        totals: PhaseTotals,
        options: ProfilingOptions,
        group: Group,
        say: Callable[[str], None],
    ) -> None:
        """Prepare; nothing is set before :meth:`start`."""
        self._plan = plan
        self._limiter = limiter
        self._instrument = instrument
        self._hardware = Hardware.of(instrument.meter)
        self._totals = totals
        self._options = options
        self._group = group
        self._say = say
        self._guard: RestoreAtEnd | None = None
        self._known_standing_w: float | None = None
        self.profiler: PowerProfiler | None = None

    @property
    def is_settled(self) -> bool:
        """Whether the limit stays as it is from now on."""
        return self.profiler is None or self.profiler.is_done

    @property
    def profiled_limit_w(self) -> float | None:
        """The limit in W that was chosen after profiling; None if none was, or not yet."""
        return self.profiler.chosen_w if self.profiler is not None else None

    @property
    def settled_limit_w(self) -> float | None:
        """The limit in W that was chosen, after profiling or by earlier trials, and stands; None if none was."""
        if self._limiter.is_over:  # a signal came, or a limit was refused
            return None
        return self._known_standing_w if self.profiler is None else self.profiler.chosen_w

    def start(self, limiter: PowerLimiter, hardware: Hardware) -> None:
        """Set the limit that is known to be best, or begin to look for it.

        Args:
            limiter: What sets the limits of this process's GPUs.
            hardware: What all processes together run on.
        """
        self._limiter, self._hardware = limiter, hardware
        self._guard = RestoreAtEnd(limiter)
        self._totals.start(hardware, self._guard)
        shared = SharedLimiter(self._limiter, self._group)
        limits_w = self._limits_w(shared.allowed)
        known_w = self._known_w()
        if known_w is not None and shared.allowed is not None:
            self._set_known(shared, known_w)
        elif len(limits_w) > 1 and not self._group.agree(self._instrument.meter.estimated):
            self._say(f"profiling {len(limits_w)} power limits from {limits_w[0]:g} to {limits_w[-1]:g} W")
            self.profiler = self._profiler(shared, limits_w)

    def _set_known(self, limiter: PowerLimiter, known_w: float) -> None:
        """Set the limit that earlier trials found best, or say that another one stands."""
        standing_w = limiter.set(known_w)
        self._totals.enter(Part.SETTLED, standing_w)
        standing = "an unknown limit" if standing_w is None else f"{standing_w:g} W"
        if standing_w is not None and limiter.allowed and is_same(standing_w, limiter.allowed.clamped(known_w)):
            self._known_standing_w = standing_w
            self._say(f"power limit {standing} set, known from earlier trials")
        else:
            self._say(f"power limit {known_w:g} W, known from earlier trials, can't be set: {standing} stands")

    @property
    def follower(self) -> PowerProfiler | None:
        """What must follow the steps of a training loop that begins now; None if nothing must."""
        return None if self.is_settled else self.profiler

    def end_epoch(self) -> None:
        """End an epoch."""
        if self.profiler is not None:
            self.profiler.end_epoch()

    def end(self) -> None:
        """Put back what was found, and free the GPUs; a second call does nothing."""
        self._limiter.close()
        if self._guard is not None:
            self._guard.take_back()
            self._guard = None

    def _known_w(self) -> float | None:
        """Return the limit in W that earlier trials found best on these GPUs; None if there is none."""
        plan, model = self._plan, self._hardware.accelerator
        is_alike = plan.power_limit_accelerator in ("", model) and self._objective == plan.power_objective
        return plan.power_limit_w if self._group.agree(is_alike) else None

    @property
    def _objective(self) -> str:
        return self._options.objective or self._plan.power_objective

    def _limits_w(self, allowed: LimitRange | None) -> tuple[float, ...]:
        if allowed is None:
            return ()
        lowest_w = allowed.clamped(self._options.lowest_w or allowed.lowest_w)
        highest_w = allowed.clamped(self._options.highest_w or allowed.highest_w)
        return LimitRange(lowest_w, max(lowest_w, highest_w)).sweep(self._options.step_w)

    def _profiler(self, limiter: PowerLimiter, limits_w: tuple[float, ...]) -> PowerProfiler:
        max_power_w = self._plan.max_power_w or self._hardware.max_power_w or limits_w[0] * self._hardware.count
        return PowerProfiler(
            limiter,
            limits_w,
            self._totals,
            parse_selector(self._objective, eta_knob=self._plan.eta_knob, max_power_w=max_power_w),
            self._options,
            shortest_window_s=self._instrument.meter.shortest_window_s,
            settling_s=self._instrument.meter.settling_s,
            most_epochs=max(self._plan.max_epochs // 2, 1),
            say=self._say,
            agree=self._group.agree,
            anywhere=lambda is_so: any(self._group.gather(is_so)),
        )
