"""What training leaves behind in sessions of its own ends with it, and so do the limits that it holds."""

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from tests.components.supervised import PLAN, plan_with
from zeus_kfp.components.train_with_profiling import child_process, kin
from zeus_kfp.components.train_with_profiling.child_process import ChildProcess
from zeus_kfp.components.train_with_profiling.kin import Kin, taking_in_orphans
from zeus_kfp.zeus_core.processes import descendants, listed, mark, running
from zeus_kfp.zeus_core.trial import TrialState

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


def is_in(folder, process_id):
    """Return whether a process runs in a folder."""
    try:
        return os.readlink(f"/proc/{process_id}/cwd") == str(folder) and process_id != os.getpid()
    except OSError:
        return False


@contextmanager
def sleeping(**options):
    """Start a process that is killed at the end."""
    with subprocess.Popen(["sleep", "600"], **options) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def launch(train, fake_gpus, tmp_path, monkeypatch):
    """Supervise a launcher on two GPUs; return the outcome and the workers that it has had."""
    monkeypatch.chdir(tmp_path)

    def run(end="", before="", launcher=LAUNCHER, plan=PLAN):
        fake_gpus.set(GPUS="2")
        (tmp_path / "launcher.py").write_text(launcher.replace("{end}", end))
        (tmp_path / "workers").touch()
        (tmp_path / "worker.py").write_text(WORKER.replace("{before}", before))
        outcome = train(plan=plan, environ=fake_gpus.environ, entry_point="launcher.py").outcome
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
    end = "time.sleep(1); os.kill(os.getpid(), signal.SIGKILL)"
    _, workers = launch(end, before=hide.replace("{ENV}", kept))
    assert not set(workers) & set(running())
    assert fake_gpus.limits_w() == [250, 250]


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
    assert mark(2**22 + 1) is None
    assert mark(os.getpid()) == os.environ.get("ZEUS_KFP_TRIAL", "")


@pytest.fixture
def start():
    """Start commands as training, whose orphans are taken in; what is left of them at the end is killed."""
    children = []

    def run(*argv):
        children.append(ChildProcess(argv, os.environ | {"ZEUS_KFP_TRIAL": "/a/trial.json"}, lambda line: None))
        return children[-1]

    with taking_in_orphans():
        yield run
        for child in children:
            if child.exit_code is None:
                child.close()


def until(child, condition):
    """Look after a process until something holds."""
    for _ in range(1000):
        if condition():
            return
        child.wait(0.01)
    raise AssertionError(child.last_lines)


def test_what_another_thread_starts_meanwhile_is_no_kin_of_it(start):
    child = start("sleep", "600")
    with sleeping(start_new_session=True) as other:
        child.wait(0)
        child.close()
        assert child.exit_code == -signal.SIGKILL
        assert other.poll() is None


def test_what_a_helper_of_this_process_leaves_behind_is_no_kin_of_it(start):
    script = "read line; setsid sleep 600 >&2 & echo $!"
    with subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as helper:
        child = start("sleep", "600")
        left_behind = int(helper.communicate(b"\n")[0])
    until(child, lambda: listed()[left_behind].parent_id == os.getpid())
    child.close()
    assert left_behind in running()
    os.kill(left_behind, signal.SIGKILL)
    os.waitpid(left_behind, 0)


def test_a_number_that_was_given_away_again_is_not_that_of_kin(start):
    child = start("sleep", "600")
    with sleeping() as other:
        family = Kin("", child._process.pid)
        family._started[other.pid] = listed()[other.pid].started_ticks - 1
        assert family.look() == {child._process.pid}


def test_orphans_that_end_are_buried_while_training_goes_on(start):
    child = start("sh", "-c", "for i in 1 2 3 4 5; do (sleep 0.01 &); done; echo started; exec sleep 600")
    until(child, lambda: child.last_lines == ["started"])
    session_id = child._process.pid
    until(child, lambda: [p.process_id for p in listed().values() if p.session_id == session_id] == [session_id])


def test_its_number_is_kept_until_it_is_closed(start):
    child = start("true")
    until(child, lambda: child.wait(0))
    assert (listed()[child._process.pid].has_ended, child.exit_code) == (True, None)
    child.close()
    assert child._process.pid not in listed()
    assert child.exit_code == 0


SAVING = """
import os, signal, sys, time
shell = os.getppid()
def save(number, frame):
    while os.getppid() == shell: pass
    time.sleep(0.3)
    print("saved", flush=True)
    sys.exit()
signal.signal(signal.SIGTERM, save)
print("begun", flush=True)
time.sleep(600)
"""


def test_what_a_shell_runs_has_its_grace_although_the_shell_is_gone(start):
    child = start("sh", "-c", '"$0" -c "$1"; true', sys.executable, SAVING)
    until(child, lambda: child.last_lines == ["begun"])
    child.stop(30.0)
    child.close()
    assert child.last_lines == ["begun", "saved"]


def test_training_that_cannot_be_killed_holds_up_nothing(launch, capfd, monkeypatch):
    def refuse(*arguments):
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", refuse)
        patch.setattr(os, "killpg", refuse)
        patch.setattr(kin, "_LONGEST_S", 0.1)
        patch.setattr(child_process, "_DRAIN_S", 0.1)
        outcome, _ = launch(launcher="import time; time.sleep(600)", plan=plan_with(max_trial_time_s=0.5))
    [training] = set(descendants(os.getpid(), running())) & {
        int(n) for n in re.findall(r"\[(\d+)\]", capfd.readouterr().out)
    }
    os.kill(training, signal.SIGKILL)
    assert outcome.state is TrialState.NOT_REACHED
    assert outcome.reason == "time cap: 0.5 s are over; its process could not be killed"
