import os
import threading

import pytest

from zeus_kfp.zeus_core.meters.polling import PollingMeter
from zeus_kfp.zeus_core.training.instrument import Instrument
from zeus_kfp.zeus_core.training.windows import Windows


class Source:
    model, count, max_power_w, power_limit_w = "Old GPU", 1, 250.0, None

    def __init__(self, powers_w):
        self.powers_w = iter(powers_w)
        self.is_closed = False
        self.was_asked_thrice = threading.Event()
        self.times_asked = 0

    def power_w(self):
        self.times_asked += 1
        if self.times_asked == 3:
            self.was_asked_thrice.set()
        return next(self.powers_w, 200.0)

    def close(self):
        self.is_closed = True


def meter_of(powers_w, times_s):
    return PollingMeter(Source(powers_w), interval_s=float("inf"), clock=iter(times_s).__next__)


@pytest.mark.parametrize(
    ("powers_w", "times_s", "energy_j"),
    [
        ([200, 200], [0, 10], 2000),
        ([100, 300], [5, 6], 200),
        ([100, 300, 300], [0, 1, 2], 500),
        ([100, None, 100], [0, 1, 2], 200),
        ([None, 100, 100], [0, 3, 5], 200),
    ],
)
def test_power_is_integrated_over_time(powers_w, times_s, energy_j):
    meter = meter_of(powers_w, times_s)
    readings = [meter.energy_j() for _ in powers_w[1:]]
    assert readings[-1] == energy_j


def test_power_that_cannot_be_read_now_gives_none_and_not_zero():
    assert meter_of([100, None], [0, 1]).energy_j() is None


def test_a_thread_polls_until_the_meter_is_closed():
    source = Source([])
    meter = PollingMeter(source, interval_s=0.001)
    assert source.was_asked_thrice.wait(10)
    meter.close()
    meter.close()
    assert source.is_closed
    assert meter.energy_j() is None


def test_a_forked_process_measures_nothing_and_waits_for_no_thread_that_it_has_not():
    meter = PollingMeter(Source([]), interval_s=float("inf"))
    with meter._lock:
        child = os.fork()
        if not child:
            is_none = meter.energy_j() is None
            meter.close()
            os._exit(0 if is_none else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert meter.energy_j() is not None


class AveragingGpu(Source):
    """A GPU whose power goes from 100 to 300 W at second 0, and that tells the mean of the last second, as many do."""

    def __init__(self):
        super().__init__([])
        self.now_s = 0.0

    def power_w(self):
        return 100 + 200 * min(self.now_s, 1.0)

    def clock(self):
        return self.now_s


def test_once_it_has_settled_a_window_shows_the_new_power_alone():
    gpu = AveragingGpu()
    meter = PollingMeter(gpu, interval_s=float("inf"), clock=gpu.clock)
    readings_j = {}
    for tenths in range(40):
        gpu.now_s = tenths / 10
        readings_j[tenths] = meter.energy_j()
    first, last = round(meter.settling_s * 10), round((meter.settling_s + meter.shortest_window_s) * 10)
    assert readings_j[last] - readings_j[first] == pytest.approx(300 * meter.shortest_window_s)
    assert readings_j[first] < 250


@pytest.mark.parametrize(("time_s", "is_trusted"), [(0.5, False), (1.0, False), (1.9, False), (2.0, True)])
def test_a_window_not_much_longer_than_the_time_that_power_is_averaged_over_is_not_trusted(time_s, is_trusted):
    gpu = AveragingGpu()
    windows = Windows(Instrument(PollingMeter(gpu, interval_s=float("inf"), clock=gpu.clock), gpu.clock, lambda: None))
    windows.begin("step")
    gpu.now_s += time_s
    assert windows.end("step").is_trusted is is_trusted
