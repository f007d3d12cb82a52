"""Between table rows and the values that leave the store."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from zeus_kfp.state_store.records import (
    DriftRecord,
    JobPhase,
    JobRecord,
    RecurrenceRecord,
    RecurrenceState,
    TrialRecord,
)
from zeus_kfp.state_store.statements import Row
from zeus_kfp.zeus_core.evidence import Evidence
from zeus_kfp.zeus_core.job import JobSpec, LearningRateRule
from zeus_kfp.zeus_core.learning_curve import Curve, Reference
from zeus_kfp.zeus_core.learnt import ArmSummary, Exploration, Learnt
from zeus_kfp.zeus_core.profile import Phase, Profile
from zeus_kfp.zeus_core.trial import Purpose, Suggestion, TrialPlan, TrialState
from zeus_kfp.zeus_core.values import field_names, field_values

_TRIAL_FIELDS = field_names(TrialRecord)


def knobs_of(spec: JobSpec) -> dict[str, Any]:
    """Return the columns of a job's knobs."""
    values = field_values(spec)
    beta = spec.beta_knob if math.isfinite(spec.beta_knob) else None
    return values | {
        "batch_sizes": list(spec.batch_sizes),
        "beta_knob": beta,
        "learning_rate_rule": spec.learning_rate_rule.value,
    }


def spec_of(row: Row) -> JobSpec:
    """Return a job's knobs."""
    values = vars(row)
    return _spec(tuple(tuple(v) if isinstance(v := values[name], list) else v for name in field_names(JobSpec)))


@lru_cache(maxsize=256)
def _spec(values: tuple[Any, ...]) -> JobSpec:
    """Return the knobs of a row's values; kept, since each operation needs them more than once."""
    knobs: dict[str, Any] = dict(zip(field_names(JobSpec), values, strict=True))
    knobs["beta_knob"] = math.inf if knobs["beta_knob"] is None else knobs["beta_knob"]
    knobs["learning_rate_rule"] = LearningRateRule(knobs["learning_rate_rule"])
    return JobSpec(**knobs)


def job_record(row: Row) -> JobRecord:
    """Return a job as registered, and where it stands."""
    return JobRecord(
        spec=spec_of(row),
        phase=JobPhase(row.phase),
        max_power_w=row.rated_power_w,
        min_recurrence_cost=row.min_recurrence_cost,
        best_batch_size=row.best_batch_size,
        recurrence_count=row.recurrence_count,
        trial_count=row.trial_count,
        created_at=row.created_at,
        next_due_at=next_due_at(row),
        accelerators=tuple(row.accelerators),
    )


def next_due_at(row: Row) -> datetime | None:
    """Return when a job's period has passed; None where it has none, or none has begun."""
    if not row.period_s or row.period_began_at is None:
        return None
    began_at: datetime = row.period_began_at
    return began_at + timedelta(seconds=row.period_s)


def drift_record(row: Row) -> DriftRecord:
    """Return a drift."""
    return DriftRecord(**{name: getattr(row, name) for name in field_names(DriftRecord)})


def trial_record(row: Row, recurrence: Row) -> TrialRecord:
    """Return a trial."""
    derived = {
        "run_id": recurrence.run_id,
        "recurrence_number": recurrence.number,
        "purpose": Purpose(row.purpose),
        "state": TrialState(row.state),
        "curve": curve_in(row.curve),
    }
    return TrialRecord(**{name: getattr(row, name) for name in _TRIAL_FIELDS if name not in derived}, **derived)


def winner_of(trials: Iterable[Row]) -> Row | None:
    """Return the first trial to report that it reached the target; one that comes later changes nothing."""
    reached = [trial for trial in trials if trial.state == TrialState.REACHED]
    return min(reached, key=lambda trial: int(trial.report_number), default=None)


def recurrence_record(row: Row, trials: Sequence[Row]) -> RecurrenceRecord:
    """Return a recurrence with the sums over its trials."""
    winner = winner_of(trials)
    costs = [t.cost for t in trials if t.cost is not None]
    return RecurrenceRecord(
        job_id=row.job_id,
        run_id=row.run_id,
        number=row.number,
        state=RecurrenceState(row.state),
        data_epoch=row.data_epoch,
        trial_count=len(trials),
        batch_size=winner.batch_size if winner else None,
        num_epochs=sum(t.num_epochs or 0 for t in trials),
        energy_j=math.fsum(t.energy_j or 0.0 for t in trials),
        time_s=math.fsum(t.time_s or 0.0 for t in trials),
        cost=math.fsum(costs) if costs else None,
        energy_estimated=any(t.energy_estimated for t in trials),
        opened_at=row.opened_at,
        closed_at=row.closed_at,
        why=row.why,
    )


def plan_of(
    job: Row,
    spec: JobSpec,
    recurrence: Row,
    arm: Row | None,
    slot: int,
    number: int,
    suggestion: Suggestion,
    reference: Reference,
) -> TrialPlan:
    """Return what the training side is told of a trial; ``arm`` is that of its batch size, if there is one."""
    return TrialPlan(
        job_id=spec.job_id,
        run_id=recurrence.run_id,
        slot=slot,
        number=number,
        batch_size=suggestion.batch_size,
        purpose=suggestion.purpose,
        why=suggestion.why,
        learning_rate_factor=suggestion.learning_rate_factor,
        target_metric=spec.target_metric,
        higher_is_better=spec.higher_is_better,
        max_epochs=spec.max_epochs,
        eta_knob=spec.eta_knob,
        max_power_w=job.rated_power_w,
        cost_threshold=suggestion.cost_threshold,
        max_trial_time_s=spec.max_trial_time_s,
        power_limit_w=None if arm is None else arm.power_limit_w,
        power_limit_accelerator="" if arm is None else arm.power_limit_accelerator,
        power_objective=spec.power_objective,
        reference=reference,
    )


def learnt_of(job: Row, arms: Iterable[Row]) -> Learnt:
    """Return what was learnt of a job."""
    summaries = {arm.batch_size: _summary(arm) for arm in arms}
    accelerators = tuple(job.accelerators)
    return without_empty_arms(
        Learnt(summaries, job.min_recurrence_cost, job.best_batch_size, accelerators, job.newcomer)
    )


def without_empty_arms(learnt: Learnt) -> Learnt:
    """Return the same without the sizes of which nothing is known: whether they have a row means nothing."""
    arms = {size: arm for size, arm in learnt.arms.items() if arm != ArmSummary(size)}
    return replace(learnt, arms=arms)


def curve_in(values: Sequence[Sequence[float]]) -> Curve:
    """Return a curve as it was before its trip through JSON."""
    return tuple((epochs, metric) for epochs, metric in values)


def _summary(row: Row) -> ArmSummary:
    return ArmSummary(
        batch_size=row.batch_size,
        count=row.count,
        reached_count=row.reached_count,
        mean_cost=row.mean_cost,
        sum_squared_deviations=row.sum_squared_deviations,
        recent_costs=tuple(row.recent_costs),
        min_cost=row.min_cost,
        explorations=tuple(Exploration(float(cost), bool(reached)) for cost, reached in row.explorations),
        out_of_memory=row.out_of_memory,
        consecutive_failures=row.consecutive_failures,
        evidence=Evidence.from_values(row.evidence) if row.evidence else Evidence(),
        curves=tuple(curve_in(curve) for curve in row.curves),
        hopeless_in_row=row.hopeless_in_row,
    )


def arm_columns(summary: ArmSummary) -> dict[str, Any]:
    """Return the columns of an arm's summary."""
    return {
        "count": summary.count,
        "reached_count": summary.reached_count,
        "mean_cost": summary.mean_cost,
        "sum_squared_deviations": summary.sum_squared_deviations,
        "recent_costs": list(summary.recent_costs),
        "min_cost": summary.min_cost,
        "explorations": [[e.cost, e.reached] for e in summary.explorations],
        "out_of_memory": summary.out_of_memory,
        "consecutive_failures": summary.consecutive_failures,
        "evidence": summary.evidence.to_values(),
        "curves": [[list(point) for point in curve] for curve in summary.curves],
        "hopeless_in_row": summary.hopeless_in_row,
    }


def profile_of(row: Row) -> Profile:
    """Return a profile."""
    return Profile(**{name: getattr(row, name) for name in field_names(Profile)} | {"phase": Phase(row.phase)})
