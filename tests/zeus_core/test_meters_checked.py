import pytest

from zeus_kfp.zeus_core.meters import open_meter
from zeus_kfp.zeus_core.meters.checked import CheckedMeter, SecondCount


class Scripted:
    estimated, accelerator, accelerator_count, max_power_w, power_limit_w = False, "GPU", 2, 300.0, None
    shortest_window_s, settling_s = 1.0, 0.2

    def __init__(self, name, readings):
        self.name, self.readings, self.is_closed = name, iter(readings), False

    def energy_j(self):
        return next(self.readings)

    def close(self):
        self.is_closed = True


def read_twice(first_j, second_j, time_s):
    meter = CheckedMeter(Scripted("nvml", first_j), Scripted("nvml-polling", second_j), iter([0.0, time_s]).__next__)
    return [meter.energy_j() for _ in first_j]


@pytest.mark.parametrize(
    ("first_j", "second_j", "time_s", "warns"),
    [
        ([100, 1100], [0, 1000], 10, False),
        ([100, 1100], [0, 501], 10, False),
        ([100, 1100], [0, 500], 10, True),
        ([100, 600], [7, 1007], 10, True),
        ([0, 0], [0, 1000], 10, True),
        ([0, 1000], [0, 0], 10, True),
        ([0, 1000], [0, 0], 4, False),
    ],
)
def test_sources_that_disagree_by_half_or_more_are_named(caplog, first_j, second_j, time_s, warns):
    assert read_twice(first_j, second_j, time_s) == first_j
    assert bool(caplog.records) is warns
    if warns:
        assert "nvml and nvml-polling disagree about the energy of 2 x GPU in 10 s" in caplog.text


def test_it_warns_once_and_closes_both(caplog):
    first, second = Scripted("nvml", range(0, 900, 100)), Scripted("nvml-polling", [0] * 9)
    meter = CheckedMeter(first, second, iter(range(0, 180, 20)).__next__)
    for _ in range(9):
        meter.energy_j()
    meter.close()
    assert len(caplog.records) == 1
    assert (first.is_closed, second.is_closed) == (True, True)


def test_a_source_that_knows_nothing_checks_nothing(caplog):
    first, second = Scripted("nvml", [0, None, 5]), Scripted("nvml-polling", [None, None])
    meter = CheckedMeter(first, second, iter([0.0, 100.0]).__next__)
    assert [meter.energy_j() for _ in range(3)] == [0, None, 5]
    assert not caplog.records


def test_the_counter_of_a_gpu_is_checked_by_its_power(fake_gpus):
    meter = open_meter()
    assert isinstance(meter, CheckedMeter)
    assert (meter.name, meter.second.name) == ("nvml", "nvml-polling")
    meter.close()
    assert (meter.energy_j(), meter.second.energy_j()) == (None, None)


@pytest.mark.parametrize(("readings", "energy_j"), [([70, 100], 30), ([None, 100], None), ([70, None], None)])
def test_the_second_energy_counts_from_a_moment_on(readings, energy_j):
    meter = CheckedMeter(Scripted("nvml", []), Scripted("nvml-polling", readings))
    assert SecondCount(meter).so_far() == (energy_j, "nvml-polling")


def test_what_nothing_checks_has_no_second_energy():
    assert SecondCount(Scripted("rapl", [])).so_far() == (None, "")
