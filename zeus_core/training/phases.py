"""Energy, time and samples of the training and the evaluation loops, apart."""

from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from zeus_kfp.zeus_core.meters import Meter
from zeus_kfp.zeus_core.profile import Phase, Profile
from zeus_kfp.zeus_core.training.instrument import NOTHING_SPENT, Instrument, Reading, Spent

Batch = TypeVar("Batch")


@dataclass(slots=True)
class _Window:
    """A loop under way; ``since`` is None while an inner one has the floor."""

    phase: Phase
    since: Reading | None


class PhaseTotals:
    """What each phase has taken so far; of nested loops only the innermost counts."""

    def __init__(self, instrument: Instrument) -> None:
        """Start with nothing."""
        self._instrument = instrument
        self._open: list[_Window] = []
        self._spent: dict[Phase, Spent] = {}
        self._samples: dict[Phase, int] = {}

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

    def count(self, phase: Phase, samples: int) -> None:
        """Add samples to a phase."""
        self._samples[phase] = self._samples.get(phase, 0) + samples

    def profiles(self, batch_size: int, meter: Meter) -> tuple[Profile, ...]:
        """Return a row for every phase whose power is known."""
        rows = []
        for phase, spent in self._spent.items():
            if not spent.energy_j or spent.time_s <= 0:
                continue
            rows.append(
                Profile(
                    batch_size=batch_size,
                    phase=phase,
                    power_limit_w=meter.power_limit_w,
                    average_power_w=spent.energy_j / spent.time_s,
                    throughput_samples_per_s=self._samples.get(phase, 0) / spent.time_s,
                    accelerator=meter.accelerator,
                    accelerator_count=meter.accelerator_count,
                    energy_estimated=meter.estimated,
                )
            )
        return tuple(rows)

    def _settle(self, now: Reading) -> None:
        if self._open and self._open[-1].since is not None:
            window = self._open[-1]
            spent = window.since.until(now) if window.since else NOTHING_SPENT
            self._spent[window.phase] = self._spent.get(window.phase, NOTHING_SPENT) + spent
            window.since = None


class MeasuredLoop(Generic[Batch]):
    """A user's batches, handed on one by one while a phase's window is open."""

    def __init__(self, batches: Iterable[Batch], phase: Phase, totals: PhaseTotals, batch_size: int) -> None:
        """Wrap batches; ``batch_size`` samples are counted for one whose size can't be seen."""
        self._batches = batches
        self._phase = phase
        self._totals = totals
        self._batch_size = batch_size

    def __len__(self) -> int:
        """Return the number of batches, for progress bars."""
        if not isinstance(self._batches, Sized):
            raise TypeError(f"{type(self._batches).__name__} has no len()")
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        """Hand on the batches."""
        window = self._totals.begin(self._phase)
        try:
            for batch in self._batches:
                self._totals.count(self._phase, sample_count(batch, self._batch_size))
                yield batch
        finally:
            self._totals.end(window)


def sample_count(batch: Any, otherwise: int) -> int:
    """Return the samples in a batch: the length of its first tensor, or ``otherwise`` if it shows none."""
    if isinstance(batch, Mapping):
        return sample_count(next(iter(batch.values()), None), otherwise)
    if isinstance(batch, list | tuple):
        return sample_count(batch[0], otherwise) if batch else otherwise
    shape = getattr(batch, "shape", None)
    return int(shape[0]) if isinstance(shape, tuple) and shape else otherwise
