"""The object that a user's training loop works with."""

import math
import os
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from pathlib import Path
from types import GeneratorType
from typing import Any, Self, TypeVar

from zeus_kfp.zeus_core.errors import DivergedError, InvalidValueError
from zeus_kfp.zeus_core.meters import Meter
from zeus_kfp.zeus_core.power import ObserveOnly, PowerLimiter
from zeus_kfp.zeus_core.power.options import ProfilingOptions
from zeus_kfp.zeus_core.profile import Phase
from zeus_kfp.zeus_core.training.assignment import Assignment, read_assignment
from zeus_kfp.zeus_core.training.fleet import Claim, share_out
from zeus_kfp.zeus_core.training.group import Group, SoleProcess, share_of
from zeus_kfp.zeus_core.training.instrument import Instrument, synchronize_gpu
from zeus_kfp.zeus_core.training.local import local_assignment
from zeus_kfp.zeus_core.training.logbook import Logbook
from zeus_kfp.zeus_core.training.loops import MeasuredLoop, RunningLoop
from zeus_kfp.zeus_core.training.machine import open_machine
from zeus_kfp.zeus_core.training.metric import checked_metric
from zeus_kfp.zeus_core.training.power import PowerControl
from zeus_kfp.zeus_core.training.summary import Ending
from zeus_kfp.zeus_core.training.weights import save_weights
from zeus_kfp.zeus_core.training.windows import Windows

Batch = TypeVar("Batch")


class Trial:
    """One training run at a batch size, from the training code's side.

    ::

        def train(trial):
            loader = DataLoader(dataset, batch_size=trial.batch_size)
            for epoch in trial.epochs():
                for batch in trial.train(loader):
                    ...
                for batch in trial.eval(validation_loader):
                    ...
                trial.report_metric(accuracy)
            trial.save_model(model)

    Attributes:
        plan: What was planned, with the target metric and the cost threshold.
        batch_size: Samples (global, over all GPUs) that the loop must train with.
        learning_rate_factor: Factor on the learning rate of the default batch size.
        data_path: The preprocessed data set; "" for none.
        model_path: Where the model goes; its folder exists.
        checkpoint_dir: Folder for checkpoints of this trial alone; a second attempt at it finds them again.
        arguments: The user's own arguments.
        epoch: Index of the current epoch, from 0; -1 before the first.
        windows: Energy and time of stretches of code that are given a name.
        metric: Last metric reported; None before the first.
        best_metric: Best metric reported; None before the first.
    """

    def __init__(
        self,
        assignment: Assignment,
        *,
        meter: Meter,
        clock: Callable[[], float] = time.monotonic,
        synchronize: Callable[[], None] = synchronize_gpu,
        progress: Callable[[str], None] | None = None,
        limiter: PowerLimiter | None = None,
        profiling: ProfilingOptions | None = None,
        group: Group | None = None,
        claim: Claim | None = None,
    ) -> None:
        """Take an assignment; usually made by :meth:`from_environment` or :meth:`local`.

        Args:
            assignment: What to train.
            meter: What measures energy.
            clock: Returns a time in s.
            synchronize: Waits for the GPU's queued work.
            progress: Gets a line for people after every epoch.
            limiter: What sets power limits; None leaves them alone.
            profiling: How power limits are profiled; None for the defaults.
            group: The processes that train together; None if this one trains alone.
            claim: What this process could measure, where others could do it too; None to keep the meter as it is.
        """
        self.plan = plan = assignment.plan
        self.batch_size = plan.batch_size
        self.learning_rate_factor = plan.learning_rate_factor
        self.data_path = assignment.data_path
        self.model_path = assignment.model_path
        self.checkpoint_dir = assignment.checkpoint_dir
        self.arguments = dict(assignment.arguments)
        self.epoch = -1
        self.metric: float | None = None
        self.best_metric: float | None = None
        self._claim = claim
        # Held weakly: a loop that is left by a break ends its epochs by letting go of their iterator.
        self._under_way: weakref.ref[Generator[int, None, None]] | None = None
        self._group = group = group or SoleProcess()
        limiter = limiter or ObserveOnly()
        told = progress if group.is_leader else None
        self._limiter = limiter
        self._instrument = instrument = Instrument(meter, clock, synchronize)
        self.windows = Windows(instrument)
        self._logbook = Logbook(assignment, instrument, limiter, group, told)
        self._power = PowerControl(
            plan,
            limiter,
            instrument,
            self._logbook.phases,
            profiling or ProfilingOptions(),
            group,
            (progress or _print) if group.is_leader else _ignore,
        )
        self._in_epoch = False
        self._was_settled = False
        self._reported: float | None = None
        self._ending = Ending.RUNNING

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """Return the trial that this process was started for, for scripts.

        Raises:
            InvalidValueError: If this process was not started for one; :meth:`local` makes a trial without
                any pipeline.
        """
        return cls(read_assignment(environ), **open_machine(environ))

    @classmethod
    def local(
        cls,
        *,
        batch_size: int,
        target_metric: float,
        higher_is_better: bool = True,
        max_epochs: int = 100,
        learning_rate_factor: float = 1.0,
        eta_knob: float = 0.5,
        cost_threshold: float | None = None,
        data_path: str | Path = "",
        arguments: Mapping[str, Any] | None = None,
        directory: str | Path | None = None,
    ) -> Self:
        """Return a trial without any pipeline, to try a training loop on this machine.

        Args:
            batch_size: Samples, at least 1.
            target_metric: Value of the metric that ends the trial.
            higher_is_better: Whether the metric grows as the model gets better.
            max_epochs: Most epochs to train, at least 1.
            learning_rate_factor: What :attr:`learning_rate_factor` shall be, above 0.
            eta_knob: Weight of energy in the cost, 0 to 1.
            cost_threshold: Cost in J before which the trial stops early; None for never.
            data_path: The preprocessed data set.
            arguments: The user's own arguments.
            directory: Folder for model, history and checkpoints; None makes a temporary one.

        Raises:
            InvalidValueError: If a value is out of its range.
        """
        assignment = local_assignment(
            batch_size=batch_size,
            target_metric=target_metric,
            higher_is_better=higher_is_better,
            max_epochs=max_epochs,
            learning_rate_factor=learning_rate_factor,
            eta_knob=eta_knob,
            cost_threshold=cost_threshold,
            data_path=data_path,
            arguments=arguments or {},
            directory=directory,
        )
        return cls(assignment, **open_machine(os.environ), progress=_print)

    @property
    def process_count(self) -> int:
        """How many processes train together, this one included."""
        return self._group.size

    @property
    def local_batch_size(self) -> int:
        """Samples of a batch in each of the processes that train together; all of them without any other process.

        Raises:
            InvalidValueError: If the batch size can't be divided among them.
        """
        return share_of(self.batch_size, self._group)

    @property
    def reached(self) -> bool:
        """Whether the last metric reported reaches the target."""
        return self.metric is not None and self.plan.is_reached(self.metric)

    def epochs(self, start: int = 0) -> Iterator[int]:
        """Return the epochs to train, as an iterator over their indices.

        It ends once the target is reached, after the plan's last epoch, or before an epoch that would cross the
        cost threshold. The code after the loop runs on as usual.

        Args:
            start: Index of the first epoch, where training goes on from a checkpoint.

        Raises:
            InvalidValueError: If it was called before, the trial is closed, or (while iterating) an epoch reported no
                metric.
        """
        if self._logbook.is_started:
            raise InvalidValueError("trial.epochs() can be used once: a trial is one training run")
        if self._ending is not Ending.RUNNING:
            raise InvalidValueError("the trial is closed: use trial.epochs() before trial.close()")
        self._group.connect()
        self._instrument.meter, self._limiter, hardware = share_out(
            self._group, self._claim, self._instrument.meter, self._limiter
        )
        self._power.start(self._limiter, hardware)
        self._logbook.start(start, hardware)
        epochs = self._epochs(start)
        self._under_way = weakref.ref(epochs)
        return epochs

    def train(self, batches: Iterable[Batch]) -> MeasuredLoop[Batch]:
        """Return the batches of an epoch's training; what they take counts as the training phase."""
        return self._loop(Phase.TRAIN, batches)

    def eval(self, batches: Iterable[Batch]) -> MeasuredLoop[Batch]:
        """Return the batches of an epoch's evaluation; what they take counts as the evaluation phase."""
        return self._loop(Phase.EVAL, batches)

    def report_metric(self, value: Any) -> None:
        """Report the validation metric of the current epoch; of several calls in an epoch, the last counts.

        Args:
            value: A finite number, or a scalar of NumPy, PyTorch, ….

        Raises:
            InvalidValueError: If it is no single number, or no epoch is under way.
            DivergedError: If it is NaN or infinite; the trial is over then.
        """
        if not self._in_epoch:
            raise InvalidValueError(
                "trial.report_metric() belongs inside an epoch: for epoch in trial.epochs(): …; report_metric(…)"
            )
        try:
            self._note(checked_metric(value))
        except DivergedError as error:
            self._end(Ending.DIVERGED, str(error))
            raise

    def begin_loop(self, phase: Phase, steps: int | None = None) -> RunningLoop:
        """Begin a loop whose steps are told one by one, for frameworks that own the loop.

        Args:
            phase: Training or evaluation.
            steps: How many steps it has; None if that isn't known.

        Raises:
            InvalidValueError: If no epoch is under way.
        """
        if not self._in_epoch:
            raise InvalidValueError(f"a loop of {phase.value} belongs inside an epoch of trial.epochs()")
        follower = self._power.follower if phase is Phase.TRAIN else None
        return RunningLoop(phase, self._logbook.phases, follower, steps)

    def save_model(self, model: Any) -> None:
        """Save the weights of a PyTorch module (its state_dict) to :attr:`model_path`.

        A model of another kind is saved by the user's own code, to the same path. Of several processes that train
        together only the first one saves.

        Raises:
            InvalidValueError: If it is no PyTorch module.
        """
        if self._group.is_leader:
            save_weights(model, self.model_path)

    def close(self) -> None:
        """Say that training is over, put back the power limits, and give back the meter."""
        try:
            # A loop that was left by an exception, or whose iterator the user's code still holds.
            epochs = self._under_way() if self._under_way else None
            if isinstance(epochs, GeneratorType) and not epochs.gi_running:
                epochs.close()
            if self._ending is Ending.RUNNING:
                self._end(Ending.ENDED, "the training code never began trial.epochs()")
        finally:
            # Whatever a broken GPU says to the last reading.
            self._power.end()
            self._instrument.meter.close()

    def _note(self, metric: float) -> None:
        self.metric = self._reported = metric
        self.best_metric = self.plan.best_of((self.best_metric, metric))

    def _epochs(self, start: int) -> Generator[int, None, None]:
        reason = "max_epochs"
        try:
            for epoch in range(start, self.plan.max_epochs):
                reason = f"the training loop was left in epoch {epoch + 1}"
                self.epoch, self._reported, self._in_epoch = epoch, None, True
                self._was_settled = self._power.is_settled
                yield epoch
                self._end_epoch()
                if reason := self._why_over():
                    break
        finally:
            self._leave_epochs(reason)

    def _end_epoch(self) -> None:
        self._in_epoch = False
        if self._ending is Ending.DIVERGED:
            return
        # Of several processes the first one's metric counts; the others need not know it.
        metric = self._group.agree(math.nan if self._reported is None else self._reported)
        if math.isnan(metric):
            raise InvalidValueError(
                f"epoch {self.epoch + 1} ended without a metric: call trial.report_metric(value) in every epoch"
            )
        self._note(metric)
        self._logbook.phases.end_all()
        self._power.end_epoch()
        self._logbook.settled_limit_w = self._power.settled_limit_w
        self._logbook.record_epoch(metric, is_settled=self._was_settled)

    def _why_over(self) -> str:
        if self._ending is Ending.DIVERGED:
            return "diverged"
        if self.reached:
            return "target reached"
        if self.epoch + 1 >= self.plan.max_epochs:
            return "max_epochs"
        why = self._logbook.why_stop(self._power.profiled_limit_w)
        return (why or "early stop") if self._group.agree(bool(why)) else ""

    def _leave_epochs(self, reason: str) -> None:
        try:
            self._group.disconnect()
            # The user's loop may end by break, after an epoch that has reported its metric all the same.
            if self._in_epoch and self._reported is not None:
                self._end_epoch()
            if self._ending is Ending.RUNNING:
                self._end(Ending.ENDED, "target reached" if self.reached else reason)
        finally:
            self._in_epoch = False
            self._power.end()

    def _end(self, ending: Ending, reason: str) -> None:
        self._ending = ending
        self._logbook.settled_limit_w = self._power.settled_limit_w
        self._logbook.end(ending, reason, is_cut_short=self._in_epoch)

    def _loop(self, phase: Phase, batches: Iterable[Batch]) -> MeasuredLoop[Batch]:
        if not self._in_epoch:
            raise InvalidValueError(
                f"trial.{phase.value}() belongs inside an epoch: for epoch in trial.epochs(): for batch in "
                f"trial.{phase.value}(loader): …"
            )
        local_size = max(self.batch_size // self._group.size, 1)
        return MeasuredLoop(batches, lambda steps: self.begin_loop(phase, steps), local_size)


def _print(line: str) -> None:
    print(line, flush=True)


def _ignore(line: str) -> None:
    """Say nothing: another process of the group does."""
