"""Real processes under the supervisor: how each way to end comes out."""

import pytest

from tests.components.supervised import REACHING, plan_with
from zeus_kfp.zeus_core.profile import Phase
from zeus_kfp.zeus_core.trial import TrialState


def test_a_function_that_reaches_the_target(train, capfd):
    trained = train(REACHING)
    outcome = trained.outcome
    assert (outcome.state, outcome.reason, outcome.epochs, outcome.metric) == (
        TrialState.REACHED,
        "target reached",
        2,
        1.0,
    )
    assert (outcome.model_uri, outcome.exit_code, outcome.attempts) == ("s3://bucket/model", 0, 1)
    assert (outcome.energy_source, outcome.energy_estimated) == ("estimate", True)
    assert outcome.max_power_w > 0
    assert [row["metric"] for row in trained.history] == [0.5, 1.0]
    assert outcome.energy_j == pytest.approx(sum(row["energy_j"] for row in trained.history))
    assert outcome.time_s == pytest.approx(sum(row["time_s"] for row in trained.history))
    assert [(row.phase, row.batch_size) for row in trained.profiles] == [(Phase.TRAIN, 64)]
    assert (trained.folder / "model").read_text() == "model of 64"


NOT_REACHED = {
    "max_epochs": ("for e in trial.epochs(): trial.report_metric(0.1)", {}, "max_epochs", 5),
    "early stop": (
        "for e in trial.epochs(): sum(range(300_000)); trial.report_metric(0.1)",
        {"cost_threshold": 1e-6},
        "early stop: ",
        1,
    ),
    "diverged": (
        "for e in trial.epochs(): trial.report_metric(0.1 if e == 0 else float('nan'))",
        {},
        "diverged: the metric is nan",
        1,
    ),
    "left": (
        "for e in trial.epochs(): trial.report_metric(0.1); break",
        {},
        "the training loop was left in epoch 1",
        1,
    ),
}


@pytest.mark.parametrize("name", NOT_REACHED)
def test_a_trial_that_does_not_reach_the_target_says_why(train, name):
    code, knobs, reason, epochs = NOT_REACHED[name]
    outcome = train(f"def train(trial):\n    {code}", plan=plan_with(**knobs)).outcome
    assert outcome.state is TrialState.NOT_REACHED
    assert outcome.reason.startswith(reason)
    assert (outcome.epochs, outcome.metric, outcome.model_uri, outcome.exit_code) == (epochs, 0.1, "", 0)
    assert outcome.energy_j > 0


CUDA = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.1 GiB"

OUT_OF_MEMORY = {
    "text": (f"raise RuntimeError({CUDA!r})", 1, f"out of memory: RuntimeError: {CUDA}"),
    "python": ("raise MemoryError", 1, "out of memory: MemoryError"),
    "exit code 137": ("import os; os._exit(137)", 137, "killed with SIGKILL (exit code 137)"),
    "SIGKILL": ("import os; os.kill(os.getpid(), 9)", -9, "killed with SIGKILL (exit code -9)"),
    "in the evaluation": (
        f"for e in trial.epochs():\n        for b in trial.eval([1]): raise RuntimeError({CUDA!r})",
        1,
        "out of memory: ",
    ),
}


@pytest.mark.parametrize("name", OUT_OF_MEMORY)
def test_a_lack_of_memory_is_told_from_a_failure(train, name):
    code, exit_code, reason = OUT_OF_MEMORY[name]
    outcome = train(f"def train(trial):\n    {code}").outcome
    assert (outcome.state, outcome.exit_code) == (TrialState.OOM, exit_code)
    assert outcome.reason.startswith(reason)
    assert outcome.time_s > 0


FAILURES = {
    "exception": ("raise KeyError('label')", 1, "KeyError: 'label' (exit code 1)"),
    "exit": ("print('no data left'); raise SystemExit(3)", 3, "no data left (exit code 3)"),
    "signal": ("import os; os.kill(os.getpid(), 11)", -11, "killed with SIGSEGV"),
    "no epochs": ("pass", 0, "the training code ended without reporting any metric"),
    "caught": (
        "try:\n        raise MemoryError\n    except MemoryError: pass",
        0,
        "the training code ended without reporting any metric",
    ),
    "no metric in an epoch": (
        "for e in trial.epochs(): pass",
        1,
        "zeus_kfp.zeus_core.errors.InvalidValueError: epoch 1 ended without a metric",
    ),
    "missing import": ("import no_such_library", 1, "ModuleNotFoundError: No module named 'no_such_library'"),
    "crash while saving": (
        "for e in trial.epochs(): trial.report_metric(1.0)\n    raise OSError('disk is full')",
        1,
        "OSError: disk is full (exit code 1)",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_of_the_training_code_is_data(train, name):
    code, exit_code, reason = FAILURES[name]
    outcome = train(f"def train(trial):\n    {code}").outcome
    assert (outcome.state, outcome.exit_code) == (TrialState.FAILED, exit_code)
    assert outcome.reason.startswith(reason)


def test_a_trial_that_reaches_the_target_but_saves_nothing_says_so(train):
    outcome = train("def train(trial):\n    for e in trial.epochs(): trial.report_metric(1)").outcome
    assert (outcome.state, outcome.model_uri) == (TrialState.REACHED, "")
    assert outcome.reason.startswith("target reached; no model was saved: use trial.save_model(model)")


BLOCKED = "def train(trial):\n    import threading\n    threading.Event().wait()"

DEAF = """
def train(trial):
    import signal, threading
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for e in trial.epochs():
        if e == 1:
            threading.Event().wait()
        trial.report_metric(0.5)
"""


@pytest.mark.parametrize(("code", "exit_code"), [(BLOCKED, -15), (DEAF, -9)])
def test_the_time_cap_ends_a_trial_that_hangs(train, code, exit_code):
    outcome = train(code, plan=plan_with(max_trial_time_s=1.0)).outcome
    assert (outcome.state, outcome.exit_code) == (TrialState.NOT_REACHED, exit_code)
    assert outcome.reason == "time cap: 1 s are over"
    assert 1.0 <= outcome.time_s < 10
    assert outcome.energy_j > 0


def test_a_data_set_that_is_gone_is_found_out_before_training(train, tmp_path):
    trained = train(REACHING, data_path=str(tmp_path / "gone"))
    outcome = trained.outcome
    assert (outcome.state, outcome.data_missing, outcome.exit_code) == (TrialState.FAILED, True, None)
    assert "the preprocessed data set is gone from storage" in outcome.reason
    assert "the next recurrence preprocesses it again" in outcome.reason
    assert (trained.history, trained.profiles) == ([], ())


@pytest.mark.parametrize(
    "content", ["", "[]", '{"ending": "ended"}', '{"ending": "ended", "profiles": [{"batch_size": 0}]}']
)
def test_a_summary_that_is_garbage_is_not_trusted(train, capsys, content):
    code = f"""
    from zeus_kfp.zeus_core.training.assignment import read_assignment
    def train(trial):
        for e in trial.epochs(): trial.report_metric(0.95)
        trial.close()
        open(read_assignment().summary_path, "w").write({content!r})
    """
    outcome = train(code).outcome
    assert (outcome.state, outcome.metric, outcome.epochs) == (TrialState.REACHED, 0.95, 1)
    assert outcome.energy_j > 0


def test_a_process_cannot_have_trained_for_longer_than_it_lived(train):
    code = """
    import dataclasses
    from zeus_kfp.zeus_core.training.assignment import read_assignment
    from zeus_kfp.zeus_core.training.summary import Summary
    def train(trial):
        for e in trial.epochs(): trial.report_metric(0.95)
        trial.close()
        path = read_assignment().summary_path
        dataclasses.replace(Summary.read(path), time_s=5000.0).write(path)
    """
    assert train(code).outcome.time_s < 60


DIGITS = """
def train(trial):
    import torch
    from sklearn.datasets import load_digits
    from torch.utils.data import DataLoader, TensorDataset
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x, dtype=torch.float32) / 16, torch.tensor(y)
    loader = DataLoader(TensorDataset(x[:1400], y[:1400]), batch_size=trial.batch_size, shuffle=True)
    test = DataLoader(TensorDataset(x[1400:], y[1400:]), batch_size=256)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002 * trial.learning_rate_factor)
    for epoch in trial.epochs():
        for images, labels in trial.train(loader):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
        with torch.no_grad():
            right = sum((model(images).argmax(1) == labels).sum() for images, labels in trial.eval(test))
        trial.report_metric(right / 397)
    trial.save_model(model)
"""


def test_a_real_model_is_trained_to_its_target(train):
    torch = pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    trained = train(DIGITS, plan=plan_with(max_epochs=40, target_metric=0.88), environ={"PYTHONDONTWRITEBYTECODE": ""})
    outcome = trained.outcome
    assert (outcome.state, outcome.error) == (TrialState.REACHED, "")
    assert 1 < outcome.epochs < 40
    assert outcome.metric >= 0.88 > trained.history[-2]["metric"]
    by_phase = {row.phase: row for row in trained.profiles}
    assert by_phase[Phase.EVAL].throughput_samples_per_s > 0 < by_phase[Phase.TRAIN].average_power_w
    samples = by_phase[Phase.TRAIN].throughput_samples_per_s * outcome.time_s
    assert samples > 1400 * outcome.epochs
    assert set(torch.load(trained.folder / "model")) == {"0.weight", "0.bias", "2.weight", "2.bias"}
