"""Power limits on GPUs of the fake NVML, through the real nvidia-ml-py."""

import json
import os
import signal
import subprocess
import sys
from contextlib import closing

import pytest

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.power import LimitRange, open_limiter, repair_limits

SET_AND = """
import os, signal, sys
# Whoever runs the tests in the background may have handed down that these are ignored.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
from zeus_kfp.zeus_core.power import open_limiter
from zeus_kfp.zeus_core.power.on_signal import RestoreAtEnd
limiter = open_limiter()
guard = RestoreAtEnd(limiter)
limiter.set(150)
{code}
"""


@pytest.fixture
def set_and(fake_gpus):
    """Run code in a process that has set 150 W; return its exit code and what it wrote."""

    def run(code):
        done = subprocess.run(
            [sys.executable, "-c", SET_AND.format(code=code)], env=fake_gpus.environ, capture_output=True, text=True
        )
        return done.returncode, done.stdout + done.stderr

    return run


def test_a_limit_is_set_on_every_gpu_and_put_back(fake_gpus):
    fake_gpus.set(GPUS="3", LIMIT_MW_1="240000")
    with closing(open_limiter()) as limiter:
        assert (limiter.name, limiter.found_w, limiter.why_not) == ("nvml", None, "")
        assert limiter.set(200) == 200
        assert fake_gpus.limits_w() == [200, 200, 200]
    assert fake_gpus.limits_w() == [250, 240, 250]


def test_only_gpus_of_this_process_are_touched(fake_gpus, monkeypatch):
    fake_gpus.set(GPUS="4")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-22,1")
    with closing(open_limiter()) as limiter:
        limiter.set(150)
        assert fake_gpus.limits_w() == [250, 150, 150, 250]


@pytest.mark.parametrize(("asked_w", "set_w"), [(85, 100), (100, 100), (180.5, 180.5), (400, 250), (250, 250)])
def test_what_is_asked_for_respects_the_card_and_what_was_found(fake_gpus, asked_w, set_w):
    with closing(open_limiter()) as limiter:
        assert limiter.set(asked_w) == set_w
        assert fake_gpus.limits_w() == [set_w]


def test_a_limit_above_the_one_found_must_be_allowed_explicitly(fake_gpus):
    with closing(open_limiter(highest_w=280)) as limiter:
        assert limiter.set(400) == 280
    assert fake_gpus.limits_w() == [250]


def test_a_limit_that_stands_already_is_not_set_again(fake_gpus):
    with closing(open_limiter()) as limiter:
        limiter.set(150)
        before = fake_gpus.set_count()
        limiter.set(150)
        assert fake_gpus.set_count() == before


@pytest.mark.parametrize(
    ("lowest_w", "highest_w", "step_w", "limits_w"),
    [
        (100, 250, 25, (250, 225, 200, 175, 150, 125, 100)),
        (100, 260, 25, (260, 235, 210, 185, 160, 135, 110)),
        (100, 100, 25, (100,)),
        (100, 250, 500, (250,)),
        (99.9, 100.2, 0.1, (100.2, 100.1, 100.0, 99.9)),
    ],
)
def test_a_sweep_goes_from_the_highest_to_the_lowest_and_not_below(lowest_w, highest_w, step_w, limits_w):
    assert LimitRange(lowest_w, highest_w).sweep(step_w) == pytest.approx(limits_w)


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({"SET": "denied"}, "NVML refuses to set the power limit of GPU 0: Insufficient Permissions"),
        ({"SET_1": "denied"}, "NVML refuses to set the power limit of GPU 1"),
        ({"SET": "unsupported"}, "Not Supported"),
        ({"MIG_1": "on"}, "GPU 1 is divided (MIG): its limit would hold for others too"),
        ({"LIMITS": "unsupported"}, "the power limit of GPU 0 can't be read"),
    ],
)
def test_where_limits_cannot_be_set_one_line_says_so(fake_gpus, caplog, variables, why):
    fake_gpus.set(GPUS="2", **variables)
    limiter = open_limiter()
    assert (limiter.name, limiter.allowed) == ("observe only", None)
    assert limiter.set(100) == limiter.found_w
    assert why in limiter.why_not
    assert [record.message for record in caplog.records] == [
        f"power limits stay as they are; everything else is measured all the same. {limiter.why_not}"
    ]


def test_without_a_gpu_nothing_is_said(fake_gpus, caplog):
    fake_gpus.set(GPUS=None)
    assert open_limiter().allowed is None
    assert not caplog.records


def test_people_can_forbid_it(fake_gpus, caplog):
    limiter = open_limiter(os.environ | {"ZEUS_KFP_POWER_LIMITS": "off"})
    assert (limiter.set(100), fake_gpus.limits_w(), caplog.records) == (250, [250], [])
    with pytest.raises(InvalidValueError, match="ZEUS_KFP_POWER_LIMITS must be on or off, not 'maybe'"):
        open_limiter({"ZEUS_KFP_POWER_LIMITS": "maybe"})


def test_a_card_that_is_not_ready_once_is_asked_again(fake_gpus):
    fake_gpus.set(NOT_READY="1")
    with closing(open_limiter()) as limiter:
        assert (limiter.name, limiter.set(150)) == ("nvml", 150)


def test_a_limit_without_effect_ends_the_setting(fake_gpus, caplog):
    limiter = open_limiter()
    fake_gpus.set(SET="ignored")
    assert limiter.set(150) == 250
    assert "150 W were asked for, but 250.0 W stand: the limits found are put back" in caplog.text
    fake_gpus.set(SET=None)
    assert limiter.set(150) == 250
    limiter.close()


def test_permission_that_is_lost_midway_leaves_no_gpu_behind(fake_gpus, caplog):
    fake_gpus.set(GPUS="2")
    limiter = open_limiter()
    limiter.set(200)
    fake_gpus.set(SET_1="denied")
    limiter.set(150)
    assert fake_gpus.limits_w() == [250, 200]
    assert "the 250 W found on GPU 1 can't be put back" in caplog.text
    limiter.close()
    fake_gpus.set(SET_1=None)
    repair_limits()
    assert fake_gpus.limits_w() == [250, 250]


def test_after_it_is_restored_nothing_is_set(fake_gpus):
    limiter = open_limiter()
    limiter.set(150)
    limiter.restore()
    assert limiter.set(120) == 250
    limiter.close()
    limiter.close()
    assert fake_gpus.limits_w() == [250]


@pytest.mark.parametrize(("other_session", "name"), [(True, "observe only"), (False, "nvml")])
def test_a_gpu_that_someone_else_works_on_is_left_alone(fake_gpus, other_session, name):
    with subprocess.Popen(["sleep", "60"], start_new_session=other_session) as process:
        fake_gpus.set(GPUS="2", PROCESS_1=str(process.pid))
        limiter = open_limiter()
        process.kill()
    assert limiter.name == name
    assert (f"process {process.pid} works on GPU 1" in limiter.why_not) is other_session
    limiter.close()


def test_a_process_that_cannot_be_seen_from_here_is_no_neighbour(fake_gpus):
    fake_gpus.set(PROCESS=str(2**22 + 1))
    with closing(open_limiter()) as limiter:
        assert limiter.name == "nvml"


def test_two_trials_do_not_fight_over_a_gpu(fake_gpus):
    with closing(open_limiter()) as first:
        first.set(150)
        second = open_limiter()
        assert second.why_not.startswith("another trial of this process sets the power limit of GPU 0 already: close")
        second.close()
        assert fake_gpus.limits_w() == [150]
    with closing(open_limiter()) as third:
        assert third.name == "nvml"


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


def test_what_someone_else_has_set_since_is_theirs(fake_gpus, set_and, tmp_path):
    set_and("os.kill(os.getpid(), signal.SIGKILL)")
    administrator = "import pynvml as n; n.nvmlInit(); n.nvmlDeviceSetPowerManagementLimit({}, 220000)"
    subprocess.run(
        [sys.executable, "-c", administrator.format("n.nvmlDeviceGetHandleByIndex(0)")],
        env=fake_gpus.environ,
        check=True,
    )
    repair_limits()
    assert fake_gpus.limits_w() == [220]


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


def test_without_a_place_for_the_limit_found_nothing_is_set(fake_gpus, tmp_path):
    (tmp_path / "file").write_text("")
    limiter = open_limiter(os.environ | {"ZEUS_KFP_LIMITS_FOLDER": str(tmp_path / "file")})
    assert limiter.why_not.startswith("the limits found could not be kept for a repair")


def test_a_folder_that_anyone_may_write_to_is_not_trusted(fake_gpus, tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    limiter = open_limiter(os.environ | {"ZEUS_KFP_LIMITS_FOLDER": str(tmp_path / "open")})
    assert "must belong to user" in limiter.why_not


def test_a_repair_without_any_gpu_is_no_error(fake_gpus, set_and, caplog):
    set_and("os.kill(os.getpid(), signal.SIGKILL)")
    fake_gpus.set(GPUS=None)
    repair_limits()
    assert "can't be put back: NVML can't be opened" in caplog.text
