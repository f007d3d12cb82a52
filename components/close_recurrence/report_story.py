"""What the report says in words: what was saved so far, and what its numbers do not show."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from zeus_kfp.components.close_recurrence.report_data import RecurrenceRow, ReportData, is_finite, mean
from zeus_kfp.components.close_recurrence.report_format import (
    Scale,
    count,
    energy,
    line,
    moment,
    percent,
    plural,
)
from zeus_kfp.state_store.records import RecurrenceState


@dataclass(frozen=True, slots=True)
class Tile:
    """One number of the headline.

    Attributes:
        label: What it is.
        value: The number.
        detail: What it is made of.
        tone: "good", "bad" or "".
    """

    label: str
    value: str
    detail: str
    tone: str = ""


def headline(data: ReportData) -> str:
    """Return in one or two sentences what the recurrences cost against the default batch size."""
    closed = _closed(data)
    models = _models(closed)
    default = count(data.job.spec.default_batch_size)
    if not closed:
        return "No recurrence has ended yet."
    if not models:
        return f"None of {plural(len(closed), 'recurrence')} has reached the target metric yet."
    ratio = cost_ratio(data, closed)
    if ratio is None:
        return (
            f"{plural(len(closed), 'recurrence')} gave {plural(models, 'model')}. No trial at the default batch size "
            f"{default} has reached the target yet{_tried_at_default(data)}, so there is nothing to compare with."
        )
    gave = f"{plural(len(closed), 'recurrence')}, exploration included, gave {plural(models, 'model')} and cost"
    trainings = f"{plural(models, 'training')} at the default batch size {default} would have"
    return f"{gave} {_compared(ratio)} {trainings}.{_outlook(data, ratio)}"


def tiles(data: ReportData) -> tuple[Tile, ...]:
    """Return the headline's numbers: cost, energy and time so far, and the cost since exploring."""
    closed, baseline = _closed(data), data.baseline
    models = _models(closed)
    estimated = any(row.energy_estimated for row in closed)
    spent_j = [row.energy_j for row in closed]
    total = (
        _total(
            "Cost so far", Scale.for_energy, [row.cost for row in closed], baseline.cost if baseline else None, models
        ),
        _total(
            "Energy so far (estimated)" if estimated else "Energy so far",
            Scale.for_energy,
            spent_j,
            baseline.energy_j if baseline else None,
            models,
        ),
        _total(
            "Time so far", Scale.for_time, [row.time_s for row in closed], baseline.time_s if baseline else None, models
        ),
    )
    return (*total, _since_exploring(data, closed))


def this_run(data: ReportData, run_id: str | None) -> str:
    """Return what came of one KFP run; "" if none is asked for."""
    if run_id is None:
        return ""
    row = data.row(run_id)
    if row is None:
        return f"Run {line(run_id, at_most=80)} is no recurrence of this job: it was granted none.{_next_due(data)}"
    cost = "cost not known" if row.cost is None else f"cost {energy(row.cost)}"
    spent = f"{plural(row.trials, 'trial')}, {cost}"
    against = f", {percent(row.cost_vs_default)} of the default batch size's" if row.cost_vs_default else ""
    ended = {
        RecurrenceState.OPEN: "is still open",
        RecurrenceState.REACHED: f"reached the target at batch size {count(row.batch_size)}",
        RecurrenceState.NOT_REACHED: "did not reach the target",
        RecurrenceState.EXPIRED: "ended without a report",
    }[row.state]
    return f"This run, recurrence {row.number:,}, {ended} ({spent}{against}).{_started_by(data, run_id)}"


def cost_ratio(data: ReportData, rows: Sequence[RecurrenceRow]) -> float | None:
    """Return what recurrences cost as a multiple of as many models trained at the default batch size.

    What went into recurrences that gave no model is included.

    Args:
        data: The job's history.
        rows: The recurrences to count.

    Returns:
        The ratio; None if there is no model or nothing to compare with.
    """
    spent = _sum(row.cost for row in rows)
    models = _models(rows)
    if data.baseline is None or spent is None or not models:
        return None
    return _finite_or_none(spent / models / data.baseline.cost)


def _next_due(data: ReportData) -> str:
    due_at = data.job.next_due_at
    return f" The next is due {moment(due_at)}, or when drift is signalled." if due_at else ""


def _started_by(data: ReportData, run_id: str) -> str:
    """Return what else than its period started a run, and what it made anew."""
    recurrence = next(r for r in data.recurrences if r.run_id == run_id)
    said = recurrence.why.removeprefix(f"recurrence {recurrence.number} of job {recurrence.job_id}").removeprefix(". ")
    return f" {line(said, at_most=400)}." if said else ""


def _closed(data: ReportData) -> list[RecurrenceRow]:
    return [row for row in data.rows if row.state is not RecurrenceState.OPEN]


def _models(rows: Sequence[RecurrenceRow]) -> int:
    return sum(row.state is RecurrenceState.REACHED for row in rows)


def _tried_at_default(data: ReportData) -> str:
    tried = sum(trial.batch_size == data.job.spec.default_batch_size for trial in data.trials)
    return f" ({plural(tried, 'trial')})" if tried else ""


def _compared(ratio: float) -> str:
    if abs(ratio - 1) < 0.005:
        return "as much as"
    return f"{percent(1 - ratio)} less than" if ratio < 1 else f"{percent(ratio - 1)} more than"


def _outlook(data: ReportData, ratio: float) -> str:
    closed = _closed(data)
    later = [row for row in closed if not row.explored]
    later_ratio = cost_ratio(data, later)
    if later_ratio is None or ratio < 0.995 or later_ratio > 0.995:
        return ""
    # What was overspent, in trainings at the default size, over what one later recurrence saves.
    remaining = math.ceil((ratio - 1) * _models(closed) / (1 - later_ratio))
    return (
        f" Since the exploration a model costs {percent(1 - later_ratio)} less: at that rate the exploration "
        f"is paid back after {plural(max(1, remaining), 'more recurrence')}."
    )


def _total(
    label: str,
    scale_for: Callable[[Iterable[float | None]], Scale],
    spent: Iterable[float | None],
    per_model: float | None,
    models: int,
) -> Tile:
    total = _sum(spent)
    if total is None or per_model is None or not models:
        return Tile(label, scale_for([total]).with_unit(total), "nothing to compare with yet")
    against = per_model * models
    ratio = _finite_or_none(total / against) if against else None
    scale = scale_for([against])
    spent_against = f"{scale.with_unit(total)} against {scale.with_unit(against)}"
    detail = f"{spent_against} for {plural(models, 'model')} at the default batch size"
    return _change(label, ratio, detail)


def _since_exploring(data: ReportData, closed: Sequence[RecurrenceRow]) -> Tile:
    later = [row for row in closed if not row.explored]
    ratio, label = cost_ratio(data, later), "Cost since exploring"
    if ratio is None:
        return Tile(label, "–", "no model yet from a recurrence without exploration, or no default to compare with")
    each = mean(row.cost for row in later)
    return _change(label, ratio, f"{plural(len(later), 'recurrence')}, {energy(each)} each on average")


def _change(label: str, ratio: float | None, detail: str) -> Tile:
    if ratio is None:
        return Tile(label, "–", detail)
    if abs(ratio - 1) < 0.005:
        return Tile(label, "±0 %", detail)
    sign, tone = ("−", "good") if ratio < 1 else ("+", "bad")
    return Tile(label, f"{sign}{percent(abs(ratio - 1))}", detail, tone)


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if is_finite(value)]
    if not known:
        return None
    try:
        return math.fsum(known)
    except OverflowError:
        return None


def _finite_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None
