"""The real Trainer of Lightning, on a tiny model with random weights."""

import json
from types import SimpleNamespace

import lightning.pytorch as pl
import pytest
import torch

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.meters import open_meter
from zeus_kfp.zeus_core.power import open_limiter
from zeus_kfp.zeus_core.profile import Phase
from zeus_kfp.zeus_core.training import Trial
from zeus_kfp.zeus_core.training.lightning import ZeusCallback
from zeus_kfp.zeus_core.training.local import local_assignment
from zeus_kfp.zeus_core.training.summary import Ending, Summary


class Model(pl.LightningModule):
    def __init__(self, fail_at=None):
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)
        self.fail_at = fail_at

    def training_step(self, batch, index):
        if self.fail_at is not None and self.global_step == self.fail_at:
            raise RuntimeError("a bug of the user's")
        return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

    def validation_step(self, batch, index):
        self.log("val_accuracy", (self.layer(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.05)


def loader(count, batch_size):
    inputs = torch.randn(count, 8, generator=torch.Generator().manual_seed(1))
    data = torch.utils.data.TensorDataset(inputs, (inputs.sum(1) > 0).long())
    return torch.utils.data.DataLoader(data, batch_size=batch_size)


def fit(trial, tmp_path, metric="val_accuracy", samples=256, callbacks=(), fail_at=None, train=None, **options):
    torch.manual_seed(0)
    usual = {
        "max_epochs": trial.plan.max_epochs,
        "accelerator": "cpu",
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "default_root_dir": str(tmp_path),
    }
    trainer = pl.Trainer(**usual | options, callbacks=[ZeusCallback(trial, metric), *callbacks])
    trainer.fit(Model(fail_at), train or loader(samples, trial.local_batch_size), loader(64, 32))
    return trainer


def history(folder):
    return [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]


def test_training_ends_when_the_target_is_reached(tmp_path):
    trial = Trial.local(batch_size=32, target_metric=0.95, max_epochs=50, directory=tmp_path)
    trainer = fit(trial, tmp_path)
    told = Summary.read(tmp_path / "summary.json")
    assert (told.ending, told.reason) == (Ending.ENDED, "target reached")
    assert told.metric >= 0.95
    assert 1 <= told.epochs < 50
    assert trainer.global_step == told.epochs * 8
    assert len(history(tmp_path)) == told.epochs
    assert {row.phase for row in told.profiles} == {"train", "eval"}
    assert trial._logbook.phases.samples(Phase.TRAIN) == told.epochs * 256
    assert trial._logbook.phases.samples(Phase.EVAL) == told.epochs * 64


@pytest.mark.parametrize(("max_epochs", "threshold", "reason"), [(2, None, "max_epochs"), (9, 1e-9, "early stop: ")])
def test_training_ends_when_the_trial_does(tmp_path, max_epochs, threshold, reason):
    trial = Trial.local(
        batch_size=32, target_metric=2.0, max_epochs=max_epochs, cost_threshold=threshold, directory=tmp_path
    )
    trainer = fit(trial, tmp_path)
    told = Summary.read(tmp_path / "summary.json")
    assert told.reason.startswith(reason)
    assert trainer.global_step == told.epochs * 8


def test_a_trainer_that_ends_first_ends_the_trial(tmp_path):
    trial = Trial.local(batch_size=32, target_metric=2.0, max_epochs=50, directory=tmp_path)
    fit(trial, tmp_path, max_epochs=2)
    told = Summary.read(tmp_path / "summary.json")
    assert (told.ending, told.epochs) == (Ending.ENDED, 2)


def test_a_metric_that_is_not_there_is_named(tmp_path):
    trial = Trial.local(batch_size=32, target_metric=2.0, directory=tmp_path)
    with pytest.raises(InvalidValueError, match="no metric 'val_f1'; those of this epoch are .'val_accuracy'"):
        fit(trial, tmp_path, metric="val_f1")


@pytest.mark.parametrize(("batch_size", "accumulate"), [(32, 1), (16, 2), (8, 4)])
def test_batches_that_make_up_the_suggested_size_are_welcome(tmp_path, batch_size, accumulate):
    trial = Trial.local(batch_size=32, target_metric=2.0, max_epochs=2, directory=tmp_path)
    trainer = fit(trial, tmp_path, train=loader(256, batch_size), accumulate_grad_batches=accumulate)
    assert trainer.global_step == 2 * 256 // 32
    assert trial._logbook.phases.samples(Phase.TRAIN) == 512


@pytest.mark.parametrize(
    ("batch_size", "accumulate", "effective"), [(32, 2, 64), (16, 1, 16), (64, 1, 64), (16, 4, 64)]
)
def test_another_effective_batch_size_is_refused_by_name(tmp_path, batch_size, accumulate, effective):
    trial = Trial.local(batch_size=32, target_metric=2.0, directory=tmp_path)
    message = f"batch_size={batch_size}, accumulate_grad_batches={accumulate}, .* make {effective} samples .* is 32"
    with pytest.raises(InvalidValueError, match=message):
        fit(trial, tmp_path, train=loader(256, batch_size), accumulate_grad_batches=accumulate)


def test_a_schedule_that_changes_the_batch_size_later_is_refused_then(tmp_path):
    trial = Trial.local(batch_size=32, target_metric=2.0, max_epochs=4, directory=tmp_path)
    schedule = pl.callbacks.GradientAccumulationScheduler({0: 1, 2: 2})
    with pytest.raises(InvalidValueError, match="accumulate_grad_batches=2"):
        fit(trial, tmp_path, callbacks=[schedule])
    assert len(history(tmp_path)) == 2


def test_batches_of_the_users_own_making_have_no_one_size(tmp_path):
    trial = Trial.local(batch_size=32, target_metric=2.0, max_epochs=1, directory=tmp_path)

    class Batches:
        def __iter__(self):
            return iter([(torch.randn(count, 8), torch.zeros(count, dtype=torch.long)) for count in (5, 32, 7)])

    fit(trial, tmp_path, train=Batches())
    assert trial._logbook.phases.samples(Phase.TRAIN) == 44


def test_processes_that_lightning_would_start_itself_are_refused(tmp_path):
    trial = Trial.local(batch_size=32, target_metric=2.0, directory=tmp_path)
    trainer = SimpleNamespace(num_devices=2, num_nodes=1, world_size=2)
    with pytest.raises(InvalidValueError, match="devices=2, num_nodes=1 train with 2 processes, .* one of 1: start"):
        ZeusCallback(trial, "val_accuracy").on_train_start(trainer, None)


class Gpu(pl.Callback):
    """Lets every step take its time on the fake GPU."""

    def __init__(self, gpus):
        self.gpus, self.limits = gpus, []

    def on_train_batch_end(self, *_):
        self.limits.append(self.gpus.limits_w()[0])
        self.gpus.work(0.5)


def trial_on(gpus, folder):
    assignment = local_assignment(
        batch_size=4,
        target_metric=2.0,
        higher_is_better=True,
        max_epochs=2,
        learning_rate_factor=1.0,
        eta_knob=1.0,
        cost_threshold=None,
        data_path="",
        arguments={},
        directory=folder,
    )
    return Trial(assignment, meter=open_meter(), clock=gpus.clock, limiter=open_limiter())


def test_power_limits_are_profiled(fake_gpus, tmp_path):
    gpu = Gpu(fake_gpus)
    fit(trial_on(fake_gpus, tmp_path), tmp_path, callbacks=[gpu], samples=240)
    rows = [row for row in Summary.read(tmp_path / "summary.json").profiles if row.phase == "train"]
    assert [row.power_limit_w for row in rows] == [250, 225, 200, 175, 150, 125, 100]
    assert set(gpu.limits[60:]) == {125}
    assert fake_gpus.limits_w() == [250]


def test_training_that_fails_leaves_the_gpu_as_it_was(fake_gpus, tmp_path):
    gpu = Gpu(fake_gpus)
    with pytest.raises(RuntimeError, match="a bug of the user's"):
        fit(trial_on(fake_gpus, tmp_path), tmp_path, callbacks=[gpu], samples=240, fail_at=40)
    assert min(gpu.limits) < 200
    assert fake_gpus.limits_w() == [250]
