"""Opening and closing a recurrence."""

from datetime import datetime
from typing import Any

from zeus_kfp.state_store.drifting import consume_drifts
from zeus_kfp.state_store.epochs import data_of_next, is_new_data
from zeus_kfp.state_store.gating import has_had_all, why_not
from zeus_kfp.state_store.generators import generator_at, seeded_state
from zeus_kfp.state_store.learning import load_learnt, price_again, relearn
from zeus_kfp.state_store.locking import end_recurrence, note_clock, open_count, reap, step_lease_from
from zeus_kfp.state_store.records import JobPhase, OpenedRecurrence, RecurrenceRecord, RecurrenceState
from zeus_kfp.state_store.rows import knobs_of, recurrence_record, spec_of
from zeus_kfp.state_store.statements import (
    Row,
    add,
    find_recurrence,
    locked_job,
    put,
    required_recurrence,
    trials_of,
)
from zeus_kfp.state_store.tables import JOB, RECURRENCE
from zeus_kfp.state_store.transaction import Transaction
from zeus_kfp.zeus_core.errors import InvalidValueError, JobChangedError, UnknownJobError
from zeus_kfp.zeus_core.job import JobSpec, LearningRateRule
from zeus_kfp.zeus_core.policies import policy_named
from zeus_kfp.zeus_core.trial import TrialState

OPERATIONAL_KNOBS = {
    "max_retries",
    "num_recurrences",
    "max_concurrent_recurrences",
    "max_concurrent_recurrences_per_user",
    "period_s",
    "preprocess_every",
    "max_trial_time_s",
    "hopeless_stop",
    "max_step_time_s",
    "user",
}
"""Knobs that say how a job runs and not what it learns: they may change at any time."""

MEANING_KNOBS = {"target_metric", "higher_is_better", "max_epochs", "learning_rate_rule"}
"""Knobs that decide what reaching the target means, or how it is reached: once they change, earlier trials no longer
count."""

ON_KNOB_CHANGE = ("refuse", "accept")


def open_recurrence(
    transaction: Transaction,
    now: datetime,
    spec: JobSpec,
    run_id: str,
    on_knob_change: str,
    data_version: str,
    start_now: bool,
) -> OpenedRecurrence:
    """Register the job the first time, take its changes, and open a recurrence or say why not."""
    if on_knob_change not in ON_KNOB_CHANGE:
        raise InvalidValueError(f"on_knob_change must be one of {', '.join(ON_KNOB_CHANGE)}, not {on_knob_change!r}")
    policy = policy_named(spec.policy)
    job = _registered(transaction, now, spec)
    reap(transaction, job, now)
    earlier = find_recurrence(transaction, job.job_id, run_id)
    if earlier is not None:
        # A step started twice: its knobs were taken the first time, and others may have been accepted since.
        return _reopened(transaction, job, earlier, now)
    changed = _checked_changes(job, spec, on_knob_change)
    _take(transaction, job, spec, changed & OPERATIONAL_KNOBS)
    refusal = why_not(transaction, job, now, data_version, start_now)
    if refusal:
        return OpenedRecurrence(False, refusal, 0, (), "")
    # What was learnt is only touched by a run that goes on.
    _take(transaction, job, spec, changed - OPERATIONAL_KNOBS)
    # A job whose sizes are all ruled out has nothing to open for; whatever is drawn here is thrown away.
    policy.suggest(spec_of(job), load_learnt(transaction, job), (), generator_at(job.generator_state))
    return _open(transaction, job, run_id, now, data_version)


def close_recurrence(transaction: Transaction, now: datetime, job_id: str, run_id: str) -> RecurrenceRecord:
    """End a recurrence and free its slot; one that has ended stays as it is."""
    job = locked_job(transaction, job_id)
    recurrence = required_recurrence(transaction, job.job_id, run_id)
    trials = trials_of(transaction, recurrence)
    if job.clock_back_at is not None:
        note_clock(transaction, job, now)
    if recurrence.state == RecurrenceState.OPEN:
        reached = any(t.state == TrialState.REACHED for t in trials)
        state = RecurrenceState.REACHED if reached else RecurrenceState.NOT_REACHED
        end_recurrence(transaction, job, recurrence, trials, now, state, "its recurrence ended without a report")
        if has_had_all(transaction, job) and not open_count(transaction, job):
            put(transaction, JOB, job, phase=JobPhase.COMPLETED.value)
    return recurrence_record(recurrence, trials)


def _registered(transaction: Transaction, now: datetime, spec: JobSpec) -> Row:
    """Return the job, locked, registered if it was not; once more if it was purged while its row was waited for."""
    _register(transaction, now, spec)
    try:
        return locked_job(transaction, spec.job_id)
    except UnknownJobError:
        _register(transaction, now, spec)
        return locked_job(transaction, spec.job_id)


def _register(transaction: Transaction, now: datetime, spec: JobSpec) -> None:
    values: dict[str, Any] = knobs_of(spec) | {
        "phase": JobPhase.RUNNING.value,
        "generation": 0,
        "data_generation": 0,
        "data_version": "",
        "data_began_number": 0,
        "rated_power_w": spec.max_power_w,
        "accelerators": [],
        "newcomer": "",
        "ended_by_hand": False,
        "counted_from": 0,
        "recurrence_count": 0,
        "trial_count": 0,
        "report_count": 0,
        "generator_state": seeded_state(spec.seed),
        "created_at": now,
    }
    transaction.write_unless_there(JOB, values)


def _checked_changes(job: Row, spec: JobSpec, on_knob_change: str) -> set[str]:
    """Return the knobs that differ from the registered ones.

    Raises:
        JobChangedError: If one of them decides what is learnt, and the change was not consented to.
    """
    changes = spec_of(job).differences(spec)
    learning = {name: pair for name, pair in changes.items() if name not in OPERATIONAL_KNOBS}
    if learning and on_knob_change == "refuse":
        shown = "; ".join(f"{name} was {old!r}, now {new!r}" for name, (old, new) in learning.items())
        raise JobChangedError(
            f"job {job.job_id!r} was registered with other knobs: {shown}. Use another job_id to start a new job, or "
            "pass on_knob_change='accept' to go on with the new ones"
        )
    return set(changes)


def _take(transaction: Transaction, job: Row, spec: JobSpec, changed: set[str]) -> None:
    """Take over the knobs that have changed, with all that follows for what was learnt."""
    columns = {name: value for name, value in knobs_of(spec).items() if name in changed}
    if "seed" in changed:
        columns["generator_state"] = seeded_state(spec.seed)
    if "max_power_w" in changed and spec.max_power_w:
        columns["rated_power_w"] = spec.max_power_w
    if changed & MEANING_KNOBS or _is_other_rate(spec, changed):
        columns["generation"] = job.generation + 1
    put(transaction, JOB, job, **columns)
    if changed & {"eta_knob", "max_power_w"}:
        price_again(transaction, job)
    if changed - OPERATIONAL_KNOBS:
        relearn(transaction, job)


def _is_other_rate(spec: JobSpec, changed: set[str]) -> bool:
    """Return whether a batch size now trains at another learning rate, since the factor is 1 at another size."""
    return "default_batch_size" in changed and spec.learning_rate_rule is not LearningRateRule.NONE


def _reopened(transaction: Transaction, job: Row, earlier: Row, now: datetime) -> OpenedRecurrence:
    if earlier.state != RecurrenceState.OPEN:
        why = f"this run has ended its recurrence {earlier.number} of job {job.job_id} already ({earlier.state})"
        return OpenedRecurrence(False, why, 0, (), "")
    put(transaction, RECURRENCE, earlier, lease_expires_at=step_lease_from(now, job))
    return _opened(job, earlier)


def _open(transaction: Transaction, job: Row, run_id: str, now: datetime, data_version: str) -> OpenedRecurrence:
    number = job.recurrence_count + 1
    new_version = data_version if is_new_data(job, data_version) else ""
    data = data_of_next(job, data_version)
    drifts = consume_drifts(transaction, now, job, number, new_version=new_version)
    put(transaction, JOB, job, recurrence_count=number, period_began_at=now, **data.changes)
    values = {
        "job_id": job.job_id,
        "run_id": run_id,
        "number": number,
        "state": RecurrenceState.OPEN.value,
        "why": _why(job, number, drifts, data.why),
        "data_epoch": data.data_epoch,
        "data_missing": False,
        "opened_at": now,
        "lease_expires_at": step_lease_from(now, job),
    }
    return _opened(job, add(transaction, RECURRENCE, values))


def _why(job: Row, number: int, drifts: list[str], data_again: str) -> str:
    drifted = f"Drift was signalled: {'; '.join(drifts)}" if drifts else ""
    return ". ".join([f"recurrence {number} of job {job.job_id}", *filter(None, (drifted, data_again))])


def _opened(job: Row, recurrence: Row) -> OpenedRecurrence:
    slots = tuple(range(1, job.max_retries + 1))
    why = recurrence.why or _why(job, recurrence.number, [], "")
    return OpenedRecurrence(True, why, recurrence.number, slots, recurrence.data_epoch)
