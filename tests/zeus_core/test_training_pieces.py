import dataclasses
import json
import subprocess
import sys
from collections import UserDict
from types import SimpleNamespace

import numpy as np
import pytest

from zeus_kfp.zeus_core.errors import DivergedError, InvalidValueError
from zeus_kfp.zeus_core.training import Trial
from zeus_kfp.zeus_core.training.assignment import Assignment, read_assignment
from zeus_kfp.zeus_core.training.history import EpochRecord
from zeus_kfp.zeus_core.training.instrument import Instrument, Reading, Spent, synchronize_gpu
from zeus_kfp.zeus_core.training.local import local_assignment
from zeus_kfp.zeus_core.training.loops import sample_count
from zeus_kfp.zeus_core.training.metric import checked_metric
from zeus_kfp.zeus_core.training.summary import Ending, Summary


class Tensor:
    def __init__(self, *shape):
        self.shape = shape


@pytest.mark.parametrize(
    ("batch", "count"),
    [
        (Tensor(8, 3), 8),
        ((Tensor(5, 3), Tensor(5)), 5),
        ([[Tensor(4)], 1], 4),
        ({"input_ids": Tensor(6, 128), "labels": Tensor(6)}, 6),
        (UserDict(input_ids=Tensor(6, 128)), 6),
        (Tensor(), 32),
        ([1, 2, 3], 32),
        (7, 32),
        ([], 32),
        ({}, 32),
    ],
)
def test_samples_are_counted_where_a_batch_shows_them(batch, count):
    assert sample_count(batch, 32) == count


@pytest.mark.parametrize("value", [1, 0.25, np.float32(0.25), np.array(0.25), np.int64(3)])
def test_numbers_and_scalars_are_metrics(value):
    assert checked_metric(value) == float(value)


@pytest.mark.parametrize("value", ["0.9", b"1", True, np.bool_(True), None, [0.9], {}, np.array([1.0, 2.0]), 1j])
def test_other_things_are_no_metrics(value):
    with pytest.raises(InvalidValueError, match="the metric must be a"):
        checked_metric(value)


def test_a_scalar_of_another_library_that_is_nan_diverged():
    with pytest.raises(DivergedError):
        checked_metric(np.float32("nan"))


@pytest.mark.parametrize(
    ("line", "record"),
    [
        ('{"epoch": 1, "metric": 0.9}', EpochRecord(1, 0.9)),
        ('{"epoch": 2.0, "metric": 1, "energy_j": 3, "loss": "any"}', EpochRecord(2, 1.0, 3.0)),
    ],
)
def test_any_program_may_write_history(line, record):
    assert EpochRecord.from_line(line) == record


@pytest.mark.parametrize(
    "line",
    [
        "",
        "epoch 1",
        "[]",
        "5",
        "null",
        "{}",
        '{"epoch": 1}',
        '{"epoch": -1, "metric": 1}',
        '{"epoch": 1.5, "metric": 1}',
        '{"epoch": 1, "metric": "0.9"}',
        '{"epoch": 1, "metric": NaN}',
        '{"epoch": 1, "metric": 1e999}',
        '{"epoch": 1, "metric": true}',
        '{"epoch": 1, "metric": 1, "time_s": -1}',
        '{"epoch": 1, "metr',
        "[" * 100_000,
    ],
)
def test_a_line_that_is_no_epoch_is_refused(line):
    with pytest.raises(InvalidValueError, match="a line of the history must be like"):
        EpochRecord.from_line(line)


def test_the_gpu_is_waited_for_before_a_reading():
    calls = []

    class Meter:
        def energy_j(self):
            calls.append("meter")
            return 1.0

    Instrument(Meter(), lambda: calls.append("clock") or 2.0, lambda: calls.append("synchronize")).read()
    assert calls[0] == "synchronize"


def fake_torch(waited, *, used=(), is_initialized=True, tells=True):
    cuda = SimpleNamespace(
        is_initialized=lambda: is_initialized,
        device_count=lambda: 4,
        current_device=lambda: 2,
        synchronize=waited.append,
    )
    private = SimpleNamespace(_cuda_hasPrimaryContext=lambda index: index in used) if tells else SimpleNamespace()
    return SimpleNamespace(cuda=cuda, _C=private)


@pytest.mark.parametrize(
    ("told", "waited_for"),
    [
        ({"used": (0, 1, 3)}, [0, 1, 3]),
        ({"used": (3,)}, [3]),
        ({"used": ()}, []),
        ({"used": (0, 1), "is_initialized": False}, []),
        ({"tells": False}, [2]),
    ],
)
def test_every_gpu_that_pytorch_uses_is_waited_for_and_no_other(monkeypatch, told, waited_for):
    waited = []
    monkeypatch.setitem(sys.modules, "torch", fake_torch(waited, **told))
    synchronize_gpu()
    assert waited == waited_for


def test_the_training_side_imports_nothing_heavy():
    heavy = "torch numpy pynvml kfp sqlalchemy sqlmodel matplotlib transformers lightning urllib.request".split()
    code = f"import sys, zeus_kfp.zeus_core.training; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("first_j", "second_j", "spent"),
    [
        (1.0, 4.0, Spent(3.0, 2.0)),
        (None, 4.0, Spent(None, 2.0)),
        (1.0, None, Spent(None, 2.0)),
        (4.0, 1.0, Spent(None, 2.0)),
    ],
)
def test_energy_that_is_not_known_is_none_and_not_zero(first_j, second_j, spent):
    assert Reading(first_j, 10.0).until(Reading(second_j, 12.0)) == spent


def test_unknown_plus_known_is_unknown():
    assert Spent(None, 1.0) + Spent(5.0, 2.0) == Spent(None, 3.0)


@pytest.fixture
def assignment(tmp_path):
    return local_assignment(
        batch_size=8,
        target_metric=1.0,
        higher_is_better=True,
        max_epochs=2,
        learning_rate_factor=1.0,
        eta_knob=0.5,
        cost_threshold=None,
        data_path="",
        arguments={"name": "ä", "sizes": [1, 2]},
        directory=tmp_path,
    )


def test_an_assignment_survives_its_file(assignment, tmp_path):
    path = tmp_path / "trial.json"
    path.write_text(assignment.to_json(), encoding="utf-8")
    assert read_assignment({"ZEUS_KFP_TRIAL": str(path)}) == assignment


def test_a_process_that_is_no_trial_is_told_what_to_do():
    with pytest.raises(InvalidValueError, match=r"ZEUS_KFP_TRIAL is not set.*Trial\.local\(batch_size="):
        Trial.from_environment({})


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"plan": 3}', None])
def test_a_broken_assignment_is_named(tmp_path, content):
    path = tmp_path / "trial.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InvalidValueError, match=r"is no assignment of a trial|can't be read"):
        read_assignment({"ZEUS_KFP_TRIAL": str(path)})


def test_arguments_that_json_cannot_hold_are_refused(assignment):
    with pytest.raises(InvalidValueError, match="arguments must be what JSON can hold"):
        dataclasses.replace(assignment, arguments={"model": object()}).to_json()


def test_a_summary_survives_its_file(tmp_path):
    summary = Summary(Ending.ENDED, "max_epochs", 3, 0.5, 12.0, 3.0, "estimate", True, "CPU", 2, 20.0)
    summary.write(tmp_path / "summary.json")
    assert Summary.read(tmp_path / "summary.json") == summary
    assert Summary.read(tmp_path / "absent.json") is None
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]


@pytest.mark.parametrize(
    "change",
    [{"ending": "won"}, {"energy_j": -1}, {"metric": "1"}, {"time_s": float("nan")}, {"profiles": [{}]}, {"more": 1}],
)
def test_a_summary_that_lies_about_its_shape_is_refused(tmp_path, change):
    path = tmp_path / "summary.json"
    Summary(Ending.ENDED).write(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InvalidValueError, match="holds no summary"):
        Summary.read(path)


def test_a_training_loop_runs_on_a_laptop_without_any_pipeline(tmp_path, capsys):
    trial = Trial.local(batch_size=16, target_metric=0.75, max_epochs=9, directory=tmp_path)
    for epoch in trial.epochs():
        sum(range(100_000))
        trial.report_metric(epoch / 4)
    assert trial.reached
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[3].startswith("epoch 4/9: metric 0.75 (target 0.75), ")
    assert "estimated" in lines[3]


@pytest.mark.parametrize("knob", [{"batch_size": 0}, {"eta_knob": 2}, {"max_epochs": 1.5}, {"target_metric": "high"}])
def test_a_local_trial_checks_its_knobs(knob):
    with pytest.raises(InvalidValueError, match=next(iter(knob))):
        Trial.local(**{"batch_size": 8, "target_metric": 1.0} | knob)


def test_importing_the_training_side_brings_no_heavy_library():
    heavy = ("torch", "numpy", "kfp", "pynvml")
    code = f"import sys, zeus_kfp.zeus_core.training\nprint(*[name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_weights_are_saved_and_nothing_else(tmp_path):
    torch = pytest.importorskip("torch")
    trial = Trial.local(batch_size=8, target_metric=1.0, directory=tmp_path)
    trial.save_model(torch.nn.Linear(2, 3))
    assert torch.load(trial.model_path)["weight"].shape == (3, 2)
    with pytest.raises(InvalidValueError, match="save_model takes a PyTorch module, not dict"):
        trial.save_model({})


def test_an_assignment_of_another_shape_is_refused(assignment):
    document = json.loads(assignment.to_json())
    with pytest.raises(InvalidValueError, match="is no assignment"):
        Assignment.from_json(json.dumps(document | {"surprise": 1}))
