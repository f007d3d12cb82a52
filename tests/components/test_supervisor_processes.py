"""The supervisor's process, its signals and threads, and what outlives training: nothing."""

import os
import signal
import threading
from pathlib import Path

import pytest

from tests.components.supervised import REACHING, plan_with
from zeus_kfp.zeus_core.trial import TrialState


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


ANNOUNCED = """
def train(trial):
    import os, threading
    print("pid", os.getpid(), flush=True)
    threading.Event().wait()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_supervisor_that_is_ended_takes_the_training_with_it(start_supervisor, number):
    with start_supervisor(ANNOUNCED) as supervisor:
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
