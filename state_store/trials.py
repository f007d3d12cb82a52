"""Handing out trials and taking their reports."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from datetime import datetime

from sqlmodel import Session, select

from zeus_kfp.state_store.generators import generator_at, state_of
from zeus_kfp.state_store.learning import WITH_COST, cost_of, learn, load_learnt
from zeus_kfp.state_store.locking import expire, lease_from, locked_job, reap_trials, required_recurrence, trials_of
from zeus_kfp.state_store.records import RecurrenceState, TrialRecord
from zeus_kfp.state_store.rows import plan_of, spec_of, trial_record
from zeus_kfp.state_store.tables import JobRow, ProfileRow, RecurrenceRow, TrialRow, required_id
from zeus_kfp.zeus_core.errors import (
    ConflictingReportError,
    InvalidValueError,
    NoBatchSizeLeftError,
    UnknownTrialError,
)
from zeus_kfp.zeus_core.policies import InFlight, policy_named
from zeus_kfp.zeus_core.profile import Profile
from zeus_kfp.zeus_core.trial import Purpose, Suggestion, TrialOutcome, TrialPlan, TrialState
from zeus_kfp.zeus_core.validation import integer


def suggest(session: Session, now: datetime, job_id: str, run_id: str, slot: int) -> TrialPlan | None:
    """Hand out the trial of a slot, the same again if it was handed out before; None if nothing is left to try."""
    integer("slot", slot, at_least=1)
    job = locked_job(session, job_id)
    recurrence = required_recurrence(session, job_id, run_id)
    recurrence.lease_expires_at = lease_from(now, job)
    trials = trials_of(session, recurrence)
    trial = next((t for t in trials if t.slot == slot), None)
    if trial is None:
        trial = _issue(session, now, job, recurrence, trials, slot)
    elif trial.state == TrialState.ISSUED:
        trial.lease_expires_at = lease_from(now, job)
    return None if trial is None else TrialPlan.from_json(trial.plan)


def report(
    session: Session,
    now: datetime,
    job_id: str,
    run_id: str,
    slot: int,
    outcome: TrialOutcome,
    profiles: Sequence[Profile],
) -> TrialRecord:
    """Finish a trial and learn from it, once."""
    integer("slot", slot, at_least=1)
    job = locked_job(session, job_id)
    recurrence = required_recurrence(session, job_id, run_id)
    recurrence.lease_expires_at = lease_from(now, job)
    trial = next((t for t in trials_of(session, recurrence) if t.slot == slot), None)
    if trial is None:
        raise UnknownTrialError(f"no trial of job {job_id!r} was handed out to slot {slot!r} of run {run_id!r}")
    digest = _digest(outcome, profiles)
    if trial.report_digest is None:
        _finish(session, now, job, trial, outcome, digest)
        _keep_profiles(session, trial, profiles)
        _note_missing_data(job, recurrence, outcome)
        _note_late_success(recurrence, outcome)
        session.flush()
        learn(session, job, trial)
    elif trial.report_digest != digest:
        raise ConflictingReportError(
            f"trial {trial.number} of job {job_id!r} has already reported {trial.state!r}; another outcome "
            f"({outcome.state.value!r}) was refused and the first kept"
        )
    return trial_record(trial, recurrence)


def remaining_slots(session: Session, job_id: str, run_id: str, slot: int) -> tuple[int, ...]:
    """Return the slots after ``slot`` that a recurrence may still use."""
    integer("slot", slot, at_least=0)
    recurrence = required_recurrence(session, job_id, run_id)
    job = session.get_one(JobRow, job_id)
    if _has_ended(recurrence, trials_of(session, recurrence)):
        return ()
    return tuple(range(slot + 1, job.max_retries + 1))


def _has_ended(recurrence: RecurrenceRow, trials: Sequence[TrialRow]) -> bool:
    reached = any(t.state == TrialState.REACHED for t in trials)
    return reached or recurrence.data_missing or recurrence.state != RecurrenceState.OPEN


def _issue(
    session: Session,
    now: datetime,
    job: JobRow,
    recurrence: RecurrenceRow,
    trials: Sequence[TrialRow],
    slot: int,
) -> TrialRow | None:
    for earlier in trials:
        if earlier.state == TrialState.ISSUED and earlier.slot < slot:
            expire(earlier, now, "the recurrence went on without its report")
    reap_trials(session, job, now)
    if _has_ended(recurrence, trials) or slot > job.max_retries:
        return None
    session.flush()
    suggestion = _ask(session, job)
    if suggestion is None:
        return None
    job.trial_count += 1
    trial = TrialRow(
        job_id=job.job_id,
        recurrence_id=required_id(recurrence),
        number=job.trial_count,
        slot=slot,
        generation=job.generation,
        state=TrialState.ISSUED.value,
        issued_at=now,
        lease_expires_at=lease_from(now, job),
        **asdict(suggestion) | {"purpose": suggestion.purpose.value},
    )
    # Kept as it was handed out: whoever asks again trains by the same plan, whatever was learnt since.
    trial.plan = plan_of(spec_of(job), job.rated_power_w, trial, recurrence.run_id).to_json()
    session.add(trial)
    return trial


def _ask(session: Session, job: JobRow) -> Suggestion | None:
    """Ask the policy, and keep where its random generator stands."""
    spec = spec_of(job)
    issued = select(TrialRow).where(TrialRow.job_id == job.job_id, TrialRow.state == TrialState.ISSUED.value)
    # One from before a change of target will teach nothing, so that nobody need wait for it.
    current = issued.where(TrialRow.generation == job.generation)
    in_flight = [InFlight(t.batch_size, Purpose(t.purpose)) for t in session.exec(current)]
    generator = generator_at(job.generator_state)
    try:
        suggestion = policy_named(spec.policy).suggest(spec, load_learnt(session, job), in_flight, generator)
    except NoBatchSizeLeftError:
        return None
    job.generator_state = state_of(generator)
    return suggestion


def _finish(session: Session, now: datetime, job: JobRow, trial: TrialRow, outcome: TrialOutcome, digest: str) -> None:
    job.report_count += 1
    trial.report_number = job.report_count
    trial.report_digest = digest
    trial.finished_at = now
    trial.num_epochs = outcome.epochs
    for name in _SAME_NAME:
        setattr(trial, name, getattr(outcome, name))
    trial.state = outcome.state.value
    if not job.rated_power_w:
        job.rated_power_w = outcome.max_power_w
    if outcome.state in WITH_COST:
        if not job.rated_power_w and job.eta_knob < 1:
            raise InvalidValueError(
                f"the rated power of job {job.job_id!r} is not known and the outcome has max_power_w 0: set the job's "
                "max_power_w (W, summed over the GPUs used)"
            )
        trial.cost = cost_of(spec_of(job), job.rated_power_w, trial)


_SAME_NAME = [f.name for f in fields(TrialOutcome) if f.name in TrialRow.model_fields and f.name != "state"]


def _keep_profiles(session: Session, trial: TrialRow, profiles: Sequence[Profile]) -> None:
    keys = [(profile.phase.value, profile.power_limit_w) for profile in profiles]
    if len(set(keys)) < len(keys):
        raise InvalidValueError(f"a trial has one profile a phase and power limit (W), not {keys}")
    for profile in profiles:
        values = asdict(profile) | {"phase": profile.phase.value}
        session.add(ProfileRow(job_id=trial.job_id, trial_id=required_id(trial), **values))


def _note_missing_data(job: JobRow, recurrence: RecurrenceRow, outcome: TrialOutcome) -> None:
    """Give the next recurrence a new data epoch, so that it preprocesses again; once a recurrence."""
    if outcome.data_missing and not recurrence.data_missing:
        recurrence.data_missing = True
        if recurrence.data_epoch.endswith(f"-{job.data_generation}"):
            job.data_generation += 1


def _note_late_success(recurrence: RecurrenceRow, outcome: TrialOutcome) -> None:
    """Let a recurrence that was given up have its winner, where the report only came too late."""
    if outcome.state is TrialState.REACHED and recurrence.state != RecurrenceState.OPEN:
        recurrence.state = RecurrenceState.REACHED.value


def _digest(outcome: TrialOutcome, profiles: Sequence[Profile]) -> str:
    payload = json.dumps([asdict(outcome), [asdict(p) for p in profiles]], sort_keys=True)
    return hashlib.sha256(payload.encode()).hexdigest()
