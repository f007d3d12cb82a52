"""Every schema that was released is upgraded, whoever starts first, with nothing lost."""

import dataclasses
import multiprocessing
import sqlite3

import psycopg2
import pytest

from tests.state_store.driving import NOT_REACHED, SPEC, run_whole_script
from tests.state_store.dumping import RECURRENCES, RELEASED
from zeus_kfp.state_store import StateStore
from zeus_kfp.state_store.schema import VERSIONS


@pytest.fixture(scope="module")
def pool():
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        yield pool


def load(url, version):
    """Fill an empty database with the dump of a released schema."""
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            connection.executescript((RELEASED / f"{version}.sqlite.sql").read_text())
    else:
        with psycopg2.connect(url) as connection:
            connection.cursor().execute((RELEASED / f"{version}.postgresql.sql").read_text())


def upgrade(url):
    with StateStore(url) as store:
        store.upgrade()
        return store.check()


def kept(url):
    with StateStore(url) as store:
        recurrences = [dataclasses.replace(recurrence, why="") for recurrence in store.recurrences("job")]
        return recurrences, store.trials("job"), store.profiles("job"), store.learnt("job")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_released_schema_is_upgraded_by_four_at_once_and_goes_on(new_store_url, pool, version):
    url, fresh = new_store_url(), new_store_url()
    load(url, version)
    assert pool.map(upgrade, [url] * 4, chunksize=1) == [VERSIONS[-1]] * 4
    run_whole_script(fresh, RECURRENCES)
    assert kept(url) == kept(fresh), "what the dump held is what today's code would have kept"
    with StateStore(url) as store:
        before = store.job("job").trial_count
        store.open_recurrence(SPEC, "after")
        for number in range(10):
            store.open_recurrence(SPEC, f"after-{number}")
            assert store.suggest("job", f"after-{number}", 1).number == before + number + 1
            store.report("job", f"after-{number}", 1, NOT_REACHED)
        assert store.learnt("job") == store.learnt_from_rows("job")


def test_every_released_schema_has_its_dumps():
    names = {f"{version}.{database}.sql" for version in VERSIONS for database in ("sqlite", "postgresql")}
    assert {path.name for path in RELEASED.glob("*.sql")} == names
