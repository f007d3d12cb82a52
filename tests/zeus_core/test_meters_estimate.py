import os
import subprocess
import sys
import time

import pytest

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.meters import open_meter
from zeus_kfp.zeus_core.meters.estimate import EstimateMeter, open_estimate, process_tree_cpu_time_s

SPIN = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"


def meter_with(readings_s, core_power_w=10.0):
    return EstimateMeter(
        core_power_w=core_power_w, core_count=4, accelerator="CPU", cpu_time_s=iter(readings_s).__next__
    )


def test_energy_is_cpu_time_times_the_power_of_a_core():
    meter = meter_with([2.0, 5.0], core_power_w=8.0)
    first, second = meter.energy_j(), meter.energy_j()
    assert second - first == 24.0
    assert meter.max_power_w == 32.0


def test_the_total_never_falls_when_a_child_is_missed_for_a_moment():
    meter = meter_with([2.0, 1.0, 3.0])
    assert [meter.energy_j() for _ in range(3)] == [20.0, 20.0, 30.0]


def test_it_calls_itself_an_estimate_and_names_the_processor():
    meter = open_meter({"CUDA_VISIBLE_DEVICES": ""})
    assert (meter.name, meter.estimated) == ("estimate", True)
    assert meter.accelerator
    assert meter.max_power_w == 10.0 * len(os.sched_getaffinity(0))
    assert meter.energy_j() > 0


def test_a_child_counts_while_it_runs_and_after_it_has_ended():
    before = process_tree_cpu_time_s()
    own = time.process_time()
    with subprocess.Popen([sys.executable, "-c", SPIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        running = process_tree_cpu_time_s() - before - (time.process_time() - own)
        child.communicate(b"\n")
    ended = process_tree_cpu_time_s() - before - (time.process_time() - own)
    assert 0.25 < running < 2
    assert running <= ended + 0.05 < 2.1


@pytest.mark.parametrize("value", ["much", "0", "-3", "nan", "inf"])
def test_a_core_power_that_is_none_is_refused(value):
    with pytest.raises(InvalidValueError, match="ZEUS_KFP_CPU_CORE_POWER_W must be the power of a busy CPU core"):
        open_estimate({"ZEUS_KFP_CPU_CORE_POWER_W": value})


def test_the_core_power_can_be_set():
    assert open_estimate({"ZEUS_KFP_CPU_CORE_POWER_W": "2.5"}).max_power_w == 2.5 * len(os.sched_getaffinity(0))
