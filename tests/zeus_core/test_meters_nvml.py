"""The real nvidia-ml-py, on a library of our own that answers as the driver's would."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from zeus_kfp.zeus_core.meters.nvml import CounterMeter
from zeus_kfp.zeus_core.training import Trial
from zeus_kfp.zeus_core.training.summary import Summary

READ_THREE_TIMES = """
import json, logging
from zeus_kfp.zeus_core.meters import open_meter
logging.basicConfig()
meter = open_meter()
names = ("name", "estimated", "accelerator", "accelerator_count", "max_power_w", "power_limit_w")
values = {name: getattr(meter, name) for name in names} | {"readings": [meter.energy_j() for _ in range(3)]}
meter.close()
print(json.dumps(values | {"after_close": meter.energy_j()}))
"""


TRAIN_TWO_EPOCHS = """
import sys
from zeus_kfp.zeus_core.training import Trial
trial = Trial.local(batch_size=8, target_metric=1.0, directory=sys.argv[1])
for epoch in trial.epochs():
    for batch in trial.train(range(3)):
        pass
    trial.report_metric(epoch)
"""


@pytest.fixture
def measure(fake_nvml_folder):
    def run(**variables):
        kept = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
        environ = kept | {"LD_LIBRARY_PATH": str(fake_nvml_folder)} | variables
        done = subprocess.run(
            [sys.executable, "-c", READ_THREE_TIMES], env=environ, capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout) | {"warnings": done.stderr}

    return run


def test_energy_counters_of_all_gpus_are_summed(measure):
    values = measure(FAKE_NVML_GPUS="2")
    assert values["readings"] == [0.0, 3.0, 6.0]
    assert (values["name"], values["estimated"]) == ("nvml", False)
    assert (values["accelerator"], values["accelerator_count"]) == ("Fake GPU", 2)
    assert (values["max_power_w"], values["power_limit_w"]) == (600.0, 250.0)
    assert values["after_close"] is None
    assert values["warnings"] == ""


@pytest.mark.parametrize(
    ("visible", "count", "step_j"),
    [("3", 1, 4.0), ("0,2", 2, 4.0), ("GPU-77", 1, 8.0), ("MIG-part-of-5", 1, 6.0), ("1,,2", 1, 2.0)],
)
def test_only_the_gpus_of_this_process_count(measure, visible, count, step_j):
    values = measure(FAKE_NVML_GPUS="8", CUDA_VISIBLE_DEVICES=visible)
    assert values["accelerator_count"] == count
    assert values["readings"] == [0.0, step_j, 2 * step_j]


def test_a_gpu_that_others_may_have_parts_of_is_named(measure):
    values = measure(FAKE_NVML_GPUS="3", FAKE_NVML_MIG_1="on")
    assert (values["readings"], values["warnings"].count("WARNING")) == ([0.0, 6.0, 12.0], 1)
    assert "divided (MIG): GPU 1. Only a whole GPU has an energy" in values["warnings"]


@pytest.mark.parametrize(
    "variables",
    [
        {"FAKE_NVML_GPUS": "0"},
        {"FAKE_NVML_INIT": "12"},
        {"FAKE_NVML_GPUS": "8", "CUDA_VISIBLE_DEVICES": ""},
        {"FAKE_NVML_GPUS": "8", "CUDA_VISIBLE_DEVICES": "-1"},
        {"FAKE_NVML_INIT": "18", "CUDA_VISIBLE_DEVICES": ""},
    ],
)
def test_without_a_gpu_the_energy_is_estimated_in_silence(measure, variables):
    values = measure(**variables)
    assert (values["name"], values["estimated"]) == ("estimate", True)
    assert values["warnings"] == ""


@pytest.mark.parametrize(
    ("variables", "cause", "advice"),
    [
        ({}, "Driver Not Loaded", "modprobe nvidia"),
        ({"FAKE_NVML_INIT": "4"}, "Insufficient Permissions", "open /dev/nvidiactl"),
        ({"FAKE_NVML_INIT": "18"}, "version mismatch", "reboot the machine"),
        ({"FAKE_NVML_INIT": "15"}, "GPU is lost", "see what nvidia-smi"),
        ({"FAKE_NVML_INIT": "999"}, "Unknown Error", "see what nvidia-smi"),
        ({"FAKE_NVML_GPUS": "2", "FAKE_NVML_LOST_1": "yes"}, "GPU 1 can't be opened", "name the other GPUs"),
        ({"FAKE_NVML_GPUS": "2", "CUDA_VISIBLE_DEVICES": "4"}, "no GPU is visible", "this machine has 2 GPUs"),
        ({"FAKE_NVML_GPUS": "2", "CUDA_VISIBLE_DEVICES": "cuda:0"}, "no GPU is visible", "name them by their numbers"),
    ],
)
def test_gpus_that_cannot_be_opened_are_never_left_out_in_silence(measure, variables, cause, advice):
    values = measure(**variables)
    assert (values["name"], values["estimated"]) == ("estimate", True)
    assert values["warnings"].count("WARNING") == 1
    assert cause in values["warnings"]
    assert advice in values["warnings"]


@pytest.mark.parametrize(("visible", "named"), [("0,9,1", "leaves out 9,1"), ("1,MIG-gone", "leaves out MIG-gone")])
def test_what_cuda_leaves_out_of_a_list_is_named(measure, visible, named):
    values = measure(FAKE_NVML_GPUS="2", CUDA_VISIBLE_DEVICES=visible)
    assert (values["name"], values["accelerator_count"]) == ("nvml", 1)
    assert values["warnings"].count("WARNING") == 1
    assert named in values["warnings"]


@pytest.mark.parametrize("visible", ["9", "cuda:0", "MIG-gone", "0,9", "0,MIG-gone"])
def test_a_trial_says_once_what_is_wrong_with_its_list(fake_gpus, monkeypatch, caplog, tmp_path, visible):
    fake_gpus.set(GPUS="2")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    Trial.local(batch_size=4, target_metric=1, max_epochs=1, directory=tmp_path).close()
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert visible.removeprefix("0,") in warnings[0]


def test_a_lost_gpu_of_someone_else_is_no_matter(measure):
    values = measure(FAKE_NVML_GPUS="3", FAKE_NVML_LOST_0="yes", CUDA_VISIBLE_DEVICES="2,1")
    assert (values["name"], values["accelerator_count"], values["readings"]) == ("nvml", 2, [0.0, 5.0, 10.0])
    assert values["warnings"] == ""


@pytest.mark.parametrize("counter", ["unsupported", "stuck"])
def test_without_a_counter_that_counts_the_power_is_polled(measure, counter):
    values = measure(FAKE_NVML_GPUS="2", FAKE_NVML_ENERGY=counter)
    assert (values["name"], values["estimated"]) == ("nvml-polling", False)
    assert 0 < values["readings"][0] < values["readings"][2] < 300 * 10


def test_gpus_that_tell_only_how_busy_they_are_are_estimated(measure):
    unsupported = {"FAKE_NVML_ENERGY": "unsupported", "FAKE_NVML_POWER": "unsupported"}
    values = measure(FAKE_NVML_GPUS="2", FAKE_NVML_UTILISATION="50", FAKE_NVML_UTILISATION_1="100", **unsupported)
    assert (values["name"], values["estimated"], values["accelerator_count"]) == ("nvml-utilisation", True, 2)
    assert 0 < values["readings"][0] < values["readings"][2] < 450 * 10


@pytest.mark.parametrize("readings", ["unsupported", "stuck"])
def test_gpus_that_tell_nothing_are_not_taken_for_gpus_without_energy(measure, readings):
    values = measure(FAKE_NVML_GPUS="1", FAKE_NVML_ENERGY=readings, FAKE_NVML_POWER=readings)
    assert (values["name"], values["estimated"]) == ("estimate", True)
    assert "neither the energy nor the power of 1 x Fake GPU can be read" in values["warnings"]


def test_a_reading_that_fails_is_none_and_the_next_makes_up_for_it(measure):
    values = measure(FAKE_NVML_GPUS="1", FAKE_NVML_FAIL_AT="3")
    assert values["readings"] == [0.0, None, 2.0]


def test_a_counter_that_restarts_does_not_take_energy_away(measure):
    values = measure(FAKE_NVML_GPUS="1", FAKE_NVML_RESET_AT="3")
    assert values["readings"] == [0.0, None, 1.0]


@pytest.mark.parametrize(
    ("readings_j", "totals_j"),
    [
        ([500.0, 510.0, 4.0, 6.0], [0.0, 10.0, 14.0, 16.0]),
        ([500.0, 510.0, 0.0, 3.0], [0.0, 10.0, None, 13.0]),
        ([500.0, 510.0, 509.5, 512.0], [0.0, 10.0, 10.0, 12.0]),
        ([500.0, 510.0, 0.0, 512.0], [0.0, 10.0, None, 12.0]),
        ([500.0, None, 520.0], [0.0, None, 20.0]),
    ],
)
def test_a_counter_that_falls_was_reset_or_misread(readings_j, totals_j):
    readings = iter(readings_j)
    devices = SimpleNamespace(model="GPU", count=1, max_power_w=300.0, power_limit_w=None)
    devices.energies_j = lambda: [next(readings)]
    meter = CounterMeter(devices)
    assert [meter.energy_j() for _ in readings_j] == totals_j


def test_several_models_and_limits_are_named(measure):
    values = measure(FAKE_NVML_GPUS="2", FAKE_NVML_NAME_1="Other GPU", FAKE_NVML_LIMIT_MW_1="200000")
    assert values["accelerator"] == "Fake GPU + Other GPU"
    assert values["power_limit_w"] is None


def test_gpus_that_tell_no_limits_are_measured_all_the_same(measure):
    values = measure(FAKE_NVML_GPUS="1", FAKE_NVML_LIMITS="unsupported")
    assert (values["max_power_w"], values["power_limit_w"], values["name"]) == (0.0, None, "nvml")


def test_a_trial_on_gpus_is_measured_by_their_counters(fake_nvml_folder, tmp_path):
    gpus = {"LD_LIBRARY_PATH": str(fake_nvml_folder), "FAKE_NVML_GPUS": "4", "CUDA_VISIBLE_DEVICES": "2,3"}
    gpus["ZEUS_KFP_POWER_LIMITS"] = "off"
    subprocess.run([sys.executable, "-c", TRAIN_TWO_EPOCHS, tmp_path], env=os.environ | gpus, check=True)
    told = Summary.read(tmp_path / "summary.json")
    assert (told.energy_source, told.energy_estimated) == ("nvml", False)
    assert (told.accelerator, told.accelerator_count, told.max_power_w) == ("Fake GPU", 2, 600.0)
    # The two counters gain 3 J and 4 J with a reading; an epoch has one at its end and two around its batches.
    assert told.energy_j == 2 * 3 * 7.0
    # The loops lasted less than a millisecond, in which no counter can be trusted.
    assert told.profiles == ()
