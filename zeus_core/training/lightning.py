"""A callback for the Trainer of Lightning.

::

    trial = Trial.from_environment()
    loader = DataLoader(data, batch_size=trial.local_batch_size)
    Trainer(max_epochs=trial.plan.max_epochs, callbacks=[ZeusCallback(trial, "val_accuracy")]).fit(model, loader)
"""

import sys
from typing import Any

from zeus_kfp.zeus_core.profile import Phase
from zeus_kfp.zeus_core.training.driver import EpochDriver
from zeus_kfp.zeus_core.training.effective import check_batch_size, check_processes
from zeus_kfp.zeus_core.training.loops import sample_count
from zeus_kfp.zeus_core.training.trial import Trial

# Lightning goes by two names, whose classes are not the same; what the user has imported is what counts.
if "pytorch_lightning" in sys.modules and "lightning" not in sys.modules:
    from pytorch_lightning import Callback
else:
    from lightning.pytorch import Callback


class ZeusCallback(Callback):
    """Measures, profiles power limits, and ends training when the trial is over."""

    def __init__(self, trial: Trial, metric: str) -> None:
        """Take a trial.

        Args:
            trial: The trial that this process was started for.
            metric: Name under which the model logs the target metric, such as val_accuracy.
        """
        self._driver = EpochDriver(trial)
        self._metric = metric

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin the trial's epochs, after those that a checkpoint holds."""
        arguments = f"devices={trainer.num_devices}, num_nodes={trainer.num_nodes}"
        check_processes(self._driver.trial, trainer.world_size, arguments)
        self._check_batch_size(trainer)
        self._driver.begin(int(trainer.current_epoch))
        self._stop_if_over(trainer)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Begin a step of training."""
        if batch_idx == 0:
            # Look again: a schedule, whose turn may come after ours, may have changed accumulate_grad_batches.
            self._check_batch_size(trainer)
        self._driver.step(Phase.TRAIN, self._samples(batch), _steps(trainer.num_training_batches))

    def on_validation_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Begin a step of evaluation."""
        if not trainer.sanity_checking:
            self._driver.step(Phase.EVAL, self._samples(batch), None)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """End the evaluation loop."""
        self._driver.end_loop(Phase.EVAL)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Report the metric and end the epoch: by then its evaluation is over."""
        if self._driver.is_under_way:
            self._driver.report(trainer.callback_metrics, self._metric)
            self._driver.end_epoch()
            self._stop_if_over(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """End the trial."""
        self._driver.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End the trial: the power limits found are put back before anything else."""
        self._driver.end()

    def _check_batch_size(self, trainer: Any) -> None:
        size = _loader_batch_size(trainer.train_dataloader)
        if size is None:  # batches that the user's own code makes
            return
        replicas = getattr(trainer.strategy, "distributed_sampler_kwargs", {}).get("num_replicas", trainer.world_size)
        batches = trainer.accumulate_grad_batches
        check_batch_size(
            self._driver.trial,
            size * batches * replicas,
            f"the loader's batch_size={size}, accumulate_grad_batches={batches}, and {replicas} processes with data of "
            "their own",
            "give the DataLoader batch_size=trial.local_batch_size // accumulate_grad_batches",
        )

    def _samples(self, batch: Any) -> int:
        return sample_count(batch, self._driver.trial.local_batch_size)

    def _stop_if_over(self, trainer: Any) -> None:
        if self._driver.is_over:
            trainer.should_stop = True


def _loader_batch_size(loader: Any) -> int | None:
    """Return the batch size of a DataLoader; None where it has none of one value, or there are several loaders."""
    size = getattr(loader, "batch_size", None) or getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    return size if isinstance(size, int) and not isinstance(size, bool) else None


def _steps(count: float) -> int | None:
    """Return the batches of an epoch; None where Lightning says infinity, which stands for unknown."""
    return int(count) if 0 < count < float("inf") else None
