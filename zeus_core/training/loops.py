"""Loops of training and evaluation whose steps are followed one by one."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import Any, Generic, Protocol, TypeVar

from zeus_kfp.zeus_core.profile import Phase
from zeus_kfp.zeus_core.training.phases import PhaseTotals

Batch = TypeVar("Batch")
_SEQUENCES = (list, tuple)


class Steps(Protocol):
    """Whatever follows the steps of a training loop."""

    def begin_loop(self, steps: int | None) -> None:
        """Begin a loop, of so many steps if that is known."""
        ...

    def step(self) -> None:
        """Begin a step."""
        ...

    def end_loop(self) -> None:
        """End the loop."""
        ...


class RunningLoop:
    """A loop under way, whose steps are told one by one."""

    def __init__(self, phase: Phase, totals: PhaseTotals, steps: Steps | None, length: int | None) -> None:
        """Begin it.

        Args:
            phase: What it does.
            totals: Accounts for what it takes.
            steps: Follows its steps; None for nobody.
            length: How many steps it has; None if that isn't known.
        """
        self._totals = totals
        self._steps = steps
        self._window = totals.begin(phase)
        if steps is not None:
            steps.begin_loop(length)

    def step(self, samples: int) -> None:
        """Begin a step of so many samples."""
        if self._steps is not None:
            self._steps.step()
        self._window.samples += samples

    def end(self) -> None:
        """End it."""
        if self._steps is not None:
            self._steps.end_loop()
        self._totals.end(self._window)


class MeasuredLoop(Generic[Batch]):
    """A user's batches, handed on one by one while a phase's window is open."""

    def __init__(self, batches: Iterable[Batch], begin: Callable[[int | None], RunningLoop], batch_size: int) -> None:
        """Wrap batches.

        Args:
            batches: What the user's loop works on.
            begin: Begins a loop of so many steps.
            batch_size: Samples that are counted for a batch whose size can't be seen.
        """
        self._batches = batches
        self._begin = begin
        self._batch_size = batch_size

    def __len__(self) -> int:
        """Return the number of batches, for progress bars."""
        if not isinstance(self._batches, Sized):
            raise TypeError(f"{type(self._batches).__name__} has no len()")
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        """Hand on the batches."""
        loop = self._begin(length_of(self._batches))
        step, batch_size = loop.step, self._batch_size
        try:
            for batch in self._batches:
                step(sample_count(batch, batch_size))
                yield batch
        finally:
            loop.end()


def sample_count(batch: Any, otherwise: int) -> int:
    """Return the samples in a batch: the length of its first tensor, or ``otherwise`` if it shows none."""
    # The usual kinds first: this is done for every step, among data that has pushed this code out of the caches.
    if isinstance(batch, _SEQUENCES):
        return sample_count(batch[0], otherwise) if batch else otherwise
    shape = getattr(batch, "shape", None)
    if isinstance(shape, tuple):
        return int(shape[0]) if shape else otherwise
    if isinstance(batch, dict) or _is_other_mapping(batch):
        return sample_count(next(iter(batch.values()), None), otherwise)
    return otherwise


def _is_other_mapping(batch: Any) -> bool:
    # Asking what kind of container it is takes longer than all the rest, so only what may be one is asked.
    return hasattr(batch, "keys") and isinstance(batch, Mapping)


def length_of(batches: Any) -> int | None:
    """Return the number of batches; None where it can't be known, as of a data set that streams."""
    try:
        return len(batches) if isinstance(batches, Sized) else None
    except TypeError:
        return None
