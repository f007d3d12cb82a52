"""What was learnt of a job, kept in the arm rows in step with the trial rows."""

import math
from collections.abc import Iterable

from sqlmodel import Session, col, select

from zeus_kfp.state_store.rows import arm_columns, learnt_of, spec_of, without_empty_arms
from zeus_kfp.state_store.tables import ArmRow, JobRow, TrialRow
from zeus_kfp.zeus_core.cost import zeus_cost
from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.learnt import Learnt, Observation, observe, rebuild
from zeus_kfp.zeus_core.policies import policy_named
from zeus_kfp.zeus_core.trial import Purpose, TrialState

WITH_COST = (TrialState.REACHED, TrialState.NOT_REACHED)


def load_learnt(session: Session, job: JobRow) -> Learnt:
    """Return what was learnt of a job, from its arm rows."""
    return learnt_of(job, list(session.exec(select(ArmRow).where(ArmRow.job_id == job.job_id))))


def learn(session: Session, job: JobRow, trial: TrialRow) -> None:
    """Count a finished trial in, if it says anything of its batch size."""
    if not _counts(job, trial):
        return
    siblings = session.exec(
        select(TrialRow).where(TrialRow.recurrence_id == trial.recurrence_id, TrialRow.generation == trial.generation)
    )
    seen = [t for t in siblings if t.report_number is not None and t.report_number < (trial.report_number or 0)]
    observation = _observation(trial, [*seen, trial])
    save_learnt(session, job, observe(spec_of(job), load_learnt(session, job), observation))


def relearn(session: Session, job: JobRow) -> Learnt:
    """Rebuild what was learnt of a job from its trial rows alone, and keep that."""
    learnt = rebuilt(session, job)
    for arm in session.exec(select(ArmRow).where(ArmRow.job_id == job.job_id)):
        session.delete(arm)
    session.flush()
    save_learnt(session, job, learnt)
    return learnt


def rebuilt(session: Session, job: JobRow) -> Learnt:
    """Return what the trial rows alone teach of a job."""
    return without_empty_arms(rebuild(spec_of(job), _observations(session, job)))


def price_again(session: Session, job: JobRow) -> None:
    """Work out every trial's cost again, since the job's eta or rated power changed."""
    for trial in session.exec(select(TrialRow).where(TrialRow.job_id == job.job_id, col(TrialRow.cost).is_not(None))):
        trial.cost = cost_of(spec_of(job), job.rated_power_w, trial)


def cost_of(spec: JobSpec, rated_power_w: float, trial: TrialRow) -> float:
    """Return the cost in J of a trial whose energy and time are known."""
    return zeus_cost(trial.energy_j or 0.0, trial.time_s or 0.0, eta_knob=spec.eta_knob, max_power_w=rated_power_w)


def save_learnt(session: Session, job: JobRow, learnt: Learnt) -> None:
    """Keep what was learnt, with each arm's posterior for people to read."""
    job.min_recurrence_cost = learnt.min_recurrence_cost
    job.best_batch_size = learnt.best_batch_size
    spec = spec_of(job)
    posteriors = {p.batch_size: p for p in policy_named(spec.policy).posterior(spec, learnt)}
    for size in spec.batch_sizes:
        row = session.get(ArmRow, (job.job_id, size))
        values = arm_columns(learnt.arm(size))
        posterior = posteriors.get(size)
        if posterior is not None:
            values |= {
                "posterior_mean_cost": posterior.mean_cost,
                "posterior_standard_deviation": posterior.standard_deviation,
                "status": posterior.status,
            }
        if row is None:
            session.add(ArmRow(job_id=job.job_id, batch_size=size, **values))
        else:
            for name, value in values.items():
                if getattr(row, name) != value:
                    setattr(row, name, value)


def _counts(job: JobRow, trial: TrialRow) -> bool:
    """Return whether a trial is evidence: not if it missed its data, or the target or sizes have changed since."""
    return not trial.data_missing and trial.generation == job.generation and trial.batch_size in job.batch_sizes


def _observations(session: Session, job: JobRow) -> Iterable[Observation]:
    """Return the finished trials that count, in the order of their reports."""
    rows = session.exec(
        select(TrialRow)
        .where(TrialRow.job_id == job.job_id, TrialRow.generation == job.generation)
        .where(col(TrialRow.report_number).is_not(None))
        .order_by(col(TrialRow.report_number))
    )
    by_recurrence: dict[int, list[TrialRow]] = {}
    for trial in rows:
        reported = by_recurrence.setdefault(trial.recurrence_id, [])
        reported.append(trial)
        if _counts(job, trial):
            yield _observation(trial, reported)


def _observation(trial: TrialRow, reported: list[TrialRow]) -> Observation:
    costs = [t.cost for t in reported if t.cost is not None]
    return Observation(
        batch_size=trial.batch_size,
        purpose=Purpose(trial.purpose),
        state=TrialState(trial.state),
        cost=trial.cost,
        recurrence_cost=math.fsum(costs) if trial.cost is not None else None,
    )
