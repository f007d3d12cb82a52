"""A trial that the events of a framework drive, on the fake GPU."""

import pytest

from zeus_kfp.zeus_core.power import open_limiter
from zeus_kfp.zeus_core.profile import Phase
from zeus_kfp.zeus_core.training import Trial
from zeus_kfp.zeus_core.training.driver import EpochDriver
from zeus_kfp.zeus_core.training.summary import Ending, Summary


@pytest.fixture
def driver(fake_gpus, tmp_path):
    return EpochDriver(Trial.local(batch_size=4, target_metric=1.0, max_epochs=3, directory=tmp_path))


def step(driver, fake_gpus):
    driver.step(Phase.TRAIN, 4, None)
    fake_gpus.work(0.5)


def never_begin(driver, fake_gpus):
    pass


def leave_in_an_epoch(driver, fake_gpus):
    driver.begin()
    step(driver, fake_gpus)


def reach_the_target(driver, fake_gpus):
    leave_in_an_epoch(driver, fake_gpus)
    driver.report({"accuracy": 1.0}, "accuracy")
    driver.end_epoch()


@pytest.mark.parametrize(
    ("train", "epochs", "reason"),
    [
        (never_begin, 0, "the training code never began trial.epochs()"),
        (leave_in_an_epoch, 0, "the training loop was left in epoch 1"),
        (reach_the_target, 1, "target reached"),
    ],
)
def test_whenever_training_ends_meter_and_gpu_are_given_back(driver, fake_gpus, tmp_path, train, epochs, reason):
    train(driver, fake_gpus)
    meter = driver.trial._instrument.meter
    assert meter.energy_j() is not None
    driver.end()
    driver.end()
    assert meter.energy_j() is None
    assert fake_gpus.limits_w() == [250]
    told = Summary.read(tmp_path / "summary.json")
    assert (told.ending, told.epochs, told.reason) == (Ending.ENDED, epochs, reason)
    again = open_limiter()
    again.close()
    assert again.name == "nvml"
