"""What a process that was killed leaves behind is repaired by others."""

import errno
import fcntl
import json
import os
import signal
import subprocess
from contextlib import closing

import pytest

from tests.zeus_core.power.setting import set_and_command
from zeus_kfp.zeus_core.power import open_limiter, repair_limits


def test_a_killed_process_is_repaired_by_the_next_limiter(fake_gpus, set_and, caplog):
    assert set_and("os.kill(os.getpid(), signal.SIGKILL)")[0] == -signal.SIGKILL
    assert fake_gpus.limits_w() == [150]
    with closing(open_limiter()) as limiter:
        assert limiter.found_w == 250
        assert "GPU 0 stood at 150 W, left by a process that was killed: its 250 W are put back" in caplog.text
    assert fake_gpus.limits_w() == [250]


def test_a_killed_process_is_repaired_by_whoever_looks_after_it(fake_gpus, set_and):
    set_and("os.kill(os.getpid(), signal.SIGKILL)")
    repair_limits()
    assert fake_gpus.limits_w() == [250]
    before = fake_gpus.set_count()
    repair_limits()
    assert fake_gpus.set_count() == before


@pytest.mark.parametrize(
    "change", ["", "{", "[]", '{"found_w": -1}', '{"found_w": 250, "set_w": [150], "boot_id": "1", "process_id": 1}']
)
def test_a_broken_file_or_one_of_an_earlier_boot_repairs_nothing(fake_gpus, set_and, tmp_path, change):
    set_and("os.kill(os.getpid(), signal.SIGKILL)")
    [file] = (tmp_path / "limits").iterdir()
    assert json.loads(file.read_text())["found_w"] == 250
    file.write_text(change)
    repair_limits()
    assert fake_gpus.limits_w() == [150]


def test_a_living_process_is_not_repaired(fake_gpus):
    with closing(open_limiter()) as limiter:
        limiter.set(150)
        repair_limits()
        assert fake_gpus.limits_w() == [150]


def test_a_limit_that_is_held_after_all_should_have_ended_is_named(fake_gpus, caplog):
    with closing(open_limiter()) as limiter:
        limiter.set(150)
        repair_limits(patience_s=0.05)
        holder = f"process {os.getpid()} still holds the power limit of {fake_gpus.uuid()}, which was 250 W"
        assert holder in caplog.text
        assert fake_gpus.limits_w() == [150]
        caplog.clear()
        repair_limits(os.environ | {"CUDA_VISIBLE_DEVICES": ""}, patience_s=0.05)
        repair_limits()
        assert not caplog.records


def test_a_process_that_training_forked_does_not_keep_the_limit_when_it_is_killed(fake_gpus):
    code = """
child = os.fork()
if not child:
    signal.pause()
print(child, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    with subprocess.Popen(set_and_command(code), env=fake_gpus.environ, stdout=subprocess.PIPE, text=True) as process:
        worker = int(process.stdout.readline())
        process.wait()
        assert fake_gpus.limits_w() == [150]
        repair_limits(patience_s=1.0)
        os.kill(worker, signal.SIGKILL)
    assert fake_gpus.limits_w() == [250]


def test_a_repair_without_effect_keeps_what_it_knows(fake_gpus, set_and, caplog):
    set_and("os.kill(os.getpid(), signal.SIGKILL)")
    fake_gpus.set(SET="ignored")
    repair_limits()
    assert "can't be put back: 250 W were asked for on GPU 0, but 150 W stand" in caplog.text
    fake_gpus.set(SET=None)
    repair_limits()
    assert fake_gpus.limits_w() == [250]


def test_a_repair_without_any_gpu_is_no_error(fake_gpus, set_and, caplog):
    set_and("os.kill(os.getpid(), signal.SIGKILL)")
    fake_gpus.set(GPUS=None)
    repair_limits()
    assert "can't be put back: NVML can't be opened" in caplog.text


def test_a_repair_never_raises_whatever_the_environment_says(fake_gpus, set_and, caplog, monkeypatch):
    set_and("os.kill(os.getpid(), signal.SIGKILL)")
    fake_gpus.set(SET="denied")
    monkeypatch.setenv("ZEUSD_HOST_PORT", "no address")
    repair_limits()
    assert "ZEUSD_HOST_PORT must be like node-7:4938, not 'no address'" in caplog.text
    monkeypatch.delenv("ZEUSD_HOST_PORT")
    fake_gpus.set(SET=None)
    repair_limits()
    assert fake_gpus.limits_w() == [250]


def test_a_file_that_is_of_no_use_keeps_no_other_gpu_from_its_repair(fake_gpus, set_and, caplog, tmp_path):
    fake_gpus.set(GPUS="2")
    set_and("os.kill(os.getpid(), signal.SIGKILL)")
    first, _ = sorted((tmp_path / "limits").iterdir())
    unlocked = fcntl.flock

    def stale(file, operation):
        if os.fstat(file).st_ino == first.stat().st_ino and operation != fcntl.LOCK_UN:
            raise OSError(errno.ESTALE, "Stale file handle")
        unlocked(file, operation)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fcntl, "flock", stale)
        repair_limits()
    assert sorted(fake_gpus.limits_w()) == [150, 250]
    assert f"on {first.stem} can't be looked up: [Errno 116] Stale file handle" in caplog.text
    repair_limits()
    assert fake_gpus.limits_w() == [250, 250]
