"""A signal at any moment of a profiled trial: whatever it cuts short, the limit found is what stands at the end.

The moment is a line of the code that sets limits, or a call into the driver, counted from the start of training.
"""

import random

import pytest

from tests.virtual_gpu import VIRTUAL_GPU
from zeus_kfp.zeus_core.trial import TrialState

# 30 steps a limit, so that all of them are tried and one is chosen in the first of three epochs.
TRAINING = (
    VIRTUAL_GPU
    + """
import os, signal, sys
FILES = ("limiter.py", "found.py", "setters.py", "on_signal.py", "repair.py")
lines = [0]

def count(frame, event, argument):
    if event == "line":
        lines[0] += 1
        if lines[0] == LINE:
            os.kill(os.getpid(), signal.SIGNAL)
    return count

def trace(frame, event, argument):
    return count if frame.f_code.co_filename.endswith(FILES) else None

def train(trial):
    follow_the_gpu(trial)
    sys.settrace(trace)
    for epoch in trial.epochs():
        for _ in trial.train(range(220)):
            work(0.1)
        trial.report_metric(epoch / 2)
    trial.close()
    sys.settrace(None)
    print("lines", lines[0], flush=True)
    os._exit(0)
"""
)
LAST_LINE = 680
LAST_CALL = 95
CHANCE = random.Random(20261130)


@pytest.fixture
def train(train, fake_gpus, capfd):
    """Supervise a trial on two GPUs that gets a signal at some moment; return its outcome and what it said."""

    def run(signal="SIGKILL", line=0, **variables):
        fake_gpus.set(GPUS="2", HIGHEST_MW="250000", LIMIT_MW_1="240000")
        source = TRAINING.replace("LINE", str(line)).replace("signal.SIGNAL", f"signal.{signal}")
        steps = {"ZEUS_KFP_POWER_PROFILE_STEPS": "20", "ZEUS_KFP_POWER_WARMUP_STEPS": "10"}
        outcome = train(source, environ=fake_gpus.environ | steps | variables).outcome
        return outcome, capfd.readouterr().out

    return run


def moments(last, count):
    """Return some moments, the first few among them."""
    return [1, 2, 3, *sorted(CHANCE.sample(range(4, last), count))]


def test_the_moments_are_those_of_the_whole_trial(fake_gpus, train):
    outcome, said = train()
    assert outcome.state is TrialState.REACHED
    assert outcome.power_limit_w is not None
    assert LAST_LINE * 0.7 < int(said.split("lines ")[1].split()[0]) < LAST_LINE * 1.1
    assert fake_gpus.limits_w() == [250, 240]


@pytest.mark.parametrize("line", moments(LAST_LINE, 12))
def test_a_kill_at_any_line_that_sets_limits(fake_gpus, train, line):
    train("SIGKILL", line)
    assert fake_gpus.limits_w() == [250, 240]


@pytest.mark.parametrize("signal", ["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("line", moments(LAST_LINE, 4))
def test_a_wish_to_end_at_any_line_that_sets_limits(fake_gpus, train, signal, line):
    train(signal, line)
    assert fake_gpus.limits_w() == [250, 240]


@pytest.mark.parametrize("call", moments(LAST_CALL, 12))
def test_a_kill_at_any_call_of_the_driver(fake_gpus, train, call):
    outcome, _ = train(FAKE_NVML_KILL_AT=str(call))
    assert outcome.state is TrialState.OOM
    assert fake_gpus.limits_w() == [250, 240]
