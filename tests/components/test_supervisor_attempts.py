"""A second attempt at the same trial: an evicted pod is started again with the same arguments."""

import dataclasses
import json
import os
import signal
from pathlib import Path

import pytest

from tests.components.supervised import plan_with
from zeus_kfp.components.train_with_profiling.ledger import FOLDER, Ledger, trial_folder
from zeus_kfp.zeus_core.errors import EntryPointError
from zeus_kfp.zeus_core.training.instrument import Spent
from zeus_kfp.zeus_core.trial import TrialOutcome, TrialState

PLAN = plan_with(run_id="run 1/../x", slot=2)
RESUMING = """
import pathlib, threading
def train(trial):
    checkpoint = pathlib.Path(trial.checkpoint_dir, "last")
    start = int(checkpoint.read_text()) if checkpoint.exists() else 0
    for epoch in trial.epochs(start):
        if epoch == 2 and start == 0:
            threading.Event().wait()
        sum(range(500_000))
        trial.report_metric(1.0 if epoch == 3 else 0.1)
        checkpoint.write_text(str(epoch + 1))
    pathlib.Path(trial.model_path).write_text("model")
"""


@pytest.fixture
def start(start_supervisor, tmp_path):
    """Start a supervisor in a process of its own, as a pod does."""

    def begin(code, pod):
        return start_supervisor(code, PLAN, {"KFP_POD_NAME": pod}, checkpoint_dir=str(tmp_path / "volume"))

    return begin


def outcome_of(process):
    output = process.communicate(timeout=60)[0]
    line = next(line for line in output.splitlines() if line.startswith("outcome"))
    return TrialOutcome.from_json(line.removeprefix("outcome "))


def files_of(tmp_path, plan=PLAN):
    return sorted(trial_folder(tmp_path / "volume", plan).glob("*.json"))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_evicted_attempt_is_continued_and_counted_once(start, tmp_path, number):
    with start(RESUMING, "pod-1") as first:
        next(line for line in first.stdout if line.startswith("epoch 2/5"))
        child = int(Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text())
        first.send_signal(number)
        if number == signal.SIGKILL:
            os.kill(child, signal.SIGKILL)
        first.communicate(timeout=20)
    [left] = files_of(tmp_path)
    spent = json.loads(left.read_text())
    assert (left.name, spent["outcome"]) == ("pod-1.json", "")
    assert spent["energy_j"] > 0 < spent["time_s"] and 0 < spent["best_metric"] < 1

    with start(RESUMING, "pod-2") as second:
        outcome = outcome_of(second)
    assert (outcome.state, outcome.attempts, outcome.epochs, outcome.metric) == (TrialState.REACHED, 2, 4, 1.0)
    own = json.loads((left.parent / "pod-2.json").read_text())
    assert outcome.energy_j == pytest.approx(spent["energy_j"] + own["energy_j"])
    assert outcome.time_s == pytest.approx(spent["time_s"] + own["time_s"])

    with start("def train(trial): raise AssertionError('trained again')", "pod-3") as third:
        assert outcome_of(third) == outcome
    assert [path.name for path in files_of(tmp_path)] == ["pod-1.json", "pod-2.json"]


def test_an_attempt_that_is_asked_to_end_enters_what_it_took_so_far(start, tmp_path):
    with start(
        "def train(trial):\n    import threading\n    print('begun')\n    threading.Event().wait()", "pod-1"
    ) as first:
        next(line for line in first.stdout if line == "begun\n")
        first.send_signal(signal.SIGTERM)
        first.communicate(timeout=20)
    [left] = files_of(tmp_path)
    assert json.loads(left.read_text())["time_s"] > 0


@pytest.fixture
def train(train, tmp_path):
    """Supervise a trial in this process, as a pod of some name."""

    def run(code="def train(trial): raise OSError", plan=PLAN, pod="pod", **arguments):
        volume = str(tmp_path / "volume")
        return train(code, plan, {"KFP_POD_NAME": pod}, checkpoint_dir=volume, **arguments).outcome

    return run


REACHING = "def train(trial):\n    for e in trial.epochs(): trial.report_metric(1)\n"
SAVING = REACHING + "    open(trial.model_path, 'w').write('model')\n"


def leave(tmp_path, energy_j, time_s, name="earlier", plan=PLAN):
    folder = trial_folder(tmp_path / "volume", plan)
    ledger = Ledger(folder, name, pytest.fail)
    ledger.beat(Spent(energy_j, time_s))
    return ledger


def test_the_energy_of_every_earlier_attempt_is_added(train, tmp_path):
    leave(tmp_path, 1000.0, 20.0, "one")
    leave(tmp_path, None, 5.0, "two")
    outcome = train(SAVING)
    assert (outcome.attempts, outcome.energy_estimated) == (3, True)
    # The second one's energy isn't known: its rated power over 5 s stands in, and is said to.
    rated_w = outcome.max_power_w
    assert 1000 + 5 * rated_w < outcome.energy_j < 1100 + 5 * rated_w
    assert outcome.energy_source == "estimate and rated power"
    assert 25 < outcome.time_s < 35


def test_an_attempt_of_unknown_energy_counts_for_the_early_stop(train, tmp_path):
    leave(tmp_path, None, 90.0)
    # At least 5 W are taken for the rated power of a processor, so at least 450 J were spent.
    outcome = train(SAVING.replace("metric(1)", "metric(0)"), plan=dataclasses.replace(PLAN, cost_threshold=400.0))
    assert (outcome.epochs, outcome.reason.startswith("early stop")) == (1, True)


def test_the_same_pod_that_begins_again_is_another_attempt(train, tmp_path):
    leave(tmp_path, 1000.0, 20.0, "pod")
    assert train(SAVING, pod="pod").attempts == 2
    assert [path.name for path in files_of(tmp_path)] == ["pod-2.json", "pod.json"]


@pytest.mark.parametrize("change", [{"slot": 3}, {"run_id": "run 2"}, {"job_id": "other"}])
def test_another_trial_has_books_of_its_own(train, tmp_path, change):
    leave(tmp_path, 1000.0, 20.0)
    outcome = train(SAVING, plan=dataclasses.replace(PLAN, **change))
    assert (outcome.attempts, outcome.energy_j < 500) == (1, True)


def test_an_attempt_that_had_ended_is_told_again(train):
    first = train()
    assert first.state is TrialState.FAILED
    assert train(SAVING, pod="pod-2") == first


def test_a_model_that_was_lost_with_its_pod_is_trained_again(train, tmp_path):
    first = train(SAVING)
    assert train("def train(trial): raise OSError", pod="pod-2") == first
    (tmp_path / "out" / "model").unlink()
    second = train(SAVING, pod="pod-3")
    assert (second.state, second.model_uri, second.attempts) == (TrialState.REACHED, "s3://bucket/model", 2)
    assert second.energy_j > first.energy_j


def test_a_file_that_is_garbage_is_left_out(train, tmp_path, capsys):
    leave(tmp_path, 1000.0, 20.0)
    folder = trial_folder(tmp_path / "volume", PLAN)
    (folder / "half.json").write_text('{"energy_j": 5')
    (folder / "lie.json").write_text('{"energy_j": -5, "time_s": 1}')
    (folder / "no-outcome.json").write_text('{"energy_j": 5, "time_s": 1, "outcome": "{}"}')
    (folder / "no-metric.json").write_text('{"energy_j": 5, "time_s": 1, "best_metric": NaN}')
    assert train(SAVING).attempts == 2
    assert capsys.readouterr().out.count("an earlier attempt can't be read") == 4


@pytest.mark.parametrize(("higher_is_better", "best"), [(True, 0.7), (False, 0.2)])
def test_the_best_metric_of_all_earlier_attempts_is_known(tmp_path, higher_is_better, best):
    for name, metric in (("one", 0.7), ("two", 0.2), ("three", None)):
        leave(tmp_path, 1.0, 1.0, name).beat(Spent(1.0, 1.0), metric)
    ledger = Ledger(trial_folder(tmp_path / "volume", PLAN), "four", pytest.fail)
    plan = plan_with(higher_is_better=higher_is_better)
    assert plan.best_of(attempt.best_metric for attempt in ledger.earlier) == best
    assert plan.best_of(a.best_metric for a in Ledger(tmp_path / "none", "one", pytest.fail).earlier) is None


def test_the_time_that_is_gone_counts_against_the_cap(train, tmp_path):
    leave(tmp_path, 1000.0, 200.0)
    outcome = train("def train(trial):\n    import threading; threading.Event().wait()")
    assert (outcome.state, outcome.reason) == (TrialState.NOT_REACHED, "time cap: 100 s are over")
    assert 200 < outcome.time_s < 210


def test_an_unknown_entry_point_is_no_attempt(train, tmp_path):
    with pytest.raises(EntryPointError):
        train(entry_point="user:nothing")
    assert not (tmp_path / "volume" / FOLDER).exists()


def test_without_a_place_to_keep_books_training_goes_on(train, tmp_path, capsys):
    (tmp_path / "volume").write_text("this is no folder")
    outcome = train(SAVING)
    assert (outcome.state, outcome.attempts) == (TrialState.REACHED, 1)
    assert "warning: attempts at this trial can't be kept in" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("one", "other"), [("a/b", "a_b"), ("a.b", "a_b"), ("x" * 300, "x" * 301), ("..", "__"), ("ä", "ö")]
)
def test_runs_of_similar_names_keep_apart_and_inside_the_folder(tmp_path, one, other):
    folders = [trial_folder(tmp_path, dataclasses.replace(PLAN, run_id=name)) for name in (one, other)]
    assert folders[0] != folders[1]
    for folder in folders:
        folder.mkdir(parents=True)
        assert folder.resolve().is_relative_to(tmp_path.resolve())
