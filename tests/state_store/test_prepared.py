"""A connection's server prepares what is sent to it often, and only where it stays that server's."""

from pathlib import Path

import pytest
from sqlalchemy import make_url, text, update

from tests.state_store.driving import NOT_REACHED, SPEC, check_books, run_trials
from tests.state_store.servers import pooler
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
