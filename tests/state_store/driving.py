"""A scripted history of a job, the same whenever it is run: what tests that kill, race and replay have in common."""

import dataclasses
import os
import signal
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from sqlalchemy import event, select

from zeus_kfp.state_store import StateStore
from zeus_kfp.state_store.tables import METADATA
from zeus_kfp.zeus_core import JobSpec, Profile, TrialOutcome, TrialState

SPEC = JobSpec("job", (8, 16, 32), 16, target_metric=0.9, max_retries=3, max_concurrent_recurrences=1000, policy="zeus")
NOT_REACHED = TrialOutcome(
    TrialState.NOT_REACHED, epochs=1, metric=0.1, energy_j=1.0, time_s=1.0, energy_source="nvml", max_power_w=1.0
)
STATES = (TrialState.NOT_REACHED, TrialState.REACHED, TrialState.FAILED, TrialState.REACHED, TrialState.OOM)


class ScriptClock:
    """The moment of an operation, by its place in the script and not by when it runs."""

    def __init__(self):
        self.operation = 0

    def __call__(self):
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.operation)


def outcome_of(number: int, batch_size: int) -> TrialOutcome:
    """Return what comes of the script's trial of that number."""
    state = STATES[number % len(STATES)]
    if state is TrialState.OOM and batch_size < 32:
        state = TrialState.REACHED
    if state not in (TrialState.REACHED, TrialState.NOT_REACHED):
        return TrialOutcome(state, reason=f"trial {number}")
    energy_j = 100.0 + batch_size / 7 + number / 3
    return dataclasses.replace(NOT_REACHED, state=state, energy_j=energy_j, time_s=energy_j / 9, max_power_w=33.0)


def run_script(store: StateStore, clock: ScriptClock, recurrences: int) -> None:
    """Run the script's first recurrences, or run them once more after they were cut short anywhere."""
    for number in range(1, recurrences + 1):
        run = f"run-{number}"
        _step(clock)
        store.open_recurrence(SPEC, run)
        for slot in (1, 2):
            _step(clock)
            plan = store.suggest("job", run, slot)
            _step(clock)
            if plan is not None:
                profile = Profile(plan.batch_size, "train", 100.0, 50.0, 1000.0)
                store.report("job", run, slot, outcome_of(plan.number, plan.batch_size), [profile])
        _step(clock)
        store.close_recurrence("job", run)


def run_trials(store: StateStore, count: int, run: str = "run") -> None:
    """Run trials that reach nothing, each in a recurrence of its own."""
    store.open_recurrence(SPEC, f"{run}-0")
    for number in range(count):
        store.open_recurrence(SPEC, f"{run}-{number}")
        store.suggest("job", f"{run}-{number}", 1)
        store.report("job", f"{run}-{number}", 1, NOT_REACHED)


def check_books(store: StateStore, trials: int) -> None:
    """Assert that the job has as many trials as `run_trials` ran, and learnt from each."""
    assert [(t.number, t.state) for t in store.trials("job")] == [
        (n, TrialState.NOT_REACHED) for n in range(1, trials + 1)
    ]
    assert store.learnt("job") == store.learnt_from_rows("job")


def _step(clock: ScriptClock) -> None:
    clock.operation += 1


def run_whole_script(url: str, recurrences: int) -> None:
    """Run the script from its beginning."""
    clock = ScriptClock()
    with StateStore(url, clock=clock) as store:
        run_script(store, clock, recurrences)


def killed_script(url: str, recurrences: int, commit: int, *, before: bool) -> None:
    """Run the script, and die by SIGKILL just before or just after its commit of that number, from 1."""
    clock, seen = ScriptClock(), 0
    store = StateStore(url, clock=clock)
    database = store._database
    do_commit = database.engine.dialect.do_commit
    transaction = database.transaction

    def die_if(is_before):
        if seen == commit and is_before == before:
            os.kill(os.getpid(), signal.SIGKILL)

    @event.listens_for(database.engine, "commit")
    def count_of_schema(connection):
        nonlocal seen
        seen += 1
        die_if(True)

    def commit_of_schema(connection):
        do_commit(connection)
        die_if(False)

    @contextmanager
    def dying(*, write):
        nonlocal seen
        with transaction(write=write) as given:
            yield given
            seen += write
            if write:
                # The server has all that was written, and is told to keep it or is not.
                given.flush()
                die_if(True)
        if write:
            die_if(False)

    database.engine.dialect.do_commit = commit_of_schema
    database.transaction = dying
    run_script(store, clock, recurrences)


def dump(url: str) -> dict[str, list[tuple]]:
    """Return every row of every table; keys that the database gave are replaced by what they stand for."""
    with StateStore(url) as store, store._database.engine.connect() as connection:
        tables = {name: connection.execute(select(table)).mappings().all() for name, table in METADATA.tables.items()}
    stands_for = {
        "recurrence_id": {row["id"]: row["run_id"] for row in tables["recurrence"]},
        "trial_id": {row["id"]: row["number"] for row in tables["trial"]},
    }
    return {name: sorted(_shown(row, stands_for) for row in rows) for name, rows in tables.items()}


def _shown(row, stands_for):
    kept = {key: value for key, value in row.items() if key != "id"}
    return tuple((key, repr(stands_for[key][value] if key in stands_for else value)) for key, value in kept.items())
