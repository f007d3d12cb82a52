"""Real processes under the supervisor: how each way to end comes out."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from zeus_kfp.components.train_with_profiling.supervisor import supervise
from zeus_kfp.zeus_core.errors import EntryPointError, InvalidValueError
from zeus_kfp.zeus_core.profile import Phase, read_profiles
from zeus_kfp.zeus_core.trial import Purpose, TrialPlan, TrialState

PLAN = TrialPlan(
    job_id="digits",
    run_id="run/1",
    slot=1,
    number=7,
    batch_size=64,
    purpose=Purpose.EXPLORATION,
    why="the walk's next step",
    learning_rate_factor=1.5,
    target_metric=0.9,
    higher_is_better=True,
    max_epochs=5,
    eta_knob=0.5,
    max_power_w=0.0,
    cost_threshold=None,
    max_trial_time_s=100.0,
)
REACHING = """
def train(trial):
    for epoch in trial.epochs():
        for _ in trial.train([[0.0]] * 5):
            sum(range(20_000))
        trial.report_metric((epoch + 1) / 2)
    with open(trial.model_path, "w") as file:
        file.write(f"model of {trial.batch_size}")
"""


@dataclasses.dataclass
class Trained:
    outcome: object
    folder: Path

    @property
    def history(self):
        return [json.loads(line) for line in (self.folder / "history.jsonl").read_text().splitlines()]

    @property
    def profiles(self):
        return read_profiles(self.folder / "profile.json")


@pytest.fixture
def train(tmp_path):
    """Write a module `user` and supervise a trial in it."""

    def run(code="", entry_point="user:train", plan=PLAN, environ=None, **arguments):
        (tmp_path / "user.py").write_text(textwrap.dedent(code))
        (tmp_path / "out").mkdir(exist_ok=True)
        usual = {
            "arguments": {},
            "data_path": "",
            "model_path": str(tmp_path / "out" / "model"),
            "model_uri": "s3://bucket/model",
            "history_path": str(tmp_path / "out" / "history.jsonl"),
            "profile_path": str(tmp_path / "out" / "profile.json"),
            "environ": os.environ | {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"} | (environ or {}),
            "grace_s": 0.5,
        }
        return Trained(supervise(plan, entry_point=entry_point, **usual | arguments), tmp_path / "out")

    return run


def plan_with(**knobs):
    return dataclasses.replace(PLAN, **knobs)


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


def test_people_read_what_happens(train, capsys):
    train(
        REACHING.replace("trial.report", "print('hello', flush=True); trial.report"), plan=plan_with(cost_threshold=1e6)
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("trial 7 (try 1): batch size 64: the walk's next step; target >= 0.9 within 5 epochs")
    assert "stops early before a cost of 1e+06 J; energy estimated" in lines[0]
    assert lines.count("hello") == 2
    assert [line.split(",")[0] for line in lines if line.startswith("epoch")] == [
        "epoch 1/5: metric 0.5 (target 0.9)",
        "epoch 2/5: metric 1 (target 0.9)",
    ]
    assert lines[-1] == "trial 7: reached: target reached"


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
        "zeus_kfp.zeus_core.errors.InvalidValueError: epoch 0 ended without a metric",
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


def test_a_failure_shows_the_last_lines_and_fits_into_a_parameter(train):
    code = """
    def train(trial):
        for line in range(400):
            print(line, "\\N{SNOWMAN}\\0\\udce4" .encode("utf-8", "surrogateescape") * 30)
            print("\\N{SNOWMAN}" * 200)
        print("a" * 100_000)
        raise ValueError("the end\\0")
    """
    outcome = train(code).outcome
    assert outcome.error.endswith("ValueError: the end")
    assert 1000 < len(outcome.to_json()) <= 8000


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


NEVER_ENDING = """
def train(trial):
    import threading
    for _ in trial.epochs(): trial.report_metric(1.0)
    open(trial.model_path, "w").write("model")
    {hang}
"""


def test_a_trial_that_is_done_and_only_does_not_end_has_reached_its_target(train):
    outcome = train(NEVER_ENDING.format(hang="threading.Event().wait()"), plan=plan_with(max_trial_time_s=3.0)).outcome
    assert (outcome.state, outcome.exit_code, outcome.model_uri) == (TrialState.REACHED, -15, "s3://bucket/model")
    assert outcome.reason == "target reached; its process did not end by itself (time cap: 3 s are over)"


def test_a_thread_left_behind_does_not_hold_the_process_to_its_time_cap(train, capsys):
    hang = "import __main__; __main__.EXIT_GRACE_S = 0.2\n"
    hang += "    threading.Thread(target=threading.Event().wait, name='x').start()"
    outcome = train(NEVER_ENDING.format(hang=hang)).outcome
    assert (outcome.state, outcome.exit_code, outcome.reason) == (TrialState.REACHED, 0, "target reached")
    assert "did not end within 0.2 s: still running are the threads ['x']" in capsys.readouterr().out


def test_nothing_of_the_training_outlives_it(train, tmp_path):
    code = f"""
    def train(trial):
        import subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait()"])
        open({str(tmp_path / "pid")!r}, "w").write(str(child.pid))
        for e in trial.epochs(): trial.report_metric(1.0)
    """
    assert train(code).outcome.state is TrialState.REACHED
    status = Path(f"/proc/{(tmp_path / 'pid').read_text()}/stat")
    assert not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_data_set_that_is_gone_is_found_out_before_training(train, tmp_path):
    trained = train(REACHING, data_path=str(tmp_path / "gone"))
    outcome = trained.outcome
    assert (outcome.state, outcome.data_missing, outcome.exit_code) == (TrialState.FAILED, True, None)
    assert "the preprocessed data set is gone from storage" in outcome.reason
    assert "the next recurrence preprocesses it again" in outcome.reason
    assert (trained.history, trained.profiles) == ([], ())


def test_the_training_code_finds_its_arguments_and_never_the_store(train, tmp_path):
    code = """
    import os
    def train(trial):
        assert trial.arguments == {"depth": 3, "name": "\u00e4"}, trial.arguments
        assert open(trial.data_path).read() == "digits"
        assert "ZEUS_KFP_STORE_URL" not in os.environ
        assert os.path.isdir(trial.checkpoint_dir)
        for e in trial.epochs(): trial.report_metric(1.0)
    """
    (tmp_path / "data").write_text("digits")
    trained = train(
        code,
        arguments={"depth": 3, "name": "ä"},
        data_path=str(tmp_path / "data"),
        environ={"ZEUS_KFP_STORE_URL": "postgresql://secret"},
    )
    assert (trained.outcome.state, trained.outcome.error) == (TrialState.REACHED, "")


def test_a_script_with_arguments(train, tmp_path):
    (tmp_path / "my script.py").write_text(
        "import sys\n"
        "from zeus_kfp.zeus_core.training import Trial\n"
        "trial = Trial.from_environment()\n"
        "for epoch in trial.epochs():\n"
        "    trial.report_metric(float(sys.argv[2]))\n"
    )
    outcome = train(entry_point=f"'{tmp_path}/my script.py' --accuracy 0.95").outcome
    assert (outcome.state, outcome.metric) == (TrialState.REACHED, 0.95)


def test_a_command_that_knows_nothing_of_the_library(train):
    command = (
        'echo "batch $ZEUS_KFP_BATCH_SIZE lr $ZEUS_KFP_LEARNING_RATE_FACTOR target $ZEUS_KFP_TARGET_METRIC"; '
        'echo "{\\"epoch\\": 1, \\"metric\\": 0.5}" >> "$ZEUS_KFP_HISTORY_FILE"; '
        'echo garbage >> "$ZEUS_KFP_HISTORY_FILE"; '
        'printf "{\\"epoch\\": 2, \\"metric\\": 0.9}" >> "$ZEUS_KFP_HISTORY_FILE"; '
        'echo weights > "$ZEUS_KFP_MODEL_PATH"'
    )
    trained = train(entry_point=f"sh -c '{command}'")
    outcome = trained.outcome
    assert (outcome.state, outcome.epochs, outcome.metric) == (TrialState.REACHED, 2, 0.9)
    assert outcome.model_uri == "s3://bucket/model"
    assert outcome.energy_j > 0
    assert [row["epoch"] for row in trained.history] == [1, 2]


def test_a_command_that_stays_below_the_target(train, capsys):
    line = 'echo "{\\"epoch\\": $e, \\"metric\\": 0.5}" >> "$ZEUS_KFP_HISTORY_FILE"'
    command = f'for e in 1 2; do {line}; done; echo "[1" >> "$ZEUS_KFP_HISTORY_FILE"'
    outcome = train(entry_point=f"sh -c '{command}'").outcome
    assert (outcome.state, outcome.reason) == (TrialState.NOT_REACHED, "training ended after 2 epochs")
    assert "warning: a line of the history is left out" in capsys.readouterr().out


ENDLESS = 'while :; do echo "{\\"epoch\\": 1, \\"metric\\": %s}" >> "$ZEUS_KFP_HISTORY_FILE"; sleep 0.1; done'


@pytest.mark.parametrize(
    ("metric", "knobs", "reason"),
    [
        ("0.5", {"cost_threshold": 1e-6}, "early stop: "),
        ("0.5", {"max_epochs": 2}, "max_epochs: "),
        ("0.95", {"cost_threshold": 1e-6, "max_epochs": 2, "max_trial_time_s": 1.0}, "time cap: "),
    ],
)
def test_a_command_that_keeps_to_no_limit_is_ended(train, metric, knobs, reason):
    outcome = train(entry_point=f"sh -c '{ENDLESS % metric}'", plan=plan_with(**knobs)).outcome
    assert (outcome.state, outcome.exit_code) == (TrialState.NOT_REACHED, -15)
    assert outcome.reason.startswith(reason)
    assert outcome.energy_j > 0


def test_output_that_nobody_reads_does_not_hold_up_training(train, monkeypatch):
    class Closed:
        encoding = "ascii"

        def write(self, text):
            raise BrokenPipeError

        def flush(self):
            pass

    monkeypatch.setattr(sys, "stdout", Closed())
    code = (
        "def train(trial):\n    for i in range(20_000): print('\u00e4' * 20)\n"
        + "    for e in trial.epochs(): trial.report_metric(1)"
    )
    assert train(code).outcome.state is TrialState.REACHED


def test_a_plain_function_is_run_from_its_source(train):
    source = (
        "from __future__ import annotations\n\ndef fit(trial):\n    for e in trial.epochs(): trial.report_metric(1)\n"
    )
    outcome = train(entry_point="fit", entry_source=source).outcome
    assert outcome.state is TrialState.REACHED


def test_a_failure_in_shipped_source_shows_its_line(train):
    outcome = train(entry_point="fit", entry_source="def fit(trial):\n    oops = undefined_name\n").outcome
    assert "oops = undefined_name" in outcome.error


UNKNOWN = {
    "empty": ("  ", "", "the entry point is empty"),
    "module": ("no_such_module:train", "", "'no_such_module' is no module that can be imported"),
    "submodule": ("user.part:train", "", "'user.part' is no module that can be imported"),
    "function": ("user:fit", "", "'user:fit': user has no 'fit'; its functions are ['needs_two', 'train', 'wait']"),
    "not callable": ("user:NUMBER", "", "'user:NUMBER' is no function but a int"),
    "arguments": ("user:needs_two", "", "must take one argument, the trial"),
    "coroutine": ("user:wait", "", "is a coroutine or generator, which would not run"),
    "script": ("no_such.py --depth 3", "", "there is no script 'no_such.py'"),
    "command": ("no_such_program train", "", "there is no program 'no_such_program' on PATH"),
    "bare name": ("train", "", "there is no program 'train' on PATH"),
    "quotes": ("sh -c 'echo", "", "can't be split into words"),
    "source": ("fit", "def train(trial): pass", "doesn't define it; it defines ['train']"),
    "syntax": ("fit", "def fit(trial) pass", "is no Python"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_entry_point_that_cannot_be_run_is_an_error_that_leaves_nothing(train, tmp_path, name):
    entry_point, source, message = UNKNOWN[name]
    code = "NUMBER = 3\ndef train(trial): pass\ndef _no(): pass\nneeds_two = lambda trial, model: None\n"
    code += "async def wait(trial): pass"
    with pytest.raises(EntryPointError) as raised:
        train(code, entry_point=entry_point, entry_source=source)
    assert message in str(raised.value)
    assert list((tmp_path / "out").iterdir()) == []


def test_arguments_that_json_cannot_hold_leave_nothing(train, tmp_path):
    with pytest.raises(InvalidValueError, match="arguments must be what JSON can hold"):
        train(REACHING, arguments={"a": {1, 2}})
    assert list((tmp_path / "out").iterdir()) == []


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


def test_a_lot_of_output_is_passed_on_whole(train, capsys):
    train("def train(trial):\n    for i in range(20_000): print('line', i)\n    raise SystemExit(1)")
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("line ")] == [f"line {i}" for i in range(20_000)]


SUPERVISOR = """
import signal, sys
# Whoever runs the tests in the background may have these ignored, and what is ignored stays so in a child.
signal.signal(signal.SIGTERM, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
from zeus_kfp.components.train_with_profiling.supervisor import supervise
from zeus_kfp.zeus_core.trial import TrialPlan
out = sys.argv[2]
supervise(
    TrialPlan.from_json(sys.argv[1]), entry_point="user:train", arguments={}, data_path="", model_uri="",
    model_path=out + "/model", history_path=out + "/history.jsonl", profile_path=out + "/profile.json")
"""
ANNOUNCED = """
def train(trial):
    import os, threading
    print("pid", os.getpid(), flush=True)
    threading.Event().wait()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_supervisor_that_is_ended_takes_the_training_with_it(tmp_path, number):
    (tmp_path / "user.py").write_text(ANNOUNCED)
    arguments = [sys.executable, "-c", SUPERVISOR, PLAN.to_json(), str(tmp_path)]
    environ = os.environ | {"PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(arguments, env=environ, stdout=subprocess.PIPE, text=True) as supervisor:
        line = next(line for line in supervisor.stdout if line.startswith("pid"))
        supervisor.send_signal(number)
        supervisor.communicate(timeout=20)
    assert supervisor.returncode == -number
    with pytest.raises(ProcessLookupError):
        os.kill(int(line.split()[1]), 0)


def test_outside_the_main_thread_it_runs_as_well(train):
    outcomes = []
    thread = threading.Thread(target=lambda: outcomes.append(train(REACHING).outcome))
    thread.start()
    thread.join()
    assert outcomes[0].state is TrialState.REACHED


def test_handlers_of_signals_are_put_back(train):
    before = signal.getsignal(signal.SIGTERM)
    train(REACHING)
    assert signal.getsignal(signal.SIGTERM) is before


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
