"""Find the best power limit while training: try each limit for some steps, then keep the best.

For each limit, from the highest to the lowest: a few steps of warm-up, until the GPU has settled, then a window of
steps whose energy and time are measured. The GPU is waited for at the edges of a window only. A window that is too
short for the meter to be trusted is made longer; one that the end of an epoch cuts is carried over to the next epoch,
where it goes on. Windows shrink where all of them would not fit into an epoch. After a number of epochs profiling
ends with what it knows by then, so that it always ends.
"""

import math
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Protocol

from zeus_kfp.zeus_core.power.interface import PowerLimiter
from zeus_kfp.zeus_core.power.note import is_same
from zeus_kfp.zeus_core.power.options import ProfilingOptions
from zeus_kfp.zeus_core.power.selectors import Selector, SweepPoint

_FEWEST_STEPS = 5
"""Steps of a window that shrinks, at least; and of a loop after which a pause is worth a step of warm-up."""


class Part(Enum):
    """What a stretch of a loop is to profiling."""

    WARMUP = "warm-up"
    WINDOW = "window"
    SETTLED = "settled"
    """The limit isn't being profiled any more, or never was."""


_FEWEST = {Part.WARMUP: 1, Part.WINDOW: _FEWEST_STEPS}
"""Steps of a part, at least, where fewer than asked for are taken."""
_LONGEST_S = {Part.WARMUP: 5.0, Part.WINDOW: 30.0}
"""Time in s after which a part has had enough: of steps that take many seconds, fewer will do."""


class Windows(Protocol):
    """Where what the steps take is accounted for."""

    def enter(self, part: Part, power_limit_w: float | None) -> None:
        """Account for what follows under a part and a limit in W."""
        ...

    def time_s(self, part: Part, power_limit_w: float) -> float:
        """Return the time in s that a part of a limit has lasted up to now."""
        ...

    def sweep(self) -> Sequence[SweepPoint]:
        """Return what is known of each limit."""
        ...


class PowerProfiler:
    """Goes through the limits, step by step.

    Attributes:
        is_done: Whether the best limit is chosen, or none can be.
        chosen_w: The limit in W that was chosen and stands; None before, or if none could be.
    """

    def __init__(
        self,
        limiter: PowerLimiter,
        limits_w: Sequence[float],
        windows: Windows,
        selector: Selector,
        options: ProfilingOptions,
        *,
        shortest_window_s: float,
        settling_s: float,
        most_epochs: int,
        say: Callable[[str], None],
        agree: Callable[[float], float] = lambda value: value,
        anywhere: Callable[[bool], bool] = lambda is_so: is_so,
    ) -> None:
        """Prepare to profile; nothing is set before the first loop.

        Args:
            limiter: Sets the limits.
            limits_w: Limits to try in W, highest first; at least one.
            windows: Accounts for what the steps take.
            selector: Chooses the best limit.
            options: How many steps are taken.
            shortest_window_s: Time in s below which the meter can't be trusted.
            settling_s: Time in s until the meter shows the power under a new limit alone.
            most_epochs: Epochs after which profiling ends with what it knows, at least 1.
            say: Gets a line for people when the limit is chosen.
            agree: Returns the value of the first process of a group to all of them.
            anywhere: Tells all processes of a group whether something is so in any of them.
        """
        self._limiter = limiter
        self._limits_w = tuple(limits_w)
        self._windows = windows
        self._selector = selector
        self._options = options
        self._shortest_s = {Part.WARMUP: settling_s, Part.WINDOW: shortest_window_s}
        self._epochs_left = most_epochs
        self._say = say
        self._agree = agree
        self._anywhere = anywhere
        self.is_done = False
        self.chosen_w: float | None = None
        self._index = -1
        self._standing_w = 0.0
        self._part = Part.SETTLED
        self._steps_left = 0
        """Steps until the next edge; below 0 there is none."""
        self._steps_after_pause = 0
        self._part_steps = 0
        self._step_s = 0.0
        """Time in s of a step in the part before; 0 if there was none."""
        self._epoch_steps: int | None = None
        self._loop_steps = 0

    def begin_loop(self, steps: int | None) -> None:
        """Begin the training loop of an epoch, of so many steps if that is known."""
        if self.is_done:
            return
        self._epoch_steps = steps if steps is not None else self._epoch_steps
        self._loop_steps = 0
        if self._index < 0:
            self._next_limit()
        elif self._part is Part.WINDOW and self._steps_left > 0 and self._is_long():
            # The first step after a pause waits for the data, and for a GPU that has done something else.
            self._windows.enter(Part.WARMUP, self._standing_w)
            self._part, self._steps_after_pause, self._steps_left = Part.WARMUP, self._steps_left, 1

    def step(self) -> None:
        """Begin a step of training."""
        if self._steps_left == 0 and not self.is_done:
            self._edge()
        self._steps_left -= 1
        self._loop_steps += 1

    def end_loop(self) -> None:
        """End the training loop of an epoch, whether it came to its end or was left."""
        if self.is_done:
            return
        if self._steps_left == 0 and self._loop_steps:
            self._edge()
        self._epoch_steps = self._loop_steps or self._epoch_steps

    def end_epoch(self) -> None:
        """End an epoch; the last one that profiling may take ends it."""
        self._epochs_left -= 1
        if not self.is_done and self._epochs_left <= 0:
            self._decide()

    def _edge(self) -> None:
        if self._anywhere(self._limiter.is_over):
            self._decide()
        elif self._steps_after_pause:
            self._windows.enter(Part.WINDOW, self._standing_w)
            self._part, self._steps_left, self._steps_after_pause = Part.WINDOW, self._steps_after_pause, 0
        elif missing := self._missing_steps():
            self._steps_left = missing
            self._part_steps += missing
        elif self._part is Part.WARMUP:
            self._enter(Part.WINDOW, self._options.profile_steps)
        else:
            self._next_limit()

    def _enter(self, part: Part, steps: int) -> None:
        self._windows.enter(part, self._standing_w)
        self._part = part
        self._part_steps = self._steps_left = int(self._agree(self._fewer(part, steps)))

    def _missing_steps(self) -> int:
        """Return the steps that a part must go on for until its time is long enough."""
        time_s, done = self._windows.time_s(self._part, self._standing_w), max(self._part_steps, 1)
        self._step_s = time_s / done
        missing_s = self._shortest_s[self._part] - time_s
        steps = math.ceil(done * missing_s / time_s) if time_s > 0 else done
        return int(self._agree(min(max(steps, 1), 100 * done) if missing_s > 0 else 0))

    def _next_limit(self) -> None:
        if self._index + 1 == len(self._limits_w):
            self._decide()
            return
        self._index += 1
        asked_w = self._limits_w[self._index]
        standing_w = self._limiter.set(asked_w)
        if standing_w is None or not is_same(standing_w, asked_w):
            # The limiter has given up, and said why.
            self._decide()
            return
        self._standing_w = standing_w
        self._enter(Part.WARMUP, self._options.warmup_steps)
        if self._steps_left == 0:
            self._edge()

    def _fewer(self, part: Part, steps: int) -> int:
        """Return steps, or fewer where they would take too long, or those of all limits would not fit into an epoch."""
        wanted = steps
        all_steps = len(self._limits_w) * (self._options.warmup_steps + self._options.profile_steps)
        if self._epoch_steps is not None and self._epoch_steps < all_steps:
            wanted = steps * self._epoch_steps // all_steps
        if self._step_s > 0:
            wanted = min(wanted, math.ceil(_LONGEST_S[part] / self._step_s))
        return min(steps, max(wanted, _FEWEST[part]))

    def _is_long(self) -> bool:
        return self._epoch_steps is None or self._epoch_steps > _FEWEST_STEPS

    def _decide(self) -> None:
        """Set the best of the limits that are known, or what was found if none is."""
        sweep = self._windows.sweep()
        best = self._selector.choose(sweep) if sweep else None
        is_over = self._anywhere(self._limiter.is_over)
        wanted_w = self._agree(best.power_limit_w if best and not is_over else -1.0)
        standing_w = self._limiter.set(wanted_w) if wanted_w > 0 else None
        if standing_w is not None and is_same(standing_w, wanted_w):
            self.chosen_w = standing_w
        else:
            self._limiter.restore()
            standing_w = self._limiter.standing_w()
        self._part = Part.SETTLED
        self._windows.enter(Part.SETTLED, standing_w)
        # Not before: what a handler of signals raises in between leaves it to be decided again.
        self.is_done = True
        self._say(self._chosen_line(sweep, best, standing_w))

    def _chosen_line(self, sweep: Sequence[SweepPoint], best: SweepPoint | None, standing_w: float | None) -> str:
        """Return what people are told of the choice."""
        if best is None or self.chosen_w is None:
            stands = "it can't be read what stands" if standing_w is None else f"{standing_w:g} W stand"
            return f"no power limit could be chosen: {stands}"
        highest = max(sweep, key=lambda point: point.power_limit_w)
        energy, time = (best.energy_j / highest.energy_j - 1, best.time_s / highest.time_s - 1)
        planned = len(self._limits_w)
        measured = f"{len(sweep)} of {planned}" if len(sweep) < planned else f"{planned}"
        return (
            f"power limit {self.chosen_w:g} W chosen, after profiling {measured} limits: {energy:+.1%} energy and "
            f"{time:+.1%} time against {highest.power_limit_w:g} W"
        )
