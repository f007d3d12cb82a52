"""A transaction reads what it wrote, makes few trips, and leaves nothing behind where it fails."""

import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import bindparam, select, update
from sqlalchemy.exc import DBAPIError

from tests.conftest import new_postgresql_database
from tests.state_store.driving import NOT_REACHED, SPEC
from zeus_kfp.state_store import StateStore
from zeus_kfp.state_store.statements import count, find_job, rows
from zeus_kfp.state_store.tables import JOB, TRIAL
from zeus_kfp.state_store.transaction import PostgresqlTransaction
from zeus_kfp.zeus_core.errors import UnknownJobError

JOBS = select(JOB).where(JOB.c.job_id == bindparam("job_id"))
TRIALS = select(TRIAL).where(TRIAL.c.job_id == bindparam("job_id")).order_by(TRIAL.c.number)
FEW = select(TRIAL.c.metric, TRIAL.c.issued_at, TRIAL.c.curve).where(TRIAL.c.job_id == bindparam("job_id"))
CHANGE = update(TRIAL).where(TRIAL.c.job_id == bindparam("of_job"))

moments = st.datetimes(datetime(1970, 1, 2), datetime(9000, 1, 1)).map(
    lambda moment: moment.replace(tzinfo=timezone(timedelta(hours=5, minutes=45)))
)
finite = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@pytest.fixture
def store(store_url):
    with StateStore(store_url) as store:
        store.open_recurrence(SPEC, "run")
        store.suggest("job", "run", 1)
        yield store


@pytest.fixture(scope="module")
def shared_store(postgresql_uri):
    """Return one store for all examples of a test."""
    with StateStore(new_postgresql_database(postgresql_uri)) as store:
        store.open_recurrence(SPEC, "run")
        store.suggest("job", "run", 1)
        yield store


@settings(max_examples=60, deadline=None)
@given(
    metric=finite | st.sampled_from([1e308, 5e-324, -0.0, 100.0, sys.float_info.epsilon]),
    issued_at=moments,
    reason=texts,
    limits=st.dictionaries(texts, finite),
)
def test_what_is_read_in_one_trip_is_what_is_read_column_by_column(shared_store, metric, issued_at, reason, limits):
    values = {"metric": metric, "issued_at": issued_at, "reason": reason, "power_limits_found_w": limits}
    with shared_store._database.transaction(write=True) as transaction:
        transaction.write(CHANGE, {"of_job": "job", **values})
        together = transaction.read_together((JOBS, TRIALS, FEW), {"job_id": "job"})
        singly = [transaction.read(query, {"job_id": "job"}) for query in (JOBS, TRIALS, FEW)]
    for (names, records), (expected_names, expected) in zip(together, singly, strict=True):
        by_name = [dict(zip(names, record, strict=True)) for record in records]
        assert by_name == [dict(zip(expected_names, record, strict=True)) for record in expected]
        assert [[type(v) for v in record] for record in records] == [[type(v) for v in record] for record in expected]
    (trial,) = [dict(zip(together[1][0], record, strict=True)) for record in together[1][1]]
    assert (trial["metric"], trial["issued_at"], trial["reason"]) == (metric, issued_at, reason)
    assert trial["power_limits_found_w"] == limits
    assert trial["issued_at"].tzinfo is UTC


def test_a_suggestion_and_a_report_take_two_trips_each(new_postgresql, monkeypatch):
    trips, flush = [], PostgresqlTransaction.flush

    def counted(transaction):
        trips.extend(transaction._waiting[-1:])
        flush(transaction)

    with StateStore(new_postgresql()) as store:
        for run in ("a", "b"):
            store.open_recurrence(SPEC, run)
        store.suggest("job", "a", 1)
        monkeypatch.setattr(PostgresqlTransaction, "flush", counted)
        store.suggest("job", "b", 1)
        store.report("job", "b", 1, NOT_REACHED)
    assert [trip == b"COMMIT" for trip in trips] == [False, True, False, True]


def test_a_transaction_reads_what_it_wrote(store):
    with store._database.transaction(write=True) as transaction:
        transaction.write(CHANGE, {"of_job": "job", "reason": "changed"})
        assert [trial.reason for trial in rows(transaction, TRIALS, {"job_id": "job"})] == ["changed"]


@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_what_fails_leaves_nothing_and_the_next_transaction_works(store, error, is_read):
    with pytest.raises(error), store._database.transaction(write=True) as transaction:
        transaction.write(CHANGE, {"of_job": "job", "reason": "lost"})
        if is_read:
            rows(transaction, TRIALS, {"job_id": "job"})
        raise error
    assert [trial.reason for trial in store.trials("job")] == [""]
    store.report("job", "run", 1, NOT_REACHED)


def test_a_statement_that_the_database_refuses_leaves_nothing(store):
    with pytest.raises(DBAPIError), store._database.transaction(write=True) as transaction:
        transaction.write(CHANGE, {"of_job": "job", "reason": "lost"})
        transaction.write(CHANGE, {"of_job": "job", "batch_size": None})
    assert [(trial.reason, trial.batch_size) for trial in store.trials("job")] == [("", SPEC.default_batch_size)]


def test_a_row_that_is_there_is_not_added_again(store):
    with store._database.transaction(write=True) as transaction:
        job = vars(find_job(transaction, "job"))
        transaction.write_unless_there(JOB, job | {"trial_count": 99})
        transaction.write_unless_there(JOB, job | {"job_id": "other", "trial_count": 7})
        assert (find_job(transaction, "job").trial_count, find_job(transaction, "other").trial_count) == (1, 7)


def test_a_transaction_that_did_nothing_makes_no_trip(new_postgresql):
    with StateStore(new_postgresql()) as store, closing(store._database):
        store.upgrade()
        with store._database.transaction(write=True) as transaction:
            pass
        assert not transaction._is_begun


def test_a_read_sees_one_state_of_the_database(store, store_url):
    jobs = select(JOB.c.trial_count)
    with StateStore(store_url) as other, store._database.transaction(write=False) as transaction:
        before = count(transaction, jobs, {})
        other.report("job", "run", 1, NOT_REACHED)
        other.suggest("job", "run", 2)
        assert count(transaction, jobs, {}) == before == 1
    with pytest.raises(UnknownJobError), store._database.transaction(write=False) as transaction:
        find_job(transaction, "nobody")
