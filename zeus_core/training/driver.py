"""Drive a trial from the events of a framework that owns the training loop."""

from collections.abc import Iterator, Mapping
from typing import Any

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.profile import Phase
from zeus_kfp.zeus_core.training.loops import RunningLoop
from zeus_kfp.zeus_core.training.trial import Trial


class EpochDriver:
    """Turns events into what a training loop of one's own would do with a trial.

    Attributes:
        trial: The trial.
        is_over: Whether the trial wants no other epoch.
    """

    def __init__(self, trial: Trial) -> None:
        """Take a trial whose epochs haven't begun."""
        self.trial = trial
        self.is_over = False
        self._epochs: Iterator[int] | None = None
        self._loops: dict[Phase, RunningLoop] = {}

    def begin(self, start: int = 0) -> None:
        """Begin training; ``start`` epochs were trained before."""
        self._epochs = self.trial.epochs(start)
        self._advance()

    def step(self, phase: Phase, samples: int, steps: int | None) -> None:
        """Begin a step of a phase's loop, which has so many steps and begins with the first of them."""
        if not self.is_under_way:
            return
        if phase not in self._loops:
            self._loops[phase] = self.trial.begin_loop(phase, steps)
        self._loops[phase].step(samples)

    def end_loop(self, phase: Phase) -> None:
        """End a phase's loop, if one is under way."""
        if phase in self._loops:
            self._loops.pop(phase).end()

    @property
    def is_under_way(self) -> bool:
        """Whether the trial's epochs have begun and aren't over."""
        return self._epochs is not None and not self.is_over

    def report(self, metrics: Mapping[str, Any], name: str) -> None:
        """Report the metric of a name; the last one of an epoch counts.

        Raises:
            InvalidValueError: If there is no metric of that name.
        """
        if name not in metrics:
            raise InvalidValueError(f"there is no metric {name!r}; those of this epoch are {sorted(map(str, metrics))}")
        self.trial.report_metric(metrics[name])

    def end_epoch(self) -> None:
        """End an epoch, and begin the next one unless the trial is over."""
        if self.is_under_way:
            for phase in list(self._loops):
                self.end_loop(phase)
            self._advance()

    def end(self) -> None:
        """End training, whoever wanted that; a second call does nothing."""
        self.is_over = True
        self._loops.clear()
        self.trial.close()

    def _advance(self) -> None:
        assert self._epochs is not None
        if next(self._epochs, None) is None:
            self.is_over = True
