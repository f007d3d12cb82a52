"""A process of its own that sets power limits."""

import subprocess

import pytest

from tests.zeus_core.power.setting import set_and_command


@pytest.fixture
def set_and(fake_gpus):
    """Run code in a process that has set 150 W; return its exit code and what it wrote."""

    def run(code):
        done = subprocess.run(set_and_command(code), env=fake_gpus.environ, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    return run
