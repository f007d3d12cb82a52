"""Processes whose folders for the limits found differ never govern one GPU at the same time."""

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from tests.zeus_core.power.setting import set_and_command
from zeus_kfp.zeus_core.power import open_limiter, repair_limits
from zeus_kfp.zeus_core.power.governing import govern, is_governed

OPEN = """
import os, pynvml
from zeus_kfp.zeus_core.power import open_limiter
pynvml.nvmlInit()
os.setuid({user})
limiter = open_limiter()
print(limiter.name, limiter.found_w, limiter.why_not, flush=True)
"""


@pytest.fixture
def other_folder():
    """Return a folder that every user can get to, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def told(fake_gpus, folder, user):
    """Return what a process of a user, with a folder of its own, finds."""
    os.chown(folder, user, -1)
    environ = fake_gpus.environ | {"ZEUS_KFP_LIMITS_FOLDER": str(folder)}
    code = OPEN.format(user=user)
    return subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("is_another_user", [False, True])
def test_a_trial_with_another_folder_observes(fake_gpus, other_folder, is_another_user):
    if is_another_user and os.getuid() != 0:
        pytest.skip("only root may be someone else")
    user = 65534 if is_another_user else os.getuid()
    with closing(open_limiter()) as limiter:
        limiter.set(150)
        assert told(fake_gpus, other_folder, user) == (
            "observe only 150.0 another process sets the power limit of GPU 0 already: close it first, by trial.close()"
        )
        assert fake_gpus.limits_w() == [150]
    assert told(fake_gpus, other_folder, user) == "nvml 250.0"


def test_another_trial_of_this_process_is_called_so(fake_gpus, tmp_path):
    with closing(open_limiter()):
        second = open_limiter(os.environ | {"ZEUS_KFP_LIMITS_FOLDER": str(tmp_path / "other")})
        assert second.why_not.startswith("another trial of this process sets the power limit of GPU 0 already")


def test_what_was_left_in_one_folder_waits_for_a_trial_with_another(fake_gpus, set_and, caplog, tmp_path):
    set_and("os.kill(os.getpid(), signal.SIGKILL)")
    other = open_limiter(os.environ | {"ZEUS_KFP_LIMITS_FOLDER": str(tmp_path / "other")})
    other.set(120)
    repair_limits(patience_s=0.05)
    assert "a process with another ZEUS_KFP_LIMITS_FOLDER still holds the power limit" in caplog.text
    assert fake_gpus.limits_w() == [120]
    other.close()
    assert fake_gpus.limits_w() == [150]
    repair_limits()
    assert fake_gpus.limits_w() == [250]


def test_a_gpu_is_free_as_soon_as_its_process_is_killed(fake_gpus, other_folder):
    code = "print('set', flush=True); signal.pause()"
    with subprocess.Popen(set_and_command(code), env=fake_gpus.environ, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    assert told(fake_gpus, other_folder, os.getuid()) == "nvml 150.0"


def test_a_name_has_one_holder_and_can_be_looked_for(tmp_path):
    uuid = f"GPU-{tmp_path.name}-{os.getpid()}"
    held = govern(uuid)
    assert is_governed(uuid, proc := Path("/proc"))
    assert not is_governed(uuid[:-1], proc)
    with pytest.raises(BlockingIOError):
        govern(uuid)
    os.close(held)
    assert not is_governed(uuid, proc)


def test_where_there_are_no_such_names_the_files_lock_stands_alone(tmp_path):
    assert govern("too long for a name" * 10) == -1
    assert not is_governed("GPU", tmp_path)
