"""Handing out trials and taking their reports."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from zeus_kfp.state_store.drifting import note_cost_drift
from zeus_kfp.state_store.epochs import data_gone
from zeus_kfp.state_store.generators import generator_at, state_of
from zeus_kfp.state_store.learning import WITH_COST, cost_of, learn, price_again, relearn
from zeus_kfp.state_store.locking import expire, lease_from, reap_trials
from zeus_kfp.state_store.power_limits import learn_limit
from zeus_kfp.state_store.records import RecurrenceState, TrialRecord
from zeus_kfp.state_store.rows import learnt_of, plan_of, spec_of, trial_record
from zeus_kfp.state_store.statements import (
    HeldRun,
    Row,
    add,
    add_all,
    find_job,
    held_run,
    put,
    recurrence_with_trials,
)
from zeus_kfp.state_store.tables import JOB, PROFILE, RECURRENCE, TRIAL
from zeus_kfp.state_store.transaction import Transaction
from zeus_kfp.zeus_core.errors import (
    ConflictingReportError,
    InvalidValueError,
    NoBatchSizeLeftError,
)
from zeus_kfp.zeus_core.hopeless import reference_for
from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.policies import InFlight, policy_named
from zeus_kfp.zeus_core.profile import Profile
from zeus_kfp.zeus_core.trial import Purpose, TrialOutcome, TrialPlan, TrialState
from zeus_kfp.zeus_core.validation import integer
from zeus_kfp.zeus_core.values import field_names, field_values

_REPORTED = [name for name in field_names(TrialOutcome) if name in TRIAL.columns and name != "state"]
_BEFORE_REPORT: dict[str, Any] = {
    "reason": "",
    "error": "",
    "energy_source": "",
    "energy_estimated": False,
    "accelerator": "",
    "accelerator_count": 0,
    "node": "",
    "power_limiter": "",
    "power_limits_found_w": {},
    "second_energy_source": "",
    "attempts": 0,
    "model_uri": "",
    "data_missing": False,
    "curve": [],
}
_SINCE_0003 = ("power_limits_found_w", "second_energy_j", "second_energy_source", "curve", "least_epochs")


def suggest(transaction: Transaction, now: datetime, job_id: str, run_id: str, slot: int) -> TrialPlan | None:
    """Hand out the trial of a slot, the same again if it was handed out before; None if nothing is left to try."""
    integer("slot", slot, at_least=1)
    run = held_run(transaction, job_id, run_id)
    trial = run.trial_at(slot)
    if trial is not None:
        if trial.state == TrialState.ISSUED:
            put(transaction, TRIAL, trial, lease_expires_at=lease_from(now, run.job))
        return TrialPlan.from_json(trial.plan)
    # Nobody asks for a slot again that the recurrence has passed by: a second trial would run beside the later one.
    passed_by = any(later.slot > slot for later in run.trials)
    if passed_by or _has_ended(run.recurrence, run.trials) or slot > run.job.max_retries:
        return None
    for earlier in run.trials:
        if earlier.state == TrialState.ISSUED:
            expire(transaction, earlier, now, "the recurrence went on without its report")
    alive = reap_trials(transaction, run.job, run.others, now)
    return _issue(transaction, now, run, slot, alive)


def report(
    transaction: Transaction,
    now: datetime,
    job_id: str,
    run_id: str,
    slot: int,
    outcome: TrialOutcome,
    profiles: Sequence[Profile],
) -> TrialRecord:
    """Finish a trial and learn from it, once."""
    integer("slot", slot, at_least=1)
    run = held_run(transaction, job_id, run_id)
    job, recurrence, trial = run.job, run.recurrence, run.required_trial_at(slot)
    digest = _digest(outcome, profiles)
    if trial.report_digest is None:
        spec = spec_of(job)
        changes = _finish(transaction, now, job, spec, trial, outcome, digest)
        _keep_profiles(transaction, trial, profiles)
        changes |= _note_in_recurrence(transaction, job, recurrence, outcome)
        changes |= learn(transaction, run, spec, trial)
        power_was_unknown = not job.rated_power_w
        put(transaction, JOB, job, **changes)
        if power_was_unknown and job.rated_power_w and trial.report_number > 1:
            # Earlier costs were worked out without it.
            price_again(transaction, job)
            relearn(transaction, job)
        learn_limit(transaction, job, spec, profiles)
        note_cost_drift(transaction, now, job, trial)
    elif trial.report_digest != digest:
        raise ConflictingReportError(
            f"trial {trial.number} of job {job_id!r} has already reported {trial.state!r}; another outcome "
            f"({outcome.state.value!r}) was refused and the first kept"
        )
    return trial_record(trial, recurrence)


def note_lost_pod(
    transaction: Transaction, job_id: str, run_id: str, slot: int, node: str, limits_w: Mapping[str, float]
) -> TrialRecord:
    """Complete the row of a trial that has not reported with where its pod was."""
    integer("slot", slot, at_least=1)
    run = held_run(transaction, job_id, run_id)
    trial = run.required_trial_at(slot)
    if trial.report_digest is None:
        put(transaction, TRIAL, trial, node=node, power_limits_found_w={**trial.power_limits_found_w, **limits_w})
    return trial_record(trial, run.recurrence)


def remaining_slots(transaction: Transaction, job_id: str, run_id: str, slot: int) -> tuple[int, ...]:
    """Return the slots after ``slot`` that a recurrence may still use."""
    integer("slot", slot, at_least=0)
    job = find_job(transaction, job_id)
    recurrence, trials = recurrence_with_trials(transaction, job_id, run_id)
    if _has_ended(recurrence, trials):
        return ()
    return tuple(range(slot + 1, job.max_retries + 1))


def _has_ended(recurrence: Row, trials: Sequence[Row]) -> bool:
    reached = any(t.state == TrialState.REACHED for t in trials)
    return reached or recurrence.data_missing or recurrence.state != RecurrenceState.OPEN


def _issue(transaction: Transaction, now: datetime, run: HeldRun, slot: int, alive: Sequence[Row]) -> TrialPlan | None:
    """Ask the policy, and keep its answer and where its random generator stands; alive are the trials of others."""
    job, recurrence = run.job, run.recurrence
    spec, generator = spec_of(job), generator_at(job.generator_state)
    # One from before a change of target will teach nothing, so that nobody need wait for it.
    in_flight = [InFlight(t.batch_size, Purpose(t.purpose)) for t in alive if t.generation == job.generation]
    try:
        learnt = learnt_of(job, run.arms.values())
        suggestion = policy_named(spec.policy).suggest(spec, learnt, in_flight, generator)
    except NoBatchSizeLeftError:
        return None
    number = job.trial_count + 1
    put(transaction, JOB, job, trial_count=number, generator_state=state_of(generator))
    reference = reference_for(spec, learnt, suggestion.batch_size)
    plan = plan_of(job, spec, recurrence, run.arms.get(suggestion.batch_size), slot, number, suggestion, reference)
    values = field_values(suggestion) | {
        "job_id": job.job_id,
        "recurrence_id": recurrence.id,
        "number": number,
        "slot": slot,
        "generation": job.generation,
        "purpose": suggestion.purpose.value,
        # Kept as it was handed out: whoever asks again trains by the same plan, whatever was learnt since.
        "plan": plan.to_json(),
        "state": TrialState.ISSUED.value,
        "issued_at": now,
        "lease_expires_at": lease_from(now, job),
    }
    add(transaction, TRIAL, _BEFORE_REPORT | values)
    return plan


def _finish(
    transaction: Transaction, now: datetime, job: Row, spec: JobSpec, trial: Row, outcome: TrialOutcome, digest: str
) -> dict[str, Any]:
    """Complete a trial's row, and return what changes in its job's."""
    # A straggler from before a reset says nothing of the GPUs that are used now.
    is_current = trial.generation == job.generation
    rated_power_w = job.rated_power_w or outcome.max_power_w
    report_number = job.report_count + 1
    changes = {name: getattr(outcome, name) for name in _REPORTED} | {
        "state": outcome.state.value,
        "num_epochs": outcome.epochs,
        "report_number": report_number,
        "report_digest": digest,
        "finished_at": now,
    }
    if outcome.state in WITH_COST:
        if not rated_power_w and job.eta_knob < 1:
            raise InvalidValueError(
                f"the rated power of job {job.job_id!r} is not known and the outcome has max_power_w 0: set the job's "
                "max_power_w (W, summed over the GPUs used)"
            )
        changes["cost"] = cost_of(spec, rated_power_w, outcome.energy_j, outcome.time_s)
    put(transaction, TRIAL, trial, **changes)
    return {"report_count": report_number, "rated_power_w": rated_power_w if is_current else job.rated_power_w}


def _keep_profiles(transaction: Transaction, trial: Row, profiles: Sequence[Profile]) -> None:
    foreign = sorted({profile.batch_size for profile in profiles} - {trial.batch_size})
    if foreign:
        raise InvalidValueError(f"a trial at batch size {trial.batch_size} has no profiles of {foreign}")
    keys = [(profile.phase.value, profile.power_limit_w) for profile in profiles]
    if len(set(keys)) < len(keys):
        raise InvalidValueError(f"a trial has one profile a phase and power limit (W), not {keys}")
    of_trial = {"job_id": trial.job_id, "trial_id": trial.id}
    add_all(transaction, PROFILE, (field_values(p) | {"phase": p.phase.value} | of_trial for p in profiles))


def _note_in_recurrence(transaction: Transaction, job: Row, recurrence: Row, outcome: TrialOutcome) -> dict[str, Any]:
    """Complete a recurrence's row, and return what changes in its job's."""
    of_job: dict[str, Any] = {}
    changes: dict[str, Any] = {}
    if outcome.data_missing and not recurrence.data_missing:
        # The next recurrence gets a new data epoch, so that it preprocesses again; once a recurrence.
        changes["data_missing"] = True
        of_job = data_gone(job, recurrence)
    if outcome.state is TrialState.REACHED and recurrence.state != RecurrenceState.OPEN:
        # It was given up, and the report of its success only came late.
        changes["state"] = RecurrenceState.REACHED.value
    put(transaction, RECURRENCE, recurrence, **changes)
    return of_job


def _digest(outcome: TrialOutcome, profiles: Sequence[Profile]) -> str:
    measured = sorted(json.dumps(field_values(profile), sort_keys=True) for profile in profiles)
    # What an outcome said nothing of before there was a field for it changes no digest that is kept already.
    told = {name: value for name, value in field_values(outcome).items() if name not in _SINCE_0003 or value}
    payload = json.dumps([told, measured], sort_keys=True)
    return hashlib.sha256(payload.encode()).hexdigest()
