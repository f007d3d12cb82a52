"""What the supervisor can run, with which arguments: functions, their source, scripts and commands."""

import pytest

from tests.components.supervised import REACHING, plan_with
from zeus_kfp.zeus_core.errors import EntryPointError, InvalidValueError
from zeus_kfp.zeus_core.trial import TrialState


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


def test_arguments_that_json_cannot_hold_leave_nothing(train, tmp_path):
    with pytest.raises(InvalidValueError, match="arguments must be what JSON can hold"):
        train(REACHING, arguments={"a": {1, 2}})
    assert list((tmp_path / "out").iterdir()) == []


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
