"""Recorded traces of training."""

import pytest


@pytest.fixture
def trace_files(shared_data):
    """Return a function that gives the files of what training and its power were on a kind of GPU."""
    return lambda gpu: tuple(shared_data(f"zeus-traces/summary_{name}.csv") for name in ("train", f"power_{gpu}"))
