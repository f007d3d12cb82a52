"""GPUs that others use or whose limit others set: strangers, other trials of the process, administrators."""

import subprocess
import sys
from contextlib import closing

import pytest

from tests.zeus_core.power.setting import administrator_sets
from zeus_kfp.zeus_core.power import open_limiter, repair_limits

# A launcher as torchrun is one: every rank leads a session of its own, and has the launcher for its parent.
LAUNCHER = """
import os, subprocess, sys
rank_1 = subprocess.Popen(["sleep", "600"], start_new_session=True)
code = "from zeus_kfp.zeus_core.power import open_limiter as o; limiter = o(); print(limiter.name, limiter.why_not)"
environ = os.environ | {"FAKE_NVML_PROCESS": str(rank_1.pid)}
subprocess.run([sys.executable, "-c", code], env=environ, start_new_session=True)
rank_1.kill()
"""


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


def test_what_an_administrator_sets_after_a_trial_stays_though_the_trial_had_set_it_too(fake_gpus):
    with closing(open_limiter()) as limiter:
        limiter.set(150)
    administrator_sets(fake_gpus, 150)
    repair_limits()
    with closing(open_limiter()) as limiter:
        assert limiter.found_w == 150
    assert fake_gpus.limits_w() == [150]
