"""Processes for the tests of the store."""

import multiprocessing

import pytest

PROCESSES = 8


@pytest.fixture(scope="module")
def pool():
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        pool.map(abs, range(PROCESSES), chunksize=1)
        yield pool
