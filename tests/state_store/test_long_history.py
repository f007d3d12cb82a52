"""Operations of a recurrence look at as many rows after ten thousands of recurrences as after a few."""

import dataclasses
from contextlib import contextmanager

import pytest
from sqlalchemy import column, func, insert, select, table, text, update

from zeus_kfp.state_store.statements import count
from zeus_kfp.state_store.tables import JOB, RECURRENCE, TRIAL
from zeus_kfp.state_store.transaction import PostgresqlTransaction
from zeus_kfp.state_store.trials import _BEFORE_REPORT
from zeus_kfp.zeus_core import JobSpec

FEW, MANY = 150, 20_000
SPEC = JobSpec(
    "job",
    (8, 16),
    16,
    target_metric=0.9,
    period_s=3600.0,
    max_concurrent_recurrences=2,
    num_recurrences=10**6,
    preprocess_every=1,
)


def with_history(store, clock, job_id, count):
    """Return a job of so many recurrences, each with a trial and data of its own."""
    spec = dataclasses.replace(SPEC, job_id=job_id)
    store.open_recurrence(spec, "run-1")
    store.close_recurrence(job_id, "run-1")
    with store._database.connection(write=True) as connection:
        newest = connection.execute(text("SELECT max(id) FROM recurrence")).scalar_one()
        moment = {"opened_at": clock.now, "lease_expires_at": clock.now, "closed_at": clock.now}
        of_job = {"job_id": job_id, "state": "reached", "why": "", "data_missing": False}
        recurrences = [
            {"id": newest + n, "run_id": f"run-{n}", "number": n, "data_epoch": f"-{n - 1}"}
            for n in range(2, count + 1)
        ]
        trial = {"slot": 1, "generation": 0, "batch_size": 16, "purpose": "explore", "learning_rate_factor": 1.0}
        trial |= {"issued_at": clock.now, "lease_expires_at": clock.now, "job_id": job_id, "state": "reached"}
        trials = [{"recurrence_id": r["id"], "number": r["number"]} for r in recurrences]
        connection.execute(insert(RECURRENCE), [of_job | moment | r for r in recurrences])
        connection.execute(insert(TRIAL), [_BEFORE_REPORT | {"why": "", "plan": ""} | trial | t for t in trials])
        counts = {"recurrence_count": count, "data_began_number": count, "data_generation": count}
        connection.execute(update(JOB).where(JOB.c.job_id == job_id).values(trial_count=count, **counts))
    refresh(store)
    return spec


def refresh(store):
    """Let the database know of what was written past the store, as it would of what comes in the course of time."""
    if store._database.is_sqlite:
        return
    with store._database.connection(write=True) as connection:
        for table in ("recurrence", "trial"):
            connection.execute(text(f"SELECT setval('{table}_id_seq', (SELECT max(id) FROM {table}))"))
    with store._database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("ANALYZE"))


@contextmanager
def work_of(store):
    """Give a list with how much the database worked in a block: steps of SQLite, rows that PostgreSQL looked at."""
    done = [0]
    if store._database.is_sqlite:
        with store._database.engine.connect() as connection:
            driver = connection.connection.dbapi_connection
        driver.set_progress_handler(lambda: done.__setitem__(0, done[0] + 1), 1)
        yield done
        driver.set_progress_handler(None, 0)
        return
    with store._database.connection(write=False) as connection:
        # What earlier transactions looked at is counted as this one's until it is handed on.
        connection.execute(text("SELECT pg_stat_force_next_flush()"))
    looked_at = func.coalesce(column("seq_tup_read"), 0) + func.coalesce(column("idx_tup_fetch"), 0)
    query = select(func.sum(looked_at)).select_from(table("pg_stat_xact_user_tables"))
    commit = PostgresqlTransaction.commit

    def look(transaction):
        done[0] += count(transaction, query, {})
        commit(transaction)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PostgresqlTransaction, "commit", look)
        yield done


def life(store, clock, spec):
    """Work of each operation of two recurrences that overlap, the second of which is refused a slot first."""
    clock.move(days=1)
    work = {}

    def step(name, operation, *arguments, **options):
        with work_of(store) as done:
            told = operation(*arguments, **options)
        work[name] = done[0]
        return told

    job = spec.job_id
    assert step("open", store.open_recurrence, spec, "a").granted
    assert not step("not due", store.open_recurrence, spec, "early").granted
    assert step("open at once", store.open_recurrence, spec, "b", start_now=True).granted
    assert not step("no slot", store.open_recurrence, spec, "c", start_now=True).granted
    with store._database.connection(write=True) as connection:
        both = (RECURRENCE.c.job_id == job) & RECURRENCE.c.run_id.in_(["a", "b"])
        connection.execute(update(RECURRENCE).where(both).values(data_epoch="shared"))
    assert step("wait for data", store.why_must_wait, job, "b", slow_start=False)
    step("wait", store.why_must_wait, job, "b")
    step("close in vain", store.close_recurrence, job, "b")
    store.suggest(job, "a", 1)
    assert step("turn", store.take_stage_turn, job, "a", "deploy", 2)
    step("done", store.finish_stage_turn, job, "a", "deploy")
    step("close", store.close_recurrence, job, "a")
    return work


def test_a_long_history_makes_no_operation_look_at_more(store, clock):
    of_few, of_many = (life(store, clock, with_history(store, clock, f"of {n}", n)) for n in (FEW, MANY))
    assert all(of_few.values())
    assert {name: work for name, work in of_many.items() if work > 2 * of_few[name] + 50} == {}
