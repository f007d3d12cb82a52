"""A process of its own that sets power limits, and recorded sweeps over them."""

import subprocess

import pytest

from tests.zeus_core.power.bench import Bench
from tests.zeus_core.power.setting import set_and_command


@pytest.fixture
def bench(fake_gpus, tmp_path):
    return Bench(fake_gpus, tmp_path)


@pytest.fixture
def set_and(fake_gpus):
    """Run code in a process that has set 150 W; return its exit code and what it wrote."""

    def run(code):
        done = subprocess.run(set_and_command(code), env=fake_gpus.environ, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.fixture(
    params=[
        "V100+bert-base-uncased+gpu0",
        "V100+resnet18+gpu0",
        "V100+resnet18+gpu0,1",
        "V100+resnet50+gpu0",
        "V100+resnet50+gpu0,1",
        "V100+shufflenetv2+gpu0",
    ]
)
def recorded_sweep(request, shared_data):
    """Return the file of a recorded sweep, for each in turn."""
    return shared_data(f"zeus-power-sweeps/{request.param}.csv")
