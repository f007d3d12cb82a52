"""RAPL, on a folder that looks like /sys/class/powercap."""

import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus_kfp.zeus_core.meters import open_meter
from zeus_kfp.zeus_core.meters.rapl import RaplUnavailableError, Zone, open_rapl

RANGE_UJ = 262_143_328_850


class Powercap:
    """A machine with two packages, memory under one of them, and zones that must not be counted."""

    def __init__(self, root):
        self.root = root
        for name, kind in {
            "intel-rapl:0": "package-0",
            "intel-rapl:0:0": "core",
            "intel-rapl:0:1": "dram",
            "intel-rapl:1": "package-1",
            "intel-rapl:2": "psys",
            "intel-rapl-mmio:0": "package-0",
        }.items():
            parent = root / ":".join(name.split(":")[:2]) if name.count(":") == 2 else root
            (parent / name).mkdir(parents=True)
            self.write(name, "name", kind)
            self.write(name, "max_energy_range_uj", RANGE_UJ)
            self.write(name, "energy_uj", 1_000_000)
            if kind.startswith("package"):
                self.write(name, "constraint_0_max_power_uw", 100_000_000)

    def folder(self, name):
        return self.root / ":".join(name.split(":")[:2]) / name if name.count(":") == 2 else self.root / name

    def write(self, name, file, value):
        (self.folder(name) / file).write_text(f"{value}\n")

    def open(self, **changes):
        usual = {"accelerator": "CPU", "core_count": 8, "rated_power_w": 80.0, "interval_s": float("inf")}
        return open_rapl(self.root, **usual | changes)


@pytest.fixture
def powercap(tmp_path):
    return Powercap(tmp_path / "powercap")


def test_packages_and_memory_are_summed_and_nothing_twice(powercap):
    meter = powercap.open()
    assert meter.energy_j() == 0.0
    for index, name in enumerate(("intel-rapl:0", "intel-rapl:0:0", "intel-rapl:0:1", "intel-rapl:1", "intel-rapl:2")):
        powercap.write(name, "energy_uj", 1_000_000 + 10**index * 1_000_000)
    powercap.write("intel-rapl-mmio:0", "energy_uj", 10**10)
    assert meter.energy_j() == 1 + 100 + 1000
    assert (meter.name, meter.estimated, meter.max_power_w, meter.accelerator_count) == ("rapl", False, 200.0, 8)


def test_a_counter_that_restarts_goes_on(powercap):
    powercap.write("intel-rapl:1", "energy_uj", RANGE_UJ - 2_000_000)
    meter = powercap.open()
    powercap.write("intel-rapl:1", "energy_uj", 3_000_000)
    assert meter.energy_j() == pytest.approx(5.0)
    powercap.write("intel-rapl:1", "energy_uj", 4_000_000)
    assert meter.energy_j() == pytest.approx(6.0)


@given(st.integers(0, RANGE_UJ), st.lists(st.integers(0, RANGE_UJ // 2), max_size=20))
def test_any_run_of_a_counter_is_summed_up(tmp_path_factory, start, gains):
    zone = Zone(tmp_path_factory.getbasetemp(), RANGE_UJ)
    total, position = 0, start % RANGE_UJ
    for gain in gains:
        following = (position + gain) % RANGE_UJ
        total += zone.gained_uj(position, following)
        position = following
    assert total == sum(gains)


@pytest.mark.parametrize(
    ("before", "now", "gained"),
    [(1000, 400, 400), (RANGE_UJ // 2 - 1, 0, 0), (RANGE_UJ - 1000, 400, 1400), (RANGE_UJ - 1, 0, 1)],
)
def test_a_counter_that_was_set_to_zero_did_not_come_to_its_end(tmp_path, before, now, gained):
    assert Zone(tmp_path, RANGE_UJ).gained_uj(before, now) == gained


def test_a_reading_that_fails_is_none_and_the_next_makes_up_for_it(powercap):
    meter = powercap.open()
    powercap.write("intel-rapl:0", "energy_uj", "")
    assert meter.energy_j() is None
    powercap.write("intel-rapl:0", "energy_uj", 3_000_000)
    assert meter.energy_j() == 2.0
    meter.close()
    meter.close()
    assert meter.energy_j() is None


def test_it_is_read_from_time_to_time_so_that_no_restart_is_missed(powercap, monkeypatch):
    read = threading.Event()
    real = Zone.energy_uj
    monkeypatch.setattr(Zone, "energy_uj", lambda zone: read.set() or real(zone))
    meter = powercap.open(interval_s=0.001)
    read.clear()
    assert read.wait(10)
    meter.close()


@pytest.mark.parametrize("content", ["", "many", None])
def test_a_machine_whose_counters_cannot_be_read_has_no_rapl(powercap, content):
    if content is None:
        (powercap.folder("intel-rapl:0:1") / "energy_uj").unlink()
    else:
        powercap.write("intel-rapl:0:1", "energy_uj", content)
    with pytest.raises(RaplUnavailableError, match="RAPL can't be read"):
        powercap.open()


def test_a_machine_without_powercap_has_no_rapl(tmp_path):
    with pytest.raises(RaplUnavailableError, match="there is no RAPL in"):
        open_rapl(tmp_path / "none", accelerator="", core_count=1, rated_power_w=1.0)


def test_a_rated_power_that_is_not_told_is_replaced(powercap):
    powercap.write("intel-rapl:1", "constraint_0_max_power_uw", 0)
    assert powercap.open().max_power_w == 80.0


def test_without_a_gpu_rapl_comes_before_the_estimate(powercap):
    meter = open_meter({"ZEUS_KFP_RAPL_FOLDER": str(powercap.root)})
    assert (meter.name, meter.energy_j()) == ("rapl", 0.0)
    meter.close()
    assert open_meter({"ZEUS_KFP_RAPL_FOLDER": str(powercap.root / "none")}).name == "estimate"


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_a_counter_that_only_root_may_read_is_passed_over(powercap):
    (powercap.folder("intel-rapl:0") / "energy_uj").chmod(0o000)
    assert open_meter({"ZEUS_KFP_RAPL_FOLDER": str(powercap.root)}).name == "estimate"


def test_gpus_that_cannot_be_read_are_not_left_to_rapl(fake_gpus, powercap, monkeypatch):
    fake_gpus.set(ENERGY="unsupported", POWER="unsupported")
    monkeypatch.setenv("ZEUS_KFP_RAPL_FOLDER", str(powercap.root))
    assert open_meter().name == "estimate"
