"""The picture of what each recurrence cost, against the default batch size."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from zeus_kfp.components.close_recurrence import plots_canvas as canvas
from zeus_kfp.components.close_recurrence.report_data import RecurrenceRow, ReportData, is_finite, mean
from zeus_kfp.components.close_recurrence.report_format import Scale, count
from zeus_kfp.state_store.records import RecurrenceState
from zeus_kfp.zeus_core.trial import TrialState

MAX_BARS = 100
_MAX_LABELLED_BARS = 30


@dataclass(frozen=True, slots=True)
class _Bar:
    """One recurrence, or the mean of several neighbours.

    Attributes:
        first: Number of the (first) recurrence.
        reached_cost: Cost in J of trials that reached the target.
        lost_cost: Cost in J of trials that did not.
        gave_no_model: Whether a closed recurrence among them reached no target.
        explored: Whether any was part of the exploration.
        batch_size: The winner's batch size where the bar is one recurrence.
    """

    first: int
    reached_cost: float
    lost_cost: float
    gave_no_model: bool
    explored: bool
    batch_size: int | None


def cost_picture(data: ReportData) -> canvas.Picture | None:
    """Return the cost of each recurrence against the default batch size; None while no cost is known."""
    per_bar = max(1, math.ceil(len(data.rows) / MAX_BARS))
    bars = _bars(data, per_bar)
    heights = [bar.reached_cost + bar.lost_cost for bar in bars]
    if not any(heights):
        return None
    scale = Scale.for_energy([max(heights)])
    figure, axes = canvas.new_axes(6.4, 3.9)
    _draw_bars(axes, bars, scale)
    _mark(axes, bars, scale)
    axes.set_xlabel("recurrence" if per_bar == 1 else f"recurrences (each bar the mean of {per_bar})")
    axes.set_ylabel(f"cost, {scale.unit}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    _draw_default(axes, data, scale, max(heights))
    canvas.legend(figure, _legend(data, bars, scale))
    return canvas.picture(figure, name="cost", title="Cost of each recurrence", caption=_caption(bars, per_bar))


def _bars(data: ReportData, per_bar: int) -> list[_Bar]:
    reached: dict[str, float] = {}
    lost: dict[str, float] = {}
    for trial in data.trials:
        if trial.cost is not None and canvas.drawable([trial.cost]):
            costs = reached if trial.state is TrialState.REACHED else lost
            costs[trial.run_id] = costs.get(trial.run_id, 0.0) + trial.cost
    starts = range(0, len(data.rows), per_bar)
    return [_bar(data.rows[start : start + per_bar], reached, lost) for start in starts]


def _bar(rows: Sequence[RecurrenceRow], reached: dict[str, float], lost: dict[str, float]) -> _Bar:
    return _Bar(
        first=rows[0].number,
        reached_cost=mean(reached.get(row.run_id, 0.0) for row in rows) or 0.0,
        lost_cost=mean(lost.get(row.run_id, 0.0) for row in rows) or 0.0,
        gave_no_model=any(row.state not in (RecurrenceState.REACHED, RecurrenceState.OPEN) for row in rows),
        explored=any(row.explored for row in rows),
        batch_size=rows[0].batch_size if len(rows) == 1 else None,
    )


def _draw_bars(axes: Any, bars: Sequence[_Bar], scale: Scale) -> None:
    places = range(len(bars))
    reached = [bar.reached_cost / scale.size for bar in bars]
    lost = [bar.lost_cost / scale.size for bar in bars]
    axes.bar(places, reached, width=0.74, color=canvas.SPENT, zorder=2)
    axes.bar(places, lost, width=0.74, bottom=reached, color=canvas.LOST, zorder=2)
    step = max(1, math.ceil(len(bars) / (20 if bars[-1].first < 100 else 8)))
    axes.set_xticks(places[::step], [count(bar.first) for bar in bars[::step]])
    axes.set_xlim(-0.6, len(bars) - 0.4)
    for explored, run in groupby(places, key=lambda place: bars[place].explored):
        if explored:
            first, *_, last = [*run] * 2
            axes.axvspan(first - 0.5, last + 0.5, color=canvas.SHADE, linewidth=0, zorder=0)


def _mark(axes: Any, bars: Sequence[_Bar], scale: Scale) -> None:
    labelled = len(bars) <= _MAX_LABELLED_BARS
    for place, bar in enumerate(bars):
        failed = ("✕", canvas.LOST, 14 if labelled else 8)
        label, colour, size = failed if bar.gave_no_model else ("", canvas.INK, 9)
        if labelled and bar.batch_size is not None:
            label = count(bar.batch_size)
        top = (bar.reached_cost + bar.lost_cost) / scale.size
        axes.annotate(label, (place, top), (0, 3), textcoords="offset points", ha="center", color=colour, fontsize=size)


def _draw_default(axes: Any, data: ReportData, scale: Scale, highest: float) -> None:
    default = data.baseline.cost if data.baseline else None
    if not is_finite(default) or not canvas.drawable([default]):
        axes.set_ylim(0, 1.15 * highest / scale.size)
        return
    height = default / scale.size
    axes.axhline(height, color=canvas.DEFAULT, linewidth=1.6, linestyle=(0, (5, 3)), zorder=3)
    axes.set_ylim(0, 1.15 * max(highest / scale.size, height))
    right = axes.secondary_yaxis("right", functions=(lambda y: 100 * y / height, lambda p: p * height / 100))
    right.set_ylabel("% of the default batch size's", color=canvas.MUTED)
    right.tick_params(color=canvas.LINE, labelcolor=canvas.MUTED)
    right.spines["right"].set_color(canvas.LINE)


def _legend(data: ReportData, bars: Sequence[_Bar], scale: Scale) -> list[Any]:
    handles: list[Any] = [Patch(color=canvas.SPENT, label="reached the target")]
    if any(bar.lost_cost for bar in bars):
        handles.append(Patch(color=canvas.LOST, label="did not"))
    if any(bar.explored for bar in bars):
        handles.append(Patch(color=canvas.SHADE, label="exploring"))
    if data.baseline:
        label = f"default {count(data.job.spec.default_batch_size)}: {scale.with_unit(data.baseline.cost)}"
        handles.append(Line2D([], [], color=canvas.DEFAULT, linestyle=(0, (5, 3)), label=label))
    return handles


def _caption(bars: Sequence[_Bar], per_bar: int) -> str:
    parts = ["Whole cost of each recurrence, all of its trials together."]
    if per_bar > 1:
        parts = [f"Each bar is the mean whole cost of {per_bar} recurrences, all of their trials together."]
    elif len(bars) <= _MAX_LABELLED_BARS:
        parts.append("The number on a bar is the batch size that reached the target.")
    if any(bar.gave_no_model for bar in bars):
        parts.append("✕: no trial reached the target." if per_bar == 1 else "✕: some of them reached no target.")
    return " ".join(parts)
