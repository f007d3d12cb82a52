"""What was learnt of a job, kept in the arm rows in step with the trial rows."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, delete, select

from zeus_kfp.state_store.power_limits import learn_limits_again
from zeus_kfp.state_store.rows import arm_columns, curve_in, learnt_of, spec_of, without_empty_arms
from zeus_kfp.state_store.statements import HeldRun, Row, add_all, arms_of, locked_job, put, put_arms, rows
from zeus_kfp.state_store.tables import ARM, JOB, TRIAL
from zeus_kfp.state_store.transaction import Transaction
from zeus_kfp.zeus_core.cost import zeus_cost
from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.learnt import Learnt, Observation, observe, rebuild
from zeus_kfp.zeus_core.trial import Purpose, TrialState

WITH_COST = (TrialState.REACHED, TrialState.NOT_REACHED)
_JOBS = select(JOB.c.job_id).order_by(JOB.c.job_id)
_FORGET = delete(ARM).where(ARM.c.job_id == bindparam("job_id"))
_PRICED = select(TRIAL).where(TRIAL.c.job_id == bindparam("job_id"), TRIAL.c.cost.is_not(None))
_REPORTED = (
    select(TRIAL)
    .where(TRIAL.c.job_id == bindparam("job_id"), TRIAL.c.generation == bindparam("generation"))
    .where(TRIAL.c.report_number.is_not(None))
    .order_by(TRIAL.c.report_number)
)


def load_learnt(transaction: Transaction, job: Row) -> Learnt:
    """Return what was learnt of a job, from its arm rows."""
    return learnt_of(job, arms_of(transaction, job).values())


def learn(transaction: Transaction, run: HeldRun, spec: JobSpec, trial: Row) -> dict[str, Any]:
    """Count a finished trial in, if it says anything of its batch size, and return what changes in its job's row.

    Args:
        transaction: Holds the job.
        run: The trial's run.
        spec: The job's knobs.
        trial: The finished trial.
    """
    job = run.job
    if not _counts(job, trial):
        return {}
    reported = [
        t
        for t in run.trials
        if t.generation == trial.generation and t.report_number is not None and t.report_number <= trial.report_number
    ]
    before = learnt_of(job, run.arms.values())
    learnt = observe(spec, before, _observation(trial, reported))
    return _save(transaction, job, spec, run.arms, before, learnt)


def relearn(transaction: Transaction, job: Row) -> Learnt:
    """Rebuild what was learnt of a job from its trial rows alone, and keep that."""
    learnt = rebuilt(transaction, job)
    transaction.write(_FORGET, {"job_id": job.job_id})
    spec = spec_of(job)
    put(transaction, JOB, job, **_save(transaction, job, spec, {}, Learnt(), learnt))
    learn_limits_again(transaction, job, spec)
    return learnt


def relearn_all(transaction: Transaction) -> None:
    """Rebuild what was learnt of every job: newer code may keep more of a trial than older code did."""
    for job in rows(transaction, _JOBS):
        relearn(transaction, locked_job(transaction, job.job_id))


def rebuilt(transaction: Transaction, job: Row) -> Learnt:
    """Return what the trial rows alone teach of a job."""
    return without_empty_arms(rebuild(spec_of(job), _observations(transaction, job)))


def price_again(transaction: Transaction, job: Row) -> None:
    """Work out every trial's cost again, since the job's eta or rated power changed."""
    spec = spec_of(job)
    if not job.rated_power_w and spec.eta_knob < 1:
        return  # done once a trial has reported it
    for trial in rows(transaction, _PRICED, {"job_id": job.job_id}):
        put(transaction, TRIAL, trial, cost=cost_of(spec, job.rated_power_w, trial.energy_j, trial.time_s))


def cost_of(spec: JobSpec, rated_power_w: float, energy_j: float | None, time_s: float | None) -> float:
    """Return the cost in J of a trial whose energy and time are known."""
    return zeus_cost(energy_j or 0.0, time_s or 0.0, eta_knob=spec.eta_knob, max_power_w=rated_power_w)


def _save(
    transaction: Transaction, job: Row, spec: JobSpec, arms: Mapping[int, Row], before: Learnt, learnt: Learnt
) -> dict[str, Any]:
    """Keep what was learnt of each arm, and return what changes in the job's row.

    Args:
        transaction: Holds the job.
        job: The job.
        spec: Its knobs.
        arms: Its arm rows by batch size.
        before: What these rows say.
        learnt: What they are to say.
    """
    sizes = [size for size in spec.batch_sizes if size not in arms or learnt.arm(size) != before.arm(size)]
    columns = {size: arm_columns(learnt.arm(size)) for size in sizes}
    new = [
        {"job_id": job.job_id, "batch_size": size, "power_limit_accelerator": "", **values}
        for size, values in columns.items()
        if size not in arms
    ]
    changed = {size: values for size, values in columns.items() if size in arms}
    put_arms(transaction, job, changed)
    add_all(transaction, ARM, new)
    return {
        "min_recurrence_cost": learnt.min_recurrence_cost,
        "best_batch_size": learnt.best_batch_size,
        "accelerators": list(learnt.accelerators),
        "newcomer": learnt.newcomer,
    }


def _counts(job: Row, trial: Row) -> bool:
    """Return whether a trial is evidence: not if it missed its data, or the target or sizes have changed since."""
    return not trial.data_missing and trial.generation == job.generation and trial.batch_size in job.batch_sizes


def _observations(transaction: Transaction, job: Row) -> Iterable[Observation]:
    """Return the finished trials that count, in the order of their reports."""
    by_recurrence: dict[int, list[Row]] = {}
    for trial in rows(transaction, _REPORTED, {"job_id": job.job_id, "generation": job.generation}):
        reported = by_recurrence.setdefault(trial.recurrence_id, [])
        reported.append(trial)
        if _counts(job, trial):
            yield _observation(trial, reported)


def _observation(trial: Row, reported: Sequence[Row]) -> Observation:
    # A sum rounded once, whatever the order: the same when it is rebuilt.
    costs = [t.cost for t in reported if t.cost is not None]
    return Observation(
        batch_size=trial.batch_size,
        purpose=Purpose(trial.purpose),
        state=TrialState(trial.state),
        cost=trial.cost,
        recurrence_cost=math.fsum(costs) if trial.cost is not None else None,
        num_epochs=trial.num_epochs if trial.cost is not None else None,
        least_epochs=trial.least_epochs,
        curve=curve_in(trial.curve),
        accelerator=trial.accelerator,
    )
