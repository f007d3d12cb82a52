"""What training leaves behind in sessions of its own ends with it, and so do the limits that it holds."""

import os
import signal
import subprocess
import sys

import pytest

from zeus_kfp.components.train_with_profiling.supervisor import supervise
from zeus_kfp.zeus_core.processes import descendants, mark, running
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
# As torchrun does it: the launcher is one process, and every worker leads a session of its own.
LAUNCHER = """
import os, signal, subprocess, sys, time
workers = [
    subprocess.Popen([sys.executable, "worker.py", str(index)], start_new_session=True, stdout=subprocess.PIPE)
    for index in range(2)
]
for worker in workers:
    assert worker.stdout.readline() == b"ready\\n"
{end}
"""
WORKER = """
import os, signal, sys, time
from zeus_kfp.zeus_core.power import open_limiter
os.environ["CUDA_VISIBLE_DEVICES"] = sys.argv[1]
{before}
limiter = open_limiter()
limiter.set(150)
assert limiter.standing_w() == 150
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
with open("workers", "a") as file:
    file.write(str(os.getpid()) + "\\n")
print("ready", flush=True)
time.sleep(600)
"""
ORPHAN = "if os.fork(): os._exit(0)"
"""Lose the parent: whoever looks for its descendants finds none."""


def is_in(folder, process_id):
    """Return whether a process runs in a folder."""
    try:
        return os.readlink(f"/proc/{process_id}/cwd") == str(folder) and process_id != os.getpid()
    except OSError:
        return False


@pytest.fixture
def launch(fake_gpus, tmp_path, monkeypatch):
    """Supervise a launcher on two GPUs; return the outcome and the workers that it has had."""
    monkeypatch.chdir(tmp_path)

    def run(end="", before="", launcher=LAUNCHER):
        fake_gpus.set(GPUS="2")
        (tmp_path / "launcher.py").write_text(launcher.replace("{end}", end))
        (tmp_path / "workers").touch()
        (tmp_path / "worker.py").write_text(WORKER.replace("{before}", before))
        (tmp_path / "out").mkdir()
        outcome = supervise(
            PLAN,
            entry_point="launcher.py",
            arguments={},
            data_path="",
            model_path=str(tmp_path / "out" / "model"),
            model_uri="s3://bucket/model",
            history_path=str(tmp_path / "out" / "history.jsonl"),
            profile_path=str(tmp_path / "out" / "profile.json"),
            environ=fake_gpus.environ,
            grace_s=0.5,
        )
        return outcome, [int(line) for line in (tmp_path / "workers").read_text().split()]

    return run


@pytest.mark.parametrize(
    ("end", "state"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", TrialState.OOM),
        ("os._exit(0)", TrialState.FAILED),
        ("1 / 0", TrialState.FAILED),
    ],
)
def test_workers_in_sessions_of_their_own_end_with_their_launcher(fake_gpus, launch, end, state):
    outcome, workers = launch(end)
    assert outcome.state is state
    assert len(workers) == 2
    assert not set(workers) & set(running())
    assert fake_gpus.limits_w() == [250, 250]
    assert fake_gpus.set_count() > 1


HURRIED = """
import os, signal, subprocess, sys, time
for index in range(2):
    subprocess.Popen([sys.executable, "worker.py", str(index)], start_new_session=True)
    {each}
time.sleep({wait_s})
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("each", "wait_s"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", 0),
        ("pass", 0),
        *[("pass", wait_s) for wait_s in (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7)],
    ],
)
def test_a_launcher_that_is_killed_while_its_workers_begin_leaves_nothing(fake_gpus, launch, tmp_path, each, wait_s):
    outcome, _ = launch(launcher=HURRIED.replace("{each}", each).replace("{wait_s}", str(wait_s)))
    assert outcome.state is TrialState.OOM
    assert not [other for other in running() if is_in(tmp_path, other)]
    assert fake_gpus.limits_w() == [250, 250]


def test_a_worker_that_hides_its_origin_ends_too(fake_gpus, launch):
    hide = "os.environ.get('HIDDEN') or os.execve(sys.executable, [sys.executable, *sys.argv], {ENV})"
    kept = "{k: v for k, v in os.environ.items() if k != 'ZEUS_KFP_TRIAL'} | {'HIDDEN': '1'}"
    before = f"{hide.replace('{ENV}', kept)}\n{ORPHAN}\nos.setsid()"
    _, workers = launch("os.kill(os.getpid(), signal.SIGKILL)", before=before)
    assert not set(workers) & set(running())
    assert fake_gpus.limits_w() == [250, 250]


def test_what_was_there_before_training_is_no_kin_of_it(launch):
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as other:
        launch("os._exit(0)")
        assert other.poll() is None
        other.kill()


def test_processes_are_seen_with_their_parent_session_and_mark():
    script = "import subprocess, sys; subprocess.run(['sleep', '600'])"
    environ = {**os.environ, "ZEUS_KFP_TRIAL": "/a b/trial.json"}
    with subprocess.Popen([sys.executable, "-c", script], start_new_session=True, env=environ) as process:
        while not (below := descendants(process.pid, running())):
            pass
        [child] = below
        assert running()[child].parent_id == process.pid
        assert running()[child].session_id == process.pid
        assert mark(child) == "/a b/trial.json"
        assert child in descendants(os.getpid(), running())
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert mark(2**22 + 1) == ""
    assert mark(os.getpid()) == os.environ.get("ZEUS_KFP_TRIAL", "")
