"""The commands as people type them: output, exit codes, and what is on the cluster then."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kfp import compiler

from zeus_kfp.pipelines import cli
from zeus_kfp.pipelines.recurring_training import recurring_training
from zeus_kfp.state_store import StateStore

KNOBS = ["-p", "batch_sizes=[16, 32]", "-p", "default_batch_size=16", "-p", "target_metric=0.9"]


@pytest.fixture
def zeus_kfp(server, monkeypatch, capsys):
    """Run a command line and return its exit code, standard output and standard error."""
    monkeypatch.setenv("KF_PIPELINES_ENDPOINT", server.url)
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))  # the command run adds to it

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["zeus-kfp", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return ended.value.code or 0, out, err

    return run


def test_a_schedule_is_made_changed_paused_resumed_and_deleted(zeus_kfp, server, pipeline):
    code, out, _ = zeus_kfp("schedule", "create", "nightly", pipeline, "--cron", "0 0 3 * * *", *KNOBS, "--json")
    made = json.loads(out)
    assert (code, made["change"], made["when"]) == (0, "created", "At 03:00, every day (UTC)")
    assert made["parameters"] == {"batch_sizes": [16, 32], "default_batch_size": 16, "target_metric": 0.9}
    code, out, _ = zeus_kfp("schedule", "update", "nightly", "--every", "6h", "-p", "max_retries=2")
    assert (code, out.splitlines()[0]) == (0, "nightly (updated): Every 6 h")
    assert zeus_kfp("schedule", "pause", "nightly")[1].splitlines()[1] == "  next run: none while paused"
    assert json.loads(zeus_kfp("schedule", "resume", "nightly", "--json")[1])["enabled"] is True
    code, out, _ = zeus_kfp("schedule", "trigger", "nightly", "-p", "max_retries=1", "--json")
    run = server.books.runs[json.loads(out)["run_id"]]
    assert run["runtime_config"]["parameters"]["max_retries"] == 1
    code, out, _ = zeus_kfp("schedule", "delete", "nightly")
    assert (code, out, server.books.recurring_runs) == (0, "nightly: deleted\n", {})
    assert zeus_kfp("schedule", "list") == (0, "no schedules\n", "")


def test_schedules_are_listed_for_people_and_for_programs(zeus_kfp, pipeline):
    zeus_kfp("schedule", "create", "nightly", pipeline, "--cron", "0 0 3 * * *", *KNOBS)
    code, out, _ = zeus_kfp("schedule", "list")
    assert code == 0
    assert "nightly" in out
    (listed,) = json.loads(zeus_kfp("schedule", "list", "--json")[1])
    assert (listed["name"], listed["last_run"], listed["next_run"][10:]) == ("nightly", None, "T03:00:00Z")


def test_a_schedule_that_waits_for_a_live_run_is_told_by_the_exit_code(zeus_kfp, server, pipeline):
    made = json.loads(zeus_kfp("schedule", "create", "n", pipeline, "--every", "6h", *KNOBS, "--json")[1])
    run = server.books.tick(made["recurring_run_id"])
    code, out, _ = zeus_kfp("schedule", "delete", "n")
    assert (code, f"run {run['run_id']} is PENDING" in out) == (4, True)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["schedule", "create", "n", "PIPELINE", "--cron", "0 3 * * *", *KNOBS], 1, "five fields"),
        (["schedule", "create", "n", "PIPELINE", "--every", "1s", *KNOBS], 1, "would start runs without end"),
        (["schedule", "create", "n", "PIPELINE", "--every", "6h"], 1, "have no default"),
        (["schedule", "create", "n", "nowhere.yaml", "--every", "6h"], 1, "nowhere.yaml can't be read"),
        (["schedule", "create", "n"], 2, "Missing argument"),
        (["schedule", "create", "n", "PIPELINE", "--every", "6h", "--max-concurrency", "11", *KNOBS], 1, "at most 10"),
        (["schedule", "update", "n", "--every", "6h"], 1, "no schedule 'n'"),
        (["schedule", "pause", "n"], 1, "no schedule 'n'"),
        (["submit", "PIPELINE", "-p", "max_epochs=many", *KNOBS], 1, "must be an integer, not 'many'"),
        (["submit", "PIPELINE", "--params", "gone.yaml"], 1, "gone.yaml can't be read"),
    ],
)
def test_an_error_is_one_line_with_its_exit_code(zeus_kfp, pipeline, words, code, says):
    ended, out, err = zeus_kfp(*[pipeline if word == "PIPELINE" else word for word in words])
    assert (ended, out) == (code, "")
    assert says in err
    assert "Traceback" not in err


def test_what_is_already_there_is_changed_only_when_asked(zeus_kfp, pipeline):
    words = ["schedule", "create", "n", pipeline, *KNOBS, "--every"]
    assert zeus_kfp(*words, "6h")[0] == 0
    code, _, err = zeus_kfp(*words, "8h")
    assert (code, "already there" in err) == (1, True)
    assert json.loads(zeus_kfp(*words, "8h", "--or-update", "--json")[1])["change"] == "updated"


@pytest.mark.parametrize(("state", "code"), [("SUCCEEDED", 0), ("FAILED", 3), ("CANCELED", 3)])
def test_waiting_for_a_run_ends_with_its_end(zeus_kfp, server, pipeline, monkeypatch, state, code):
    create = server.books.create_run

    def ended_at_once(body):
        run = create(body)
        server.books.set_state(run["run_id"], state)
        return run

    monkeypatch.setattr(server.books, "create_run", ended_at_once)
    ended, out, _ = zeus_kfp("submit", pipeline, *KNOBS, "--wait", "--json")
    assert (ended, json.loads(out)["state"]) == (code, state)


def test_a_wait_whose_time_is_up_has_its_own_exit_code(zeus_kfp, pipeline):
    code, _, err = zeus_kfp("submit", pipeline, *KNOBS, "--wait", "--timeout", "0")
    assert (code, "it goes on" in err) == (4, True)


def test_parameters_come_from_a_file_and_the_command_line_goes_before_it(zeus_kfp, server, pipeline, tmp_path):
    file = tmp_path / "knobs.yaml"
    file.write_text("batch_sizes: [16, 32]\ndefault_batch_size: 16\ntarget_metric: 0.9\n")
    out = zeus_kfp("submit", pipeline, "--params", file, "-p", "target_metric=0.8", "--json")[1]
    held = server.books.runs[json.loads(out)["run_id"]]["runtime_config"]["parameters"]
    assert held == {"batch_sizes": [16, 32], "default_batch_size": 16, "target_metric": 0.8}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("max_epochs: 7\nmax_epochs: 8\n", "gives the parameters ['max_epochs'] more than once"),
        ('{"max_epochs": 7, "max_epochs": 8}', "gives the parameters ['max_epochs'] more than once"),
        ("", "holds no mapping"),
        ("[8, 16]", "holds no mapping"),
        ("8: 16", "holds no mapping"),
        ("a: [1", "can't be read"),
        ("a: \x00", "can't be read"),
    ],
)
def test_a_file_that_gives_no_parameters_or_one_twice_is_refused(zeus_kfp, server, pipeline, tmp_path, text, says):
    (tmp_path / "knobs.yaml").write_text(text)
    code, _, err = zeus_kfp("submit", pipeline, *KNOBS, "--params", tmp_path / "knobs.yaml")
    assert (code, says in err, server.books.runs) == (1, True, {})


TRAINER = """
def train(trial):
    for epoch in trial.epochs():
        for _ in trial.train([1, 2]):
            pass
        trial.report_metric(0.5 + 0.3 * epoch)
    open(trial.model_path, "w").close()
"""


def test_recurrences_run_on_this_machine(zeus_kfp, tmp_path, monkeypatch):
    (tmp_path / "my_trainer.py").write_text(TRAINER)
    monkeypatch.chdir(tmp_path)
    words = ["-p", "job_id=local", "-p", "train_entry_point=my_trainer:train", *KNOBS, "-p", "max_epochs=4"]
    words += ["-p", "beta_knob=1e9"]  # a busy machine stops no trial early
    code, out, _ = zeus_kfp("run", *words, "--times", 2, "--root", "here")
    assert (code, "Job local, default batch size 16" in out) == (0, True)
    with StateStore(f"sqlite:///{tmp_path / 'here' / 'store.db'}") as store:
        assert [(t.recurrence_number, t.state.value) for t in store.trials("local")] == [(1, "reached"), (2, "reached")]


def test_a_pipeline_that_knows_its_job_runs_on_this_machine_and_only_what_came_of_it_is_on_standard_output(
    zeus_kfp, tmp_path, monkeypatch
):
    (tmp_path / "my_trainer.py").write_text(TRAINER)
    monkeypatch.chdir(tmp_path)
    knobs = {"batch_sizes": [16, 32], "default_batch_size": 16, "target_metric": 0.9, "beta_knob": 1e9}
    known = recurring_training(train="my_trainer:train", job_id="known", **knobs)
    compiler.Compiler().compile(known, "known.yaml")
    code, out, err = zeus_kfp("run", "known.yaml", "--root", "here", "--json")
    (recurrence,) = json.loads(out)
    assert (code, recurrence["job_id"], recurrence["state"]) == (0, "known", "reached")
    assert "finished with status" in err


def test_a_recurrence_that_fails_on_this_machine_has_its_own_exit_code(zeus_kfp, tmp_path, monkeypatch):
    (tmp_path / "my_trainer.py").write_text(TRAINER)
    monkeypatch.chdir(tmp_path)
    words = ["-p", "job_id=local", "-p", "train_entry_point=my_trainer:train", *KNOBS, "-p", "max_epochs=1"]
    code, _, err = zeus_kfp("run", *words, "-p", "max_retries=1", "--root", "here")
    assert (code, "Inner task failed: 'select-winner'" in err) == (3, True)
    assert err.splitlines()[-1].startswith(
        "zeus-kfp: no trial of this recurrence reached the target metric (batch size"
    )
    assert "not_reached max_epochs" in err.splitlines()[-1]
    assert Path("here/store.db").exists()


SLOW = """
import time

def train(trial):
    print("training begins", flush=True)
    time.sleep(600)
"""


def test_a_run_on_this_machine_that_is_interrupted_tells_how_its_slot_is_freed(tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    words = ["run", "-p", "job_id=a job", "-p", "train_entry_point=slow:train", *KNOBS, "--root", "here"]
    command = [sys.executable, "-c", "from zeus_kfp.pipelines.cli import main; main()", *words]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Whatever runs the tests in the background may have told them to ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    begun = next(line for line in process.stderr if "training begins" in line)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, bool(begun), "open" in out) == (130, True, True)
    close = re.search(r"free it by `zeus-kfp (.*)`, with ZEUS_KFP_STORE_URL", err)[1]
    environ = os.environ | {"ZEUS_KFP_STORE_URL": f"sqlite:///{tmp_path}/here/store.db"}
    subprocess.run([*command[:3], *shlex.split(close)], env=environ, check=True, capture_output=True)
    with StateStore(environ["ZEUS_KFP_STORE_URL"]) as store:
        assert [recurrence.state.value for recurrence in store.recurrences("a job")] == ["not_reached"]


def test_a_run_that_is_granted_no_recurrence_says_so(zeus_kfp, tmp_path, monkeypatch):
    (tmp_path / "my_trainer.py").write_text(TRAINER)
    monkeypatch.chdir(tmp_path)
    words = ["-p", "job_id=local", "-p", "train_entry_point=my_trainer:train", *KNOBS, "-p", "period_s=86400"]
    code, _, err = zeus_kfp("run", *words, "-p", "beta_knob=1e9", "--times", "2", "--root", "here")
    last = err.splitlines()[-1]
    assert (code, last) == (0, "zeus-kfp: 1 of 2 runs were granted a recurrence; the output above says why")
