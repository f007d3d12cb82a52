"""A callback for the Trainer of Hugging Face transformers.

::

    trial = Trial.from_environment()
    arguments = with_batch_size(
        TrainingArguments(…, num_train_epochs=trial.plan.max_epochs, eval_strategy="epoch"), trial
    )
    Trainer(…, args=arguments, callbacks=[ZeusCallback(trial, "eval_accuracy")]).train()
"""

import math
from collections.abc import Mapping
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.profile import Phase
from zeus_kfp.zeus_core.training.driver import EpochDriver
from zeus_kfp.zeus_core.training.effective import check_batch_size, check_processes, share_of_update
from zeus_kfp.zeus_core.training.loops import length_of
from zeus_kfp.zeus_core.training.trial import Trial


def with_batch_size(args: TrainingArguments, trial: Trial) -> TrainingArguments:
    """Set ``per_device_train_batch_size`` so that an update of the weights takes the trial's batch size in all.

    Args:
        args: The arguments, whose other values say what a batch is divided among: the processes, the GPUs of each
            (with several in one process, the Trainer uses them all), and ``gradient_accumulation_steps``.
        trial: The trial.

    Raises:
        InvalidValueError: If it can't be divided so, or the Trainer would choose a batch size of its own.
    """
    _check_own_choice(args)
    parts = _data_processes(args) * max(args.n_gpu, 1) * args.gradient_accumulation_steps
    if _splits_batches(args):
        parts //= _data_processes(args)
    args.per_device_train_batch_size = share_of_update(trial, parts, _named(args))
    return args


class ZeusCallback(TrainerCallback):
    """Measures, profiles power limits, and ends training when the trial is over."""

    def __init__(self, trial: Trial, metric: str) -> None:
        """Take a trial.

        Args:
            trial: The trial that this process was started for.
            metric: Name of the target metric among those of an evaluation, such as eval_accuracy.
        """
        self._driver = EpochDriver(trial)
        self._metric = metric
        self._epoch_has_ended = False

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        """Begin the trial's epochs, after those that a checkpoint holds."""
        if args.eval_strategy == "no":
            raise InvalidValueError(
                f'TrainingArguments needs eval_strategy="epoch", so that every epoch has its {self._metric}'
            )
        self._check(args, state)
        self._driver.begin(int(state.epoch or 0))
        control.should_training_stop = self._driver.is_over
        return control

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **found: Any
    ) -> None:
        """Begin a step: one update of the weights, over all its batches."""
        batches = length_of(found.get("train_dataloader"))
        steps = None if batches is None else -(-batches // args.gradient_accumulation_steps)
        self._driver.step(Phase.TRAIN, self._driver.trial.local_batch_size, steps)

    def on_epoch_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Begin an epoch."""
        self._epoch_has_ended = False

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        """End the training loop; the epoch ends with its evaluation, or at once where that was before."""
        self._driver.end_loop(Phase.TRAIN)
        self._epoch_has_ended = True
        return control if control.should_evaluate else self._end_epoch(control)

    def on_prediction_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **found: Any
    ) -> None:
        """Count a batch of the evaluation."""
        self._driver.step(Phase.EVAL, args.eval_batch_size, length_of(found.get("eval_dataloader")))

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> TrainerControl:
        """Report the metric, and end the epoch if its training is over."""
        self._driver.end_loop(Phase.EVAL)
        if not self._driver.is_under_way:
            return control
        self._driver.report(metrics or {}, self._metric)
        return self._end_epoch(control) if self._epoch_has_ended else control

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """End the trial."""
        self._driver.end()

    def _end_epoch(self, control: TrainerControl) -> TrainerControl:
        self._driver.end_epoch()
        control.should_training_stop = control.should_training_stop or self._driver.is_over
        return control

    def _check(self, args: TrainingArguments, state: TrainerState) -> None:
        _check_own_choice(args)
        check_processes(self._driver.trial, args.world_size, "this Trainer's processes")
        batch = (state.train_batch_size or args.train_batch_size) * args.gradient_accumulation_steps
        effective = batch if _splits_batches(args) else batch * _data_processes(args)
        check_batch_size(
            self._driver.trial,
            effective,
            f"per_device_train_batch_size={args.per_device_train_batch_size}, {_named(args)}",
            "pass the arguments through with_batch_size(args, trial), or set per_device_train_batch_size accordingly",
        )


def _check_own_choice(args: TrainingArguments) -> None:
    if args.auto_find_batch_size:
        raise InvalidValueError(
            "auto_find_batch_size=True lets the Trainer go on with a smaller batch size than the trial's when memory "
            "runs out: set it to False; the trial then tells that this size doesn't fit, and the next one is smaller"
        )


def _data_processes(args: TrainingArguments) -> int:
    """Return how many processes have data of their own; those that share a model's layers have the same."""
    config = getattr(args, "parallelism_config", None)
    sharing = math.prod(getattr(config, f"{kind}_size", None) or 1 for kind in ("tp", "cp", "sp"))
    return max(int(args.world_size // sharing), 1)


def _splits_batches(args: TrainingArguments) -> bool:
    """Return whether the processes share what is one process's batch otherwise."""
    return bool(getattr(args.accelerator_config, "split_batches", False))


def _named(args: TrainingArguments) -> str:
    return (
        f"gradient_accumulation_steps={args.gradient_accumulation_steps}, GPUs in a process (n_gpu)={args.n_gpu}, "
        f"processes={args.world_size}"
    )
