"""However a process ends, the limits that it found are put back."""

import signal

import pytest


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("sys.exit(3)", 3),
        ("1 / 0", 1),
        ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ("os.kill(os.getpid(), signal.SIGHUP)", -signal.SIGHUP),
        ("os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT),
    ],
)
def test_however_a_process_ends_its_limits_are_put_back(fake_gpus, set_and, code, exit_code):
    assert set_and(code)[0] == exit_code
    assert fake_gpus.limits_w() == [250]


def test_a_signal_that_comes_while_a_limit_is_set_waits_for_it(fake_gpus, set_and):
    code = """
real = limiter._setter.set_limit
def interrupted(gpu, power_limit_w):
    if power_limit_w == 120:
        os.kill(os.getpid(), signal.SIGTERM)
    real(gpu, power_limit_w)
limiter._setter.set_limit = interrupted
limiter.set(120)
print("not reached")
"""
    assert set_and(code) == (-signal.SIGTERM, "")
    assert fake_gpus.limits_w() == [250]


def test_a_handler_that_returns_does_not_leave_half_of_a_limit_behind(fake_gpus, set_and):
    code = """
guard.take_back()
signal.signal(signal.SIGTERM, lambda *_: print("noted"))
guard = RestoreAtEnd(limiter)
real = limiter._setter.set_limit
def interrupted(gpu, power_limit_w):
    if (gpu.index, power_limit_w) == (1, 120):
        os.kill(os.getpid(), signal.SIGTERM)
    real(gpu, power_limit_w)
limiter._setter.set_limit = interrupted
limiter.set(120)
os.kill(os.getpid(), signal.SIGKILL)
"""
    fake_gpus.set(GPUS="2")
    assert set_and(code) == (-signal.SIGKILL, "noted\n")
    assert fake_gpus.limits_w() == [250, 250]


def test_a_limiter_whose_end_is_interrupted_can_be_ended_again(fake_gpus, set_and):
    code = """
real = limiter._setter.set_limit
def interrupted(gpu, power_limit_w):
    real(gpu, power_limit_w)
    os.kill(os.getpid(), signal.SIGINT)
limiter._setter.set_limit = interrupted
try:
    limiter.close()
except KeyboardInterrupt:
    print("interrupted at", limiter.standing_w(), open_limiter().name)
limiter.close()
print(open_limiter().name)
"""
    assert set_and(code)[1].splitlines()[:2] == ["interrupted at 250.0 observe only", "nvml"]
    assert fake_gpus.limits_w() == [250]


def test_a_programs_own_handler_still_runs(fake_gpus, set_and):
    code = """
guard.take_back()
signal.signal(signal.SIGTERM, lambda *_: print("checkpoint saved"))
guard = RestoreAtEnd(limiter)
os.kill(os.getpid(), signal.SIGTERM)
print("and on it goes")
guard.take_back()
os.kill(os.getpid(), signal.SIGTERM)
"""
    assert set_and(code) == (0, "checkpoint saved\nand on it goes\ncheckpoint saved\n")


@pytest.mark.parametrize("end", ["sys.exit()", "os.kill(os.getpid(), signal.SIGTERM)", "limiter.set(120)", "1 / 0"])
def test_a_process_that_training_forks_changes_nothing(fake_gpus, set_and, end):
    code = f"""
import pynvml
child = os.fork()
if not child:
    {end}
    sys.exit()
os.waitpid(child, 0)
from zeus_kfp.zeus_core.power import open_limiter as other
print("standing", limiter.standing_w(), other().why_not)
"""
    assert "standing 150.0 another trial of this process" in set_and(code)[1]
    assert fake_gpus.limits_w() == [250]
