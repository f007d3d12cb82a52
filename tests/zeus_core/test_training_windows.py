import pytest

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.training.instrument import Instrument
from zeus_kfp.zeus_core.training.windows import Window, Windows


class Machine:
    name, estimated, shortest_window_s = "nvml", False, 1.0

    def __init__(self):
        self.now_s, self.total_j, self.waits = 0.0, 0.0, 0

    def energy_j(self):
        return self.total_j

    def work(self, energy_j, time_s):
        self.total_j = None if energy_j is None or self.total_j is None else self.total_j + energy_j
        self.now_s += time_s

    def wait(self):
        self.waits += 1


@pytest.fixture
def machine():
    return Machine()


@pytest.fixture
def windows(machine):
    return Windows(Instrument(machine, lambda: machine.now_s, machine.wait))


def test_windows_nest_and_overlap(windows, machine):
    windows.begin("epoch")
    machine.work(10, 1)
    windows.begin("step")
    machine.work(20, 2)
    windows.begin("other")
    machine.work(30, 3)
    assert windows.end("step") == Window("step", 50.0, 5.0, "nvml", True)
    machine.work(40, 4)
    assert windows.end("epoch") == Window("epoch", 100.0, 10.0, "nvml", True)
    assert windows.end("other") == Window("other", 70.0, 7.0, "nvml", True)
    # The GPU was waited for before each reading.
    assert machine.waits == 6


def test_a_window_too_short_to_be_trusted_is_marked(windows, machine):
    windows.begin("step")
    machine.work(10, 0.9)
    assert windows.end("step") == Window("step", 10.0, 0.9, "nvml", False)


def test_energy_that_cannot_be_known_is_none_and_not_zero(windows, machine):
    windows.begin("step")
    machine.work(None, 2.0)
    assert windows.end("step") == Window("step", None, 2.0, "nvml", False)


def test_a_counter_that_has_not_moved_tells_nothing(windows, machine):
    windows.begin("step")
    machine.work(0, 2.0)
    assert windows.end("step") == Window("step", None, 2.0, "nvml", False)


def test_an_estimate_is_not_trusted(windows, machine):
    machine.estimated = True
    windows.begin("step")
    machine.work(10, 2.0)
    assert not windows.end("step").is_trusted


def test_a_name_is_used_for_one_window_at_a_time(windows):
    windows.begin("step")
    with pytest.raises(InvalidValueError, match="the window 'step' is open already"):
        windows.begin("step")
    with pytest.raises(InvalidValueError, match=r"there is no open window 'epoch'; open are \['step'\]"):
        windows.end("epoch")
    windows.end("step")
    windows.begin("step")


@pytest.mark.parametrize("name", ["", None, 3, "x" * 300, "a\0b"])
def test_a_name_that_is_none_is_refused(windows, name):
    with pytest.raises(InvalidValueError, match="name of a window"):
        windows.begin(name)
