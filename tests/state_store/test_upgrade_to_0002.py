"""A store of the first schema goes on where it was: its period begun, its data not made again."""

import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import column as name_of
from sqlalchemy import insert, select, table, text
from sqlalchemy.engine import Connection

from zeus_kfp.state_store import StateStore, schema
from zeus_kfp.state_store.database import Database
from zeus_kfp.state_store.generators import seeded_state
from zeus_kfp.state_store.rows import knobs_of
from zeus_kfp.state_store.tables import JOB, RECURRENCE
from zeus_kfp.zeus_core import JobSpec

SPEC = JobSpec("job", (8, 16), 16, target_metric=0.9, period_s=7 * 86_400.0)
NEW = {
    "max_concurrent_recurrences_per_user", "period_s", "preprocess_every", "period_began_at", "clock_back_at",
    "data_version", "data_began_number", "why", "ended_by_hand", "counted_from", "power_objective",
    "max_step_time_s", "hopeless_stop",
}  # fmt: skip
OPENED_AT = datetime(2026, 1, 1, tzinfo=UTC)


def put(connection: Connection, of, **values):
    typed = [c for c in of.columns if c.name in values and c.name not in NEW]
    old = table(of.name, *(name_of(c.name, c.type) for c in typed))
    connection.execute(insert(old).values(**{c.name: values[c.name] for c in typed}))


@pytest.fixture
def old_store(store_url):
    """Return the URL of a store of schema 0001 with a job of two recurrences and one without any."""
    database = Database(store_url)
    with database.connection(write=True) as connection:
        migrate(connection, "0001")
        for job_id, count in (("job", 2), ("young", 0)):
            values = knobs_of(dataclasses.replace(SPEC, job_id=job_id)) | {
                "phase": "running", "generation": 0, "data_generation": 4, "rated_power_w": 0.0,
                "recurrence_count": count, "trial_count": 0, "report_count": 0,
                "generator_state": seeded_state(1), "created_at": OPENED_AT,
            }  # fmt: skip
            put(connection, JOB, **values)
        for number, version in ((1, "v-1"), (2, "v-2")):
            put(
                connection, RECURRENCE, job_id="job", run_id=f"run-{number}", number=number, state="reached",
                data_epoch=f"{version}-4", data_missing=False, opened_at=OPENED_AT + timedelta(days=number),
                lease_expires_at=OPENED_AT + timedelta(days=number), closed_at=OPENED_AT + timedelta(days=number),
            )  # fmt: skip
    database.close()
    return store_url


def migrate(connection, version):
    config = Config()
    config.set_main_option("script_location", str(Path(schema.__file__).parent / "migrations"))
    config.attributes.update(connection=connection, version_table=schema.VERSION_TABLE)
    command.upgrade(config, version)


def test_the_old_store_has_none_of_the_new_columns(old_store):
    with Database(old_store).connection(write=False) as connection:
        assert connection.execute(text(f"SELECT version_num FROM {schema.VERSION_TABLE}")).scalar() == "0001"
        with pytest.raises(Exception, match="period_s"):
            connection.execute(select(JOB)).all()


def test_an_upgraded_job_goes_on_from_its_latest_recurrence(old_store, clock):
    with StateStore(old_store, clock=clock) as store:
        assert store.recurrence("job", "run-1").why == "" and store.job("young").next_due_at is None
        assert store.job("job").spec.period_s == 0.0
        clock.now = OPENED_AT + timedelta(days=8)
        assert not store.open_recurrence(SPEC, "early", data_version="v-2").granted
        assert store.job("job").next_due_at == OPENED_AT + timedelta(days=9)
        opened = store.open_recurrence(SPEC, "new-data", data_version="v-3")
        assert opened.granted and opened.data_epoch == "v-3-4"
        unstated = store.open_recurrence(dataclasses.replace(SPEC, job_id="young"), "first")
        assert unstated.granted and unstated.data_epoch == "-4"
