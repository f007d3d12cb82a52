"""The report's tables as plain text cells, the same for HTML and Markdown; renderers escape every cell."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from zeus_kfp.components.close_recurrence.report_data import RecurrenceRow, ReportData
from zeus_kfp.components.close_recurrence.report_format import (
    UNKNOWN,
    Scale,
    count,
    line,
    percent,
    plural,
    tail,
)
from zeus_kfp.state_store.records import RecurrenceState, TrialRecord
from zeus_kfp.zeus_core.trial import Purpose, TrialState

MAX_ROWS = 200
MAX_FAILURES = 30

STATE_WORDS: dict[StrEnum, str] = {
    TrialState.ISSUED: "running",
    TrialState.REACHED: "reached",
    TrialState.NOT_REACHED: "not reached",
    TrialState.OOM: "out of memory",
    TrialState.FAILED: "failed",
    TrialState.EXPIRED: "never reported",
    RecurrenceState.OPEN: "open",
}
_MARKS = {TrialState.REACHED: "✓", TrialState.ISSUED: "…"}
_PURPOSE_WORDS = {
    Purpose.EXPLORATION: "exploring",
    Purpose.CONCURRENT: "best known, as another trial explores",
    Purpose.SAMPLING: "sampled from the posterior",
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column's heading, and whether it holds numbers."""

    title: str
    is_number: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A row's cells, with its tone ("good", "bad", "off" or "") and whether it is of the run at hand."""

    cells: tuple[str, ...]
    tone: str = ""
    is_this_run: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table with a note on what it leaves out ("" for nothing)."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """A trial that did not reach the target: which one, why, and the end of its output."""

    title: str
    reason: str
    error: str


def recurrence_table(data: ReportData, run_id: str | None) -> Table:
    """Return the recurrences, newest first, with what each cost."""
    shown = data.rows[-MAX_ROWS:]
    time = Scale.for_time(row.time_s for row in shown)
    energy = Scale.for_energy(row.energy_j for row in shown)
    cost = Scale.for_energy(row.cost for row in shown)
    titles = (
        "Trials",
        "Epochs",
        f"Time, {time.unit}",
        f"Energy, {energy.unit}",
        f"Cost, {cost.unit}",
        "Against default",
    )
    columns = (Column("Recurrence", True), Column("State"), Column("Batch sizes tried"), *_numbers(titles))
    rows = [
        Row(
            cells=(
                count(row.number),
                STATE_WORDS.get(row.state, row.state.replace("_", " ")),
                tried_text(row),
                count(row.trials),
                count(row.num_epochs),
                time.text(row.time_s or None),
                energy.text(row.energy_j, estimated=row.energy_estimated),
                cost.text(row.cost, estimated=row.energy_estimated and data.job.spec.eta_knob > 0),
                percent(row.cost_vs_default),
            ),
            tone=_tone(row.state),
            is_this_run=row.run_id == run_id,
        )
        for row in reversed(shown)
    ]
    return Table(columns, tuple(rows), _left_out(len(data.rows), len(shown), "recurrence"))


def trial_table(data: ReportData, run_id: str | None) -> Table:
    """Return the trials, newest first, with why each batch size was handed out and how it ended."""
    shown = data.trials[-MAX_ROWS:]
    time = Scale.for_time(trial.time_s for trial in shown)
    energy = Scale.for_energy(trial.energy_j for trial in shown)
    cost = Scale.for_energy(trial.cost for trial in shown)
    titles = ("Epochs", "Metric", f"Time, {time.unit}", f"Energy, {energy.unit}", f"Cost, {cost.unit}")
    columns = (
        *_numbers(("Trial", "Recurrence", "Batch size")),
        Column("Why this size"),
        Column("How it ended"),
        *_numbers(titles),
    )
    rows = [
        Row(
            cells=(
                count(trial.number),
                count(trial.recurrence_number),
                count(trial.batch_size),
                _purpose(trial),
                _ending(trial),
                count(trial.num_epochs),
                UNKNOWN if trial.metric is None else f"{trial.metric:.4g}",
                time.text(trial.time_s),
                energy.text(trial.energy_j, estimated=trial.energy_estimated),
                cost.text(trial.cost, estimated=trial.energy_estimated and data.job.spec.eta_knob > 0),
            ),
            tone=_tone(trial.state),
            is_this_run=trial.run_id == run_id,
        )
        for trial in reversed(shown)
    ]
    return Table(columns, tuple(rows), _left_out(len(data.trials), len(shown), "trial"))


def arm_table(data: ReportData) -> Table:
    """Return the belief about each batch size."""
    cost = Scale.for_energy(arm.mean_cost for arm in data.arms)
    columns = (
        *_numbers(("Batch size", "Costs known", f"Mean cost, {cost.unit}", f"± one s.d., {cost.unit}")),
        Column("Status"),
    )
    default = data.job.spec.default_batch_size
    rows = [
        Row(
            cells=(
                count(arm.batch_size),
                count(arm.count),
                cost.text(arm.mean_cost),
                cost.text(arm.standard_deviation),
                line(arm.status) + (" (default)" if arm.batch_size == default else ""),
            ),
            tone="off" if arm.status.startswith("ruled out") else "",
        )
        for arm in data.arms
    ]
    return Table(columns, tuple(rows))


def failures(data: ReportData) -> tuple[tuple[Failure, ...], str]:
    """Return the latest trials that did not reach the target, newest first, and a note on those left out."""
    ended = [trial for trial in data.trials if trial.state not in (TrialState.REACHED, TrialState.ISSUED)]
    shown = ended[-MAX_FAILURES:]
    listed = [
        Failure(
            title=f"Trial {trial.number:,} (recurrence {trial.recurrence_number:,}) at batch size "
            f"{trial.batch_size:,}: {_word(trial)}",
            reason=line(trial.reason, at_most=400),
            error=tail(trial.error),
        )
        for trial in reversed(shown)
    ]
    return tuple(listed), _left_out(len(ended), len(shown), "such trial")


def tried_text(row: RecurrenceRow) -> str:
    """Return the batch sizes that a recurrence tried, in order, each marked with how it ended."""
    shown = row.tried[-8:]
    marked = [f"{batch_size:,} {_MARKS.get(state, '✕')}" for batch_size, state in shown]
    earlier = [f"{len(row.tried) - len(shown):,} more"] if len(row.tried) > len(shown) else []
    return " → ".join(earlier + marked) or UNKNOWN


def _purpose(trial: TrialRecord) -> str:
    return line(trial.why) or _PURPOSE_WORDS[trial.purpose]


def _ending(trial: TrialRecord) -> str:
    word, reason = _word(trial), line(trial.reason)
    if not reason:
        return word
    return reason if word in reason else f"{word}: {reason}"


def _word(trial: TrialRecord) -> str:
    return "hopeless" if trial.is_hopeless else STATE_WORDS[trial.state]


def _tone(state: TrialState | RecurrenceState) -> str:
    if state in (TrialState.ISSUED, RecurrenceState.OPEN):
        return ""
    return "good" if state in (TrialState.REACHED, RecurrenceState.REACHED) else "bad"


def _numbers(titles: Iterable[str]) -> tuple[Column, ...]:
    return tuple(Column(title, is_number=True) for title in titles)


def _left_out(total: int, shown: int, noun: str) -> str:
    return (
        f"The latest {shown:,} are shown; {plural(total - shown, 'earlier ' + noun)} left out." if total > shown else ""
    )
