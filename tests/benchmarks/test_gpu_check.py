"""The check of a GPU machine, on a simulated GPU, and on a machine without any."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu_check.py"


def check(*arguments, **variables):
    environ = {name: value for name, value in os.environ.items() if not name.startswith("FAKE_NVML_")} | variables
    return subprocess.run(
        [sys.executable, SCRIPT, *arguments], env=environ, capture_output=True, text=True, timeout=240
    )


needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (cc) to build the fake NVML with")


@needs_compiler
def test_all_of_it_runs_on_a_simulated_gpu():
    done = check("--fake", "--epoch-s", "3")
    assert (done.returncode, done.stderr) == (0, "")
    for line in (
        "ok: [300.0] W before, [100.0] W left by SIGKILL (100.0 W set)",
        "ok: [300.0] W after the repair",
        "train at 300 W: ",
        "ok: [300.0] W after training, [300.0] W before",
        "while limits are profiled a step takes",
        "all is as it must be",
    ):
        assert line in done.stdout
    # The simulated card takes 280 W then; when its counter was read is rounded to milliseconds.
    assert float(done.stdout.split("train at 300 W: ")[1].split(" W")[0]) == pytest.approx(280, rel=0.01)


@needs_compiler
def test_a_card_without_a_counter_that_lets_nobody_set_limits_is_checked_for_the_rest():
    done = check("--fake", "--epoch-s", "3", FAKE_NVML_ENERGY="unsupported", FAKE_NVML_SET="denied")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok: nvml-polling: " in done.stdout
    assert "there is no second source to compare with" in done.stdout
    assert "limits can't be set here, so there is nothing to put back" in done.stdout
    assert "NVML refuses to set the power limit of GPU 0: Insufficient Permissions" in done.stdout
    assert "found 300 W, trained on at unknown, through observe only" in done.stdout


@needs_compiler
def test_what_is_not_as_it_must_be_fails():
    done = check("--fake", "--epoch-s", "1", FAKE_NVML_ENERGY="unsupported", FAKE_NVML_SET="ignored")
    assert done.returncode == 1
    assert "WRONG: [300.0] W before, [300.0] W left by SIGKILL" in done.stdout
    assert "not as it must be: [300.0] W before, [300.0] W left by SIGKILL" in done.stdout


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_it_says_so_and_ends_with_77():
    done = check()
    assert (done.returncode, done.stdout.startswith("skipped: PyTorch finds no CUDA GPU")) == (77, True)
