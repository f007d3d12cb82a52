"""Energy, time and samples of the training and the evaluation loops, apart, and by power limit."""

from dataclasses import dataclass
from typing import NamedTuple

from zeus_kfp.zeus_core.meters import Meter
from zeus_kfp.zeus_core.power.profiling import Part
from zeus_kfp.zeus_core.power.selectors import SweepPoint, sweep_of
from zeus_kfp.zeus_core.profile import Phase, Profile
from zeus_kfp.zeus_core.training.instrument import NOTHING_SPENT, Instrument, Reading, Spent


class _Key(NamedTuple):
    """What a stretch of a loop counts under."""

    phase: Phase
    part: Part
    power_limit_w: float | None


@dataclass(slots=True)
class _Window:
    """A loop under way; ``since`` is None while an inner one has the floor."""

    phase: Phase
    since: Reading | None


class PhaseTotals:
    """What each phase has taken so far, by power limit; of nested loops only the innermost counts."""

    def __init__(self, instrument: Instrument, batch_size: int, process_count: int = 1) -> None:
        """Start with nothing, under the limit that the meter found.

        Args:
            instrument: Clock and meter.
            batch_size: Samples (global) of a batch, for the rows.
            process_count: Processes that each handle their share of the samples.
        """
        self._instrument = instrument
        self._batch_size = batch_size
        self._process_count = process_count
        self._open: list[_Window] = []
        self._spent: dict[_Key, Spent] = {}
        self._samples: dict[_Key, int] = {}
        self._keys: dict[Phase, _Key] = {}
        self.enter(Part.SETTLED, instrument.meter.power_limit_w)

    @property
    def power_limit_w(self) -> float | None:
        """The limit in W that everything is accounted for under now; None if unknown."""
        return self._keys[Phase.TRAIN].power_limit_w

    def begin(self, phase: Phase) -> _Window:
        """Open a window of a phase and halt the one around it."""
        now = self._instrument.read()
        self._settle(now)
        window = _Window(phase, now)
        self._open.append(window)
        return window

    def end(self, window: _Window) -> None:
        """Close a window, and any inside it that was left open; one that is closed already is left alone."""
        if window not in self._open:
            return
        now = self._instrument.read()
        self._settle(now)
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
        self._keys[Phase.TRAIN] = _Key(Phase.TRAIN, part, power_limit_w)
        self._keys[Phase.EVAL] = _Key(Phase.EVAL, Part.SETTLED, power_limit_w)

    def spoil(self) -> None:
        """Make no row of the training window under way: the limit changed in the midst of it."""
        self._catch_up()
        key = self._keys[Phase.TRAIN]
        if key.part is not Part.WINDOW:
            return
        spoilt = key._replace(part=Part.WARMUP)
        self._spent[spoilt] = self._spent.pop(key, NOTHING_SPENT) + self._spent.get(spoilt, NOTHING_SPENT)
        self._samples[spoilt] = self._samples.pop(key, 0) + self._samples.get(spoilt, 0)
        self._keys[Phase.TRAIN] = spoilt

    def time_s(self, part: Part, power_limit_w: float) -> float:
        """Return the time in s that a part of profiling has lasted under a limit up to now."""
        self._catch_up()
        return self._spent.get(_Key(Phase.TRAIN, part, power_limit_w), NOTHING_SPENT).time_s

    def sweep(self) -> list[SweepPoint]:
        """Return what a sample takes in training at each limit whose windows can be trusted."""
        self._catch_up()
        return sweep_of(self.profiles())

    def count(self, phase: Phase, samples: int) -> None:
        """Add samples to a phase."""
        key = self._keys[phase]
        self._samples[key] = self._samples.get(key, 0) + samples

    def samples(self, phase: Phase) -> int:
        """Return all samples of a phase so far, warm-up included, over all processes."""
        return sum(count for key, count in self._samples.items() if key.phase is phase) * self._process_count

    def spent(self) -> Spent:
        """Return what all loops have taken so far."""
        return sum(self._spent.values(), NOTHING_SPENT)

    def profiles(self) -> tuple[Profile, ...]:
        """Return a row for every phase and limit whose power is known and was measured for long enough.

        Where training was profiled, its rows are of the windows alone, so that they can be compared.
        """
        meter = self._instrument.meter
        was_profiled = any(key.part is Part.WINDOW for key in self._spent)
        return tuple(
            self._row(key, spent, meter)
            for key, spent in self._spent.items()
            if key.part is (Part.WINDOW if was_profiled and key.phase is Phase.TRAIN else Part.SETTLED)
            and spent.energy_j
            and spent.time_s >= max(meter.shortest_window_s, 1e-9)
        )

    def _row(self, key: _Key, spent: Spent, meter: Meter) -> Profile:
        return Profile(
            batch_size=self._batch_size,
            phase=key.phase,
            power_limit_w=key.power_limit_w,
            average_power_w=(spent.energy_j or 0.0) / spent.time_s,
            throughput_samples_per_s=self._samples.get(key, 0) * self._process_count / spent.time_s,
            accelerator=meter.accelerator,
            accelerator_count=meter.accelerator_count,
            energy_estimated=meter.estimated,
        )

    def _catch_up(self) -> None:
        if self._open:
            now = self._instrument.read()
            self._settle(now)
            self._open[-1].since = now

    def _settle(self, now: Reading) -> None:
        if self._open and self._open[-1].since is not None:
            window = self._open[-1]
            spent = window.since.until(now) if window.since else NOTHING_SPENT
            key = self._keys[window.phase]
            self._spent[key] = self._spent.get(key, NOTHING_SPENT) + spent
            window.since = None
