"""The real Trainer of transformers, on a tiny model with random weights."""

import json

import pytest
import torch
import transformers

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.meters import open_meter
from zeus_kfp.zeus_core.power import open_limiter
from zeus_kfp.zeus_core.profile import Phase
from zeus_kfp.zeus_core.training import Trial
from zeus_kfp.zeus_core.training.huggingface import ZeusCallback, with_batch_size
from zeus_kfp.zeus_core.training.local import local_assignment
from zeus_kfp.zeus_core.training.summary import Ending, Summary

WORDS = 16


@pytest.fixture(autouse=True)
def one_thread():
    """A model this small gains nothing from several threads, which only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def sentences(count):
    """Sentences whose label is whether word 3 is among them."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(4, WORDS, (count, 6), generator=generator)
    ids[::2, 0] = 3
    return [{"input_ids": row, "labels": torch.tensor(int(row[0] == 3))} for row in ids]


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


@pytest.fixture
def trainer(tmp_path):
    def make(trial, metric="eval_accuracy", samples=256, callbacks=(), prepare=lambda args: args, **arguments):
        transformers.set_seed(0)
        config = transformers.BertConfig(
            vocab_size=WORDS, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
        )
        usual = {
            "output_dir": str(tmp_path / "hf"),
            "per_device_train_batch_size": trial.local_batch_size,
            "num_train_epochs": trial.plan.max_epochs,
            "eval_strategy": "epoch",
            "save_strategy": "no",
            "report_to": [],
            "use_cpu": True,
            "disable_tqdm": True,
            "learning_rate": 5e-3,
        }
        return transformers.Trainer(
            model=transformers.BertForSequenceClassification(config),
            args=prepare(transformers.TrainingArguments(**usual | arguments)),
            train_dataset=sentences(samples),
            eval_dataset=sentences(32),
            compute_metrics=accuracy,
            callbacks=[ZeusCallback(trial, metric), *callbacks],
        )

    return make


def history(folder):
    return [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]


def test_training_ends_when_the_target_is_reached(trainer, tmp_path):
    trial = Trial.local(batch_size=32, target_metric=0.95, max_epochs=30, directory=tmp_path)
    made = trainer(trial)
    made.train()
    told = Summary.read(tmp_path / "summary.json")
    assert (told.ending, told.reason) == (Ending.ENDED, "target reached")
    assert told.metric >= 0.95
    assert 1 <= told.epochs < 30
    assert made.state.epoch == told.epochs == len(history(tmp_path))
    assert {row.phase for row in told.profiles} == {"train", "eval"}


@pytest.mark.parametrize(("max_epochs", "threshold", "reason"), [(2, None, "max_epochs"), (9, 1e-9, "early stop: ")])
def test_training_ends_when_the_trial_does(trainer, tmp_path, max_epochs, threshold, reason):
    trial = Trial.local(
        batch_size=32, target_metric=2.0, max_epochs=max_epochs, cost_threshold=threshold, directory=tmp_path
    )
    made = trainer(trial)
    made.train()
    told = Summary.read(tmp_path / "summary.json")
    assert told.reason.startswith(reason)
    assert made.state.global_step == told.epochs * 8


def test_a_trainer_that_goes_on_from_a_checkpoint_trains_the_epochs_that_are_left(trainer, tmp_path):
    for max_epochs, epochs, resume in ((2, [1, 2], None), (5, [3, 4, 5], True)):
        folder = tmp_path / str(max_epochs)
        trial = Trial.local(batch_size=32, target_metric=2.0, max_epochs=max_epochs, directory=folder)
        trainer(trial, num_train_epochs=5, save_strategy="epoch").train(resume_from_checkpoint=resume)
        assert [line["epoch"] for line in history(folder)] == epochs


def test_steps_of_several_batches_count_all_their_samples(trainer, tmp_path):
    trial = Trial.local(batch_size=16, target_metric=2.0, max_epochs=1, directory=tmp_path)
    trainer(trial, per_device_train_batch_size=8, gradient_accumulation_steps=2).train()
    assert trial._logbook.phases.samples(Phase.TRAIN) == 256
    assert trial._logbook.phases.samples(Phase.EVAL) == 32


def with_gpus(count):
    """Let the Trainer believe in several GPUs in its process, which it then wraps in DataParallel."""

    def prepare(args):
        assert args.n_gpu == 0
        args._n_gpu = count
        return args

    return prepare


class Sizes(transformers.TrainerCallback):
    """Notes the samples of each batch that the model sees in training."""

    def __init__(self):
        self.seen = []

    def on_train_begin(self, args, state, control, model=None, **_):
        model.register_forward_pre_hook(lambda module, args, kwargs: self.note(module, kwargs), with_kwargs=True)

    def note(self, module, inputs):
        self.seen += [len(inputs["input_ids"])] if module.training else []


@pytest.mark.parametrize(
    ("gpus", "accumulation", "per_device"), [(0, 1, 32), (2, 1, 16), (4, 1, 8), (2, 4, 4), (0, 2, 16), (8, 4, 1)]
)
def test_the_suggested_batch_size_is_the_effective_one(trainer, tmp_path, gpus, accumulation, per_device):
    trial = Trial.local(batch_size=32, target_metric=2.0, max_epochs=1, directory=tmp_path)
    sizes = Sizes()
    made = trainer(
        trial,
        callbacks=[sizes],
        prepare=lambda args: with_batch_size(with_gpus(gpus)(args), trial),
        gradient_accumulation_steps=accumulation,
    )
    made.train()
    assert made.args.per_device_train_batch_size == per_device
    assert set(sizes.seen) == {32 // accumulation}
    assert made.state.global_step == 256 // 32
    assert trial._logbook.phases.samples(Phase.TRAIN) == 256


@pytest.mark.parametrize(
    ("gpus", "arguments", "effective"),
    [
        (2, {}, 64),
        (0, {"gradient_accumulation_steps": 2}, 64),
        (0, {"per_device_train_batch_size": 16}, 16),
        (2, {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 4}, 64),
    ],
)
def test_another_effective_batch_size_is_refused_by_name(trainer, tmp_path, gpus, arguments, effective):
    trial = Trial.local(batch_size=32, target_metric=2.0, max_epochs=1, directory=tmp_path)
    with pytest.raises(InvalidValueError) as raised:
        trainer(trial, prepare=with_gpus(gpus), **arguments).train()
    for part in (
        f"per_device_train_batch_size={arguments.get('per_device_train_batch_size', 32)}",
        f"gradient_accumulation_steps={arguments.get('gradient_accumulation_steps', 1)}",
        f"n_gpu)={gpus}",
        f"make {effective} samples",
        "the trial's batch size is 32",
        "with_batch_size(args, trial)",
    ):
        assert part in str(raised.value)


def test_a_batch_that_cannot_be_divided_is_refused_by_name(trainer, tmp_path):
    trial = Trial.local(batch_size=6, target_metric=2.0, max_epochs=1, directory=tmp_path)
    with pytest.raises(
        InvalidValueError, match=r"a batch of 6 samples can't be divided into 4 equal parts .*n_gpu\)=2"
    ):
        trainer(trial, prepare=lambda args: with_batch_size(with_gpus(2)(args), trial), gradient_accumulation_steps=2)


@pytest.mark.parametrize("prepare", [with_batch_size, lambda args, trial: args])
def test_a_trainer_that_would_choose_its_own_batch_size_is_refused(trainer, tmp_path, prepare):
    trial = Trial.local(batch_size=32, target_metric=2.0, max_epochs=1, directory=tmp_path)
    with pytest.raises(InvalidValueError, match="auto_find_batch_size=True lets the Trainer go on with a smaller"):
        trainer(trial, prepare=lambda args: prepare(args, trial), auto_find_batch_size=True).train()


def test_an_evaluation_in_the_middle_of_an_epoch_is_no_end_of_it(trainer, tmp_path):
    trial = Trial.local(batch_size=32, target_metric=2.0, max_epochs=2, directory=tmp_path)
    trainer(trial, eval_strategy="steps", eval_steps=3).train()
    assert [row["epoch"] for row in history(tmp_path)] == [1, 2]
    assert Summary.read(tmp_path / "summary.json").reason == "max_epochs"


def test_a_trainer_that_ends_first_ends_the_trial(trainer, tmp_path):
    trial = Trial.local(batch_size=32, target_metric=2.0, max_epochs=50, directory=tmp_path)
    trainer(trial, num_train_epochs=2).train()
    told = Summary.read(tmp_path / "summary.json")
    assert (told.ending, told.epochs) == (Ending.ENDED, 2)


def test_a_metric_that_is_not_there_is_named(trainer, tmp_path):
    trial = Trial.local(batch_size=32, target_metric=2.0, directory=tmp_path)
    with pytest.raises(InvalidValueError, match=r"no metric 'eval_f1'; those of this epoch are .*'eval_accuracy'"):
        trainer(trial, metric="eval_f1").train()


def test_a_trainer_that_never_evaluates_is_told_so(trainer, tmp_path):
    trial = Trial.local(batch_size=32, target_metric=2.0, directory=tmp_path)
    with pytest.raises(InvalidValueError, match='TrainingArguments needs eval_strategy="epoch"'):
        trainer(trial, eval_strategy="no").train()


def test_an_evaluation_outside_of_training_is_the_users_own(trainer, tmp_path):
    trial = Trial.local(batch_size=32, target_metric=2.0, max_epochs=1, directory=tmp_path)
    made = trainer(trial)
    assert "eval_accuracy" in made.evaluate()
    made.train()
    made.evaluate()
    assert len(history(tmp_path)) == 1


def test_power_limits_are_profiled(trainer, fake_gpus, tmp_path):
    class Gpu(transformers.TrainerCallback):
        limits = []

        def on_step_end(self, args, state, control, **_):
            self.limits.append(fake_gpus.limits_w()[0])
            fake_gpus.work(0.5)

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
        directory=tmp_path,
    )
    trial = Trial(assignment, meter=open_meter(), clock=fake_gpus.clock, limiter=open_limiter())
    gpu = Gpu()
    trainer(trial, callbacks=[gpu], samples=240).train()
    told = Summary.read(tmp_path / "summary.json")
    rows = [row for row in told.profiles if row.phase == "train"]
    assert [row.power_limit_w for row in rows] == [250, 225, 200, 175, 150, 125, 100]
    assert set(gpu.limits[60:]) == {125}
    assert fake_gpus.limits_w() == [250]
