"""A connection's server prepares what is sent to it often, and only where it stays that server's."""

import dataclasses
import re
from pathlib import Path

import psycopg2
import pytest
from sqlalchemy import make_url, text, update

from tests.state_store import test_long_history
from tests.state_store.driving import NOT_REACHED, SPEC, check_books, run_trials
from tests.state_store.servers import pooler
from tests.state_store.test_long_history import refresh, with_history, work_of
from tests.state_store.test_server_settings import check_that_what_is_given_comes_back
from zeus_kfp.state_store import StateStore, prepared
from zeus_kfp.state_store.tables import JOB
from zeus_kfp.zeus_core import Profile
from zeus_kfp.zeus_core.errors import InvalidValueError

JUST_THIS = update(JOB).values(phase=JOB.c.phase)


@pytest.fixture
def url(new_postgresql):
    return new_postgresql()


@pytest.fixture
def at_once(monkeypatch):
    """Let everything be prepared on its first use."""
    monkeypatch.setattr(prepared, "_USES_BEFORE", 0)


def prepared_by(store):
    """Return how often each statement was executed that the server has prepared for a store's connection."""
    with store._database.transaction(write=False) as transaction:
        transaction.flush()
        transaction._cursor.execute("SELECT generic_plans + custom_plans FROM pg_prepared_statements")
        return [executed for (executed,) in transaction._cursor.fetchall()]


def test_what_is_sent_often_is_prepared_and_gives_the_same(url, new_postgresql):
    with StateStore(url) as store, StateStore(new_postgresql()) as other:
        run_trials(store, 20)
        executed = prepared_by(store)
        assert len(executed) >= 10 and max(executed) == 35  # twice a trial, but for the first five times
        check_books(store, 20)
        for number in range(20):
            run_trials(other, 1, f"run-{number}")
            other.close()
        assert prepared_by(other) == []
        assert other.learnt("job") == store.learnt("job")


def test_the_few_operations_of_a_pod_prepare_nothing(url):
    with StateStore(url) as store:
        store.open_recurrence(SPEC, "run")
        store.suggest("job", "run", 1)
        store.report("job", "run", 1, NOT_REACHED)
        assert prepared_by(store) == []


@pytest.mark.usefixtures("at_once")
def test_what_is_given_comes_back_whatever_is_prepared(url):
    check_that_what_is_given_comes_back(url)
    with StateStore(url) as store:
        run_trials(store, 3)
        check_books(store, 3)


@pytest.mark.parametrize("pool_mode", ["session", "transaction"])
@pytest.mark.usefixtures("at_once")
def test_nothing_is_prepared_behind_a_pooler(url, postgresql_folder, pool_mode):
    with pooler(make_url(url), Path(postgresql_folder), pool_mode) as pooled, StateStore(pooled) as store:
        run_trials(store, 12)
        assert prepared_by(store) == []
        check_books(store, 12)


@pytest.mark.usefixtures("at_once")
def test_no_more_than_so_many_are_prepared(url, monkeypatch):
    monkeypatch.setattr(prepared, "_MOST", 3)
    with StateStore(url) as store:
        run_trials(store, 5)
        assert len(prepared_by(store)) == 3
        check_books(store, 5)


@pytest.mark.usefixtures("at_once")
def test_a_transaction_that_failed_leaves_no_statement_that_is_only_thought_to_be_there(url):
    with StateStore(url) as store:
        store.open_recurrence(SPEC, "run")
        store.suggest("job", "run", 1)
        with pytest.raises(InvalidValueError, match="no profiles of"):
            store.report("job", "run", 1, NOT_REACHED, [Profile(99, "train", 100.0, 200.0, 1000.0)])
        store.report("job", "run", 1, NOT_REACHED)
        run_trials(store, 3, "after")
        check_books(store, 4)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("is_sent", [False, True])
def test_an_interrupt_while_another_is_dealt_with_leaves_none_either(url, monkeypatch, is_sent):
    def interrupted(_):
        monkeypatch.undo()
        raise KeyboardInterrupt

    with StateStore(url) as store:
        run_trials(store, 1)
        monkeypatch.setattr("sqlalchemy.pool.base._ConnectionFairy.invalidate", interrupted)
        with pytest.raises(KeyboardInterrupt), store._database.transaction(write=True) as transaction:
            transaction.write(JUST_THIS)
            if is_sent:
                transaction.flush()
            raise KeyboardInterrupt
        for _ in range(2):
            with store._database.transaction(write=True) as transaction:
                transaction.write(JUST_THIS)
        run_trials(store, 1, "after")
        check_books(store, 2)


@pytest.mark.usefixtures("at_once")
def test_a_column_that_newer_code_adds_changes_nothing(url):
    with StateStore(url) as store, StateStore(url) as newer:
        run_trials(store, 3)
        with newer._database.connection(write=True) as connection:
            for table in ("job", "recurrence", "trial", "arm"):
                connection.execute(text(f"ALTER TABLE {table} ADD COLUMN later integer DEFAULT 7"))
        run_trials(store, 3, "after")
        check_books(store, 6)


@pytest.mark.parametrize(
    "change",
    ["DEALLOCATE ALL", "DISCARD ALL", "ALTER TABLE trial ALTER number TYPE bigint, ALTER batch_size TYPE bigint"],
)
def test_a_statement_that_is_gone_or_gives_other_types_is_tried_again(url, change):
    with StateStore(url) as store:
        run_trials(store, 12)
        with store._database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text(change))
        run_trials(store, 3, "after")
        check_books(store, 15)


def test_what_is_prepared_under_a_name_is_what_is_meant_on_any_connection(url):
    def named(store):
        with store._database.transaction(write=False) as transaction:
            transaction.flush()
            transaction._cursor.execute("SELECT statement FROM pg_prepared_statements")
            # What was sent with each, too.
            sent = "".join(statement for (statement,) in transaction._cursor.fetchall())
            return dict(re.findall(r"PREPARE (\w+) AS (.*?);\n", sent, re.DOTALL))

    with StateStore(url) as store, StateStore(url) as other:
        run_trials(store, 12)
        for _ in range(12):
            assert len(other.trials("job")) == 12
        mine, others = named(store), named(other)
        assert len(set(mine) | set(others)) == len(set(mine.values()) | set(others.values())) > len(mine)


@pytest.mark.usefixtures("at_once")
def test_a_transaction_that_failed_and_was_not_ended_is_no_obstacle(url, monkeypatch):
    def interrupted(_):
        monkeypatch.undo()
        raise KeyboardInterrupt

    with StateStore(url) as store:
        store.upgrade()
        monkeypatch.setattr("sqlalchemy.pool.base._ConnectionFairy.invalidate", interrupted)
        with pytest.raises(KeyboardInterrupt), store._database.transaction(write=True) as transaction:
            transaction.flush()
            with pytest.raises(psycopg2.errors.DivisionByZero):
                transaction._cursor.execute("SELECT 1 / 0")
            raise KeyboardInterrupt
        monkeypatch.setattr(prepared, "_USES_BEFORE", 0)
        run_trials(store, 1)
        check_books(store, 1)


def test_no_plan_that_is_kept_walks_a_jobs_history(url, clock):
    with StateStore(url, clock=clock) as store:
        spec = dataclasses.replace(with_history(store, clock, "long", 5_000), preprocess_every=0, period_s=0)
        with store._database.connection(write=True) as connection:
            connection.execute(text("UPDATE recurrence SET data_epoch = '-0'"))
            connection.execute(text("UPDATE job SET data_generation = 0"))
        refresh(store)
        work = []
        for number in range(14):
            with work_of(store) as done:
                assert store.open_recurrence(spec, f"new-{number}").granted
                store.why_must_wait("long", f"new-{number}")
                store.suggest("long", f"new-{number}", 1)
                store.close_recurrence("long", f"new-{number}")
            work.append(done[0])
        assert prepared_by(store)
        assert max(work) < 1_000


def test_a_plan_of_a_small_table_is_not_kept_for_a_large_one(url, clock, monkeypatch):
    monkeypatch.setattr(prepared, "_TRANSACTIONS_OF_A_PLAN", 20)
    with StateStore(url, clock=clock) as store:
        run_trials(store, 15)
        refresh(store)
        run_trials(store, 15, "planned")
        # Nor does the server hear of what comes.
        monkeypatch.setattr(test_long_history, "refresh", lambda _: None)
        with_history(store, clock, "long", 5_000)
        with store._database.connection(write=True) as connection:
            for table in ("recurrence", "trial"):
                connection.execute(text(f"SELECT setval('{table}_id_seq', (SELECT max(id) FROM {table}))"))
        for number in range(10):
            run_trials(store, 1, f"later-{number}")
        with StateStore(url, clock=clock) as fresh:
            fresh.upgrade()
            with work_of(fresh) as on_a_new_connection:
                run_trials(fresh, 1, "fresh")
        with work_of(store) as done:
            run_trials(store, 1, "last")
        assert done[0] <= 1.1 * on_a_new_connection[0]
