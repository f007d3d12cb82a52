"""A callback for the Trainer of Hugging Face transformers.

::

    trial = Trial.from_environment()
    arguments = TrainingArguments(
        …, per_device_train_batch_size=trial.local_batch_size, num_train_epochs=trial.plan.max_epochs,
        eval_strategy="epoch",
    )
    Trainer(…, args=arguments, callbacks=[ZeusCallback(trial, "eval_accuracy")]).train()
"""

from collections.abc import Mapping
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.profile import Phase
from zeus_kfp.zeus_core.training.driver import EpochDriver
from zeus_kfp.zeus_core.training.loops import length_of
from zeus_kfp.zeus_core.training.trial import Trial


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
        self._driver.begin(int(state.epoch or 0))
        control.should_training_stop = self._driver.is_over
        return control

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **found: Any
    ) -> None:
        """Begin a step: one update of the weights, over all its batches."""
        batches = length_of(found.get("train_dataloader"))
        steps = None if batches is None else -(-batches // args.gradient_accumulation_steps)
        self._driver.step(Phase.TRAIN, args.train_batch_size * args.gradient_accumulation_steps, steps)

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
