"""Power limits on GPUs of the fake NVML, through the real nvidia-ml-py."""

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import closing

import pytest

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.power import LimitRange, open_limiter, repair_limits
from zeus_kfp.zeus_core.power.found import FoundFile

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


def administrator_sets(fake_gpus, limit_w, index=0):
    code = "import pynvml as n; n.nvmlInit(); n.nvmlDeviceSetPowerManagementLimit({}, {})"
    gpu = f"n.nvmlDeviceGetHandleByIndex({index})"
    subprocess.run([sys.executable, "-c", code.format(gpu, limit_w * 1000)], env=fake_gpus.environ, check=True)


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
    assert "150 W were asked for on GPU 0, but 250 W stand: the limits found are put back" in caplog.text
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


# Starts a sleeper, tells its number, and ends: nobody knows any more where the sleeper came from.
ADOPTED = """
import subprocess, sys
sleeper = subprocess.Popen(["sleep", "600"], start_new_session={}, stdout=-3, stderr=-3)
print(sleeper.pid)
"""
# A launcher as torchrun is one: every rank leads a session of its own, and has the launcher for its parent.
LAUNCHER = """
import os, subprocess, sys
rank_1 = subprocess.Popen(["sleep", "600"], start_new_session=True)
code = "from zeus_kfp.zeus_core.power import open_limiter as o; limiter = o(); print(limiter.name, limiter.why_not)"
environ = os.environ | {"FAKE_NVML_PROCESS": str(rank_1.pid)}
subprocess.run([sys.executable, "-c", code], env=environ, start_new_session=True)
rank_1.kill()
"""


@pytest.fixture
def adopted():
    """Return a function that starts a process which is nobody's."""
    started = []

    def start(other_session=True, **environ):
        code = ADOPTED.format(other_session)
        told = subprocess.run([sys.executable, "-c", code], env=os.environ | environ, capture_output=True, check=True)
        started.append(int(told.stdout))
        return started[-1]

    yield start
    for process_id in started:
        os.kill(process_id, signal.SIGKILL)


@pytest.mark.parametrize(("other_session", "name"), [(True, "observe only"), (False, "nvml")])
def test_a_gpu_that_someone_else_works_on_is_left_alone(fake_gpus, adopted, other_session, name):
    stranger = adopted(other_session)
    fake_gpus.set(GPUS="2", PROCESS_1=str(stranger))
    with closing(open_limiter()) as limiter:
        assert limiter.name == name
        assert (f"process {stranger} works on GPU 1" in limiter.why_not) is other_session


@pytest.mark.parametrize(("mark", "name"), [("/scratch/trial.json", "nvml"), ("/other/trial.json", "observe only")])
def test_processes_of_the_same_trial_are_no_strangers(fake_gpus, adopted, mark, name):
    fake_gpus.set(PROCESS=str(adopted(ZEUS_KFP_TRIAL=mark)))
    code = "from zeus_kfp.zeus_core.power import open_limiter as o; print(o().name)"
    environ = fake_gpus.environ | {"ZEUS_KFP_TRIAL": "/scratch/trial.json"}
    told = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True)
    assert told.stdout.strip() == name


@pytest.mark.parametrize(("world_size", "name"), [("2", "nvml"), ("", "observe only")])
def test_the_other_ranks_of_a_launcher_are_no_strangers(fake_gpus, world_size, name):
    environ = fake_gpus.environ | {"WORLD_SIZE": world_size}
    told = subprocess.run([sys.executable, "-c", LAUNCHER], env=environ, capture_output=True, text=True)
    assert told.stdout.startswith(name)


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
    administrator_sets(fake_gpus, 220)
    repair_limits()
    assert fake_gpus.limits_w() == [220]


def test_what_an_administrator_sets_during_a_trial_stays_at_its_end(fake_gpus, caplog, tmp_path):
    fake_gpus.set(GPUS="2")
    limiter = open_limiter()
    limiter.set(180)
    limiter.set(200)
    administrator_sets(fake_gpus, 180)
    limiter.close()
    assert fake_gpus.limits_w() == [180, 250]
    assert [record.message for record in caplog.records] == [
        "GPU 0 stands at 180 W, which someone else has set: that stays, and this trial sets no other any more"
    ]
    assert [path.read_text() for path in (tmp_path / "limits").iterdir()] == ["", ""]


@pytest.mark.parametrize("before", [(), (200,)])
def test_after_an_administrator_has_set_a_limit_no_other_is_set(fake_gpus, caplog, before):
    fake_gpus.set(GPUS="2")
    limiter = open_limiter()
    for limit_w in before:
        limiter.set(limit_w)
    administrator_sets(fake_gpus, 180)
    assert limiter.set(150) is None
    assert (limiter.is_over, fake_gpus.limits_w()) == (True, [180, 250])
    limiter.close()
    assert fake_gpus.limits_w() == [180, 250]
    assert [record.message for record in caplog.records] == [
        "GPU 0 stands at 180 W, which someone else has set: that stays, and this trial sets no other any more"
    ]


def test_an_administrator_who_puts_the_limit_found_back_ends_nothing(fake_gpus):
    with closing(open_limiter()) as limiter:
        limiter.set(200)
        administrator_sets(fake_gpus, 250)
        assert (limiter.set(150), limiter.is_over) == (150, False)
    assert fake_gpus.limits_w() == [250]


def test_a_limit_that_the_driver_makes_of_the_one_asked_for_is_put_back(fake_gpus, caplog):
    limiter = open_limiter()
    real = limiter._setter.set_limit
    limiter._setter.set_limit = lambda gpu, limit_w: real(gpu, max(limit_w, 170))
    assert limiter.set(150) == 250
    assert fake_gpus.limits_w() == [250]
    limiter.close()


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


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o775])
def test_of_a_folder_that_others_may_write_to_a_folder_of_ones_own_is_used(fake_gpus, tmp_path, mode):
    folder = tmp_path / "volume"
    folder.mkdir()
    folder.chmod(mode)
    with closing(open_limiter(os.environ | {"ZEUS_KFP_LIMITS_FOLDER": str(folder)})) as limiter:
        limiter.set(150)
        [own] = folder.iterdir()
        assert (own.name, own.stat().st_mode & 0o777) == (f"user-{os.getuid()}", 0o700)
        assert json.loads(next(own.iterdir()).read_text())["found_w"] == 250


def test_a_folder_of_ones_own_that_others_have_laid_is_not_trusted(fake_gpus, tmp_path):
    folder = tmp_path / "volume"
    (folder / "elsewhere").mkdir(parents=True)
    folder.chmod(0o777)
    (folder / f"user-{os.getuid()}").symlink_to("elsewhere")
    limiter = open_limiter(os.environ | {"ZEUS_KFP_LIMITS_FOLDER": str(folder)})
    assert "must belong to user" in limiter.why_not
    assert not list((folder / "elsewhere").iterdir())


def test_a_look_after_what_was_left_does_not_stand_in_a_trials_way(fake_gpus, tmp_path):
    with closing(open_limiter()):
        pass
    [path] = (tmp_path / "limits").iterdir()
    looking = FoundFile(path)
    threading.Timer(0.1, looking.close).start()
    with closing(open_limiter()) as limiter:
        assert limiter.name == "nvml"


def test_a_limit_that_is_held_after_all_should_have_ended_is_named(fake_gpus, caplog):
    with closing(open_limiter()) as limiter:
        limiter.set(150)
        repair_limits(patience_s=0.05)
        assert f"process {os.getpid()} still holds the power limit of GPU-00345678-fake, which was 250 W" in caplog.text
        assert fake_gpus.limits_w() == [150]
        caplog.clear()
        repair_limits(os.environ | {"CUDA_VISIBLE_DEVICES": ""}, patience_s=0.05)
        repair_limits()
        assert not caplog.records


def test_a_process_that_training_forked_does_not_keep_the_limit_when_it_is_killed(fake_gpus, set_and):
    code = """
child = os.fork()
if not child:
    signal.pause()
print(child, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    with subprocess.Popen(
        [sys.executable, "-c", SET_AND.format(code=code)], env=fake_gpus.environ, stdout=subprocess.PIPE, text=True
    ) as process:
        worker = int(process.stdout.readline())
        process.wait()
        assert fake_gpus.limits_w() == [150]
        repair_limits(patience_s=1.0)
        os.kill(worker, signal.SIGKILL)
    assert fake_gpus.limits_w() == [250]


def test_a_limit_that_does_not_come_back_at_once_is_put_back_again(fake_gpus, caplog):
    limiter = open_limiter()
    limiter.set(150)
    fake_gpus.set(SET="ignored")
    real, tries = limiter._setter.set_limit, []

    def late(gpu, power_limit_w):
        tries.append(power_limit_w)
        fake_gpus.set(SET="ignored" if len(tries) < 3 else None)
        real(gpu, power_limit_w)

    limiter._setter.set_limit = late
    limiter.close()
    assert (tries, fake_gpus.limits_w(), caplog.records) == ([250, 250, 250], [250], [])


def test_what_could_not_be_put_back_is_said_once_and_tried_again(fake_gpus, caplog):
    limiter = open_limiter()
    limiter.set(150)
    fake_gpus.set(SET="denied")
    limiter.restore()
    assert limiter.is_over
    limiter.restore()
    assert caplog.text.count("the 250 W found on GPU 0 can't be put back") == 1
    fake_gpus.set(SET=None)
    limiter.close()
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
