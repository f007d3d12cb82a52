import os
import threading

import pytest

from zeus_kfp.zeus_core.meters.polling import PollingMeter


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
