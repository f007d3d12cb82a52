"""Energy, time and samples of the training and the evaluation loops, apart, and by power limit."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from zeus_kfp.zeus_core.power.on_signal import RestoreAtEnd
from zeus_kfp.zeus_core.power.profiling import Part
from zeus_kfp.zeus_core.power.selectors import SweepPoint, sweep_of
from zeus_kfp.zeus_core.profile import Phase, Profile
from zeus_kfp.zeus_core.training.fleet import Hardware
from zeus_kfp.zeus_core.training.group import Group
from zeus_kfp.zeus_core.training.instrument import NOTHING_SPENT, Instrument, Reading, Spent


class _Key(NamedTuple):
    """What a stretch of a loop counts under."""

    phase: Phase
    part: Part
    power_limit_w: float | None


class _Taken(NamedTuple):
    """What stretches of a loop took, and how many samples they handled."""

    spent: Spent
    samples: int


@dataclass(slots=True)
class Window:
    """A loop under way.

    Attributes:
        phase: What it does.
        since: When it was last accounted for; None while an inner one has the floor.
        samples: Those of its steps since then; whoever follows the steps adds them, which is all that most steps cost.
    """

    phase: Phase
    since: Reading | None
    samples: int = 0


def merged(parts: Iterable[tuple[bool, Mapping[_Key, _Taken]]]) -> dict[_Key, _Taken]:
    """Return what several processes took together: all energy, the slowest one's time, and all samples.

    Args:
        parts: Of each process whether it measures any energy, and what it took.
    """
    total: dict[_Key, _Taken] = {}
    for measures, part in parts:
        for key, (spent, samples) in part.items():
            own = spent if measures else Spent(0.0, spent.time_s)
            so_far = total.get(key, _Taken(NOTHING_SPENT, 0))
            energy_j = (so_far.spent + own).energy_j
            time_s = max(so_far.spent.time_s, own.time_s)
            total[key] = _Taken(Spent(energy_j, time_s), so_far.samples + samples)
    return total


class PhaseTotals:
    """What each phase has taken so far, by power limit; of nested loops only the innermost counts."""

    def __init__(self, instrument: Instrument, batch_size: int, group: Group) -> None:
        """Begin with nothing, under the limit that the meter found.

        Args:
            instrument: Clock and meter.
            batch_size: Samples (global) of a batch, for the rows.
            group: Processes that each handle their share of the samples, and of the GPUs.
        """
        self._instrument = instrument
        self._batch_size = batch_size
        self._group = group
        self._hardware = Hardware.of(instrument.meter)
        self._open: list[Window] = []
        self._spent: dict[_Key, Spent] = {}
        self._samples: dict[_Key, int] = {}
        self._merged: dict[_Key, _Taken] | None = None
        self._keys: dict[Phase, _Key] = {}
        self._guard: RestoreAtEnd | None = None
        self.enter(Part.SETTLED, instrument.meter.power_limit_w)

    def start(self, hardware: Hardware, guard: RestoreAtEnd) -> None:
        """Account for what all processes run on, under the limit that was found there.

        Args:
            hardware: What they run on.
            guard: Puts back what was found when a signal comes; then nothing counts under another limit any more.
        """
        self._hardware, self._guard = hardware, guard
        self.enter(Part.SETTLED, hardware.power_limit_w)

    def merge(self) -> None:
        """Bring together what all processes have taken; called in every process, at the same step."""
        if self._group.size > 1 and self._group.can_talk:
            self._catch_up()
            self._merged = merged(self._group.gather((self._group.measures, self._own())))

    @property
    def power_limit_w(self) -> float | None:
        """The limit in W that everything is accounted for under now; None if unknown."""
        return self._keys[Phase.TRAIN].power_limit_w

    def begin(self, phase: Phase) -> Window:
        """Open a window of a phase and halt the one around it."""
        now = self._instrument.read()
        self._settle(now)
        window = Window(phase, now)
        self._open.append(window)
        return window

    def end(self, window: Window) -> None:
        """Close a window, and any inside it that was left open; one that is closed already is left alone."""
        if window not in self._open:
            return
        now = self._instrument.read()
        self._settle(now)
        self._count()
        del self._open[self._open.index(window) :]
        if self._open:
            self._open[-1].since = now

    def end_all(self) -> None:
        """Close every window that was left open, by a loop that was left without being closed."""
        if self._open:
            self.end(self._open[0])

    def enter(self, part: Part, power_limit_w: float | None) -> None:
        """Account for what follows under a part of profiling and a limit in W; evaluation is never profiled."""
        self._catch_up()
        self._count()
        self._keys[Phase.TRAIN] = _Key(Phase.TRAIN, part, power_limit_w)
        self._keys[Phase.EVAL] = _Key(Phase.EVAL, Part.SETTLED, power_limit_w)

    def time_s(self, part: Part, power_limit_w: float) -> float:
        """Return the time in s that a part of profiling has lasted under a limit up to now; no meter is read."""
        key = _Key(Phase.TRAIN, part, power_limit_w)
        window = self._open[-1] if self._open else None
        under_way_s = 0.0
        if window is not None and window.since is not None and self._keys[window.phase] == key:
            under_way_s = self._instrument.now_s() - window.since.time_s
        return self._spent.get(key, NOTHING_SPENT).time_s + under_way_s

    def sweep(self) -> list[SweepPoint]:
        """Return what a sample takes in training at each limit whose windows can be trusted.

        Called in every process, at the same step.
        """
        self._catch_up()
        self.merge()
        return sweep_of(self.profiles())

    def samples(self, phase: Phase) -> int:
        """Return all samples of a phase so far, warm-up included, over all processes."""
        return sum(taken.samples for key, taken in self._taken().items() if key.phase is phase)

    def spent(self) -> Spent:
        """Return what all loops have taken so far."""
        return sum((taken.spent for taken in self._taken().values()), NOTHING_SPENT)

    def profiles(self) -> tuple[Profile, ...]:
        """Return a row for every phase and limit whose power is known and was measured for long enough.

        Where training was profiled, its rows are of the windows alone, so that they can be compared. Of several
        processes the rows are of what :meth:`merge` has brought together.
        """
        taken = self._taken()
        was_profiled = any(key.part is Part.WINDOW for key in taken)
        return tuple(
            self._row(key, of_key)
            for key, of_key in taken.items()
            if key.part is (Part.WINDOW if was_profiled and key.phase is Phase.TRAIN else Part.SETTLED)
            and of_key.spent.energy_j
            and of_key.spent.time_s >= max(self._instrument.meter.shortest_window_s, 1e-9)
        )

    def _row(self, key: _Key, taken: _Taken) -> Profile:
        spent = taken.spent
        return Profile(
            batch_size=self._batch_size,
            phase=key.phase,
            power_limit_w=key.power_limit_w,
            average_power_w=(spent.energy_j or 0.0) / spent.time_s,
            throughput_samples_per_s=taken.samples / spent.time_s,
            accelerator=self._hardware.accelerator,
            accelerator_count=self._hardware.count,
            energy_estimated=self._instrument.meter.estimated,
        )

    def _taken(self) -> dict[_Key, _Taken]:
        return self._own() if self._merged is None else self._merged

    def _own(self) -> dict[_Key, _Taken]:
        """Return what this process has taken."""
        self._count()
        keys = dict.fromkeys((*self._spent, *self._samples))
        return {key: _Taken(self._spent.get(key, NOTHING_SPENT), self._samples.get(key, 0)) for key in keys}

    def _count(self) -> None:
        """Account for the samples of the loops under way."""
        for window in self._open:
            if window.samples:
                key = self._keys[window.phase]
                self._samples[key] = self._samples.get(key, 0) + window.samples
                window.samples = 0

    def _catch_up(self) -> None:
        if self._open:
            now = self._instrument.read()
            self._settle(now)
            self._open[-1].since = now

    def _settle(self, now: Reading) -> None:
        is_broken = self._guard is not None and self._guard.has_restored
        if self._open and self._open[-1].since is not None:
            window = self._open[-1]
            spent = window.since.until(now) if window.since else NOTHING_SPENT
            if is_broken:  # the limit changed in the midst of it, so that it makes no row
                self._keys[window.phase] = self._keys[window.phase]._replace(part=Part.WARMUP)
            key = self._keys[window.phase]
            self._spent[key] = self._spent.get(key, NOTHING_SPENT) + spent
            window.since = None
        self._count()
        if is_broken:
            self._go_on_as_found()

    def _go_on_as_found(self) -> None:
        """Account for what follows under the limit that stands, now that none is set any more."""
        standing_w = self._guard.standing_w() if self._guard else None
        self._guard = None
        self._keys = {phase: _Key(phase, Part.SETTLED, standing_w) for phase in Phase}
