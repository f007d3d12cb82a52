"""The picture of what is believed of each batch size's cost, and the trials that the belief rests on."""

import textwrap
from collections.abc import Sequence
from typing import Any

from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator

from zeus_kfp.components.close_recurrence import plots_canvas as canvas
from zeus_kfp.components.close_recurrence.report_data import ReportData
from zeus_kfp.components.close_recurrence.report_format import Scale, count, line
from zeus_kfp.state_store.records import TrialRecord
from zeus_kfp.zeus_core.policies.interface import ArmPosterior
from zeus_kfp.zeus_core.trial import TrialState

MAX_SIZES = 24
MAX_DOTS = 600
_WIDE = 25.0
"""Costs further apart than this factor are drawn on a logarithmic axis."""


def posterior_picture(data: ReportData) -> canvas.Picture | None:
    """Return each batch size's mean cost ± one standard deviation with its trials; None without any cost."""
    arms = _shown_arms(data)
    trials = _shown_trials(data, arms)
    costs = canvas.drawable([*(trial.cost for trial in trials), *(arm.mean_cost for arm in arms)])
    positive = [cost for cost in costs if cost > 0]
    if not positive:
        return None
    scale = Scale.for_energy([max(positive)])
    figure, axes = canvas.new_axes(6.4, 1.3 + 0.33 * max(5, len(arms)))
    _set_range(axes, arms, positive, scale)
    _draw_trials(axes, arms, trials, scale)
    _draw_beliefs(axes, arms, scale)
    if data.job.spec.policy == "bayes":
        _draw_curve(axes, arms, scale)
    _draw_rows(axes, data, arms)
    axes.set_xlabel(f"cost of one trial, {scale.unit}")
    axes.set_ylabel("batch size")
    canvas.legend(figure, _legend(trials))
    return canvas.picture(
        figure, name="posterior", title="Cost of each batch size", caption=_caption(data, arms, trials)
    )


def _shown_arms(data: ReportData) -> list[ArmPosterior]:
    default = data.job.spec.default_batch_size
    by_interest = sorted(data.arms, key=lambda arm: (arm.batch_size != default, -arm.count))
    return sorted(by_interest[:MAX_SIZES], key=lambda arm: arm.batch_size)


def _shown_trials(data: ReportData, arms: Sequence[ArmPosterior]) -> list[TrialRecord]:
    sizes = {arm.batch_size for arm in arms}
    shown = [trial for trial in data.trials if trial.batch_size in sizes and canvas.drawable([trial.cost])]
    return shown[-MAX_DOTS:]


def _set_range(axes: Any, arms: Sequence[ArmPosterior], costs: Sequence[float], scale: Scale) -> None:
    low, high = min(costs) / scale.size, max(costs) / scale.size
    # An interval of one or two costs may be wider than everything else: it is cut rather than all squeezed.
    ends = [end / scale.size for arm in arms for end in canvas.drawable([_upper(arm)])]
    high = min(max([high, *ends]), 1.6 * high)
    if high > _WIDE * low:
        axes.set_xscale("log")
        axes.set_xlim(low / 1.5, high * 1.2)
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=9))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    else:
        axes.set_xlim(0, high * 1.06)


def _draw_trials(axes: Any, arms: Sequence[ArmPosterior], trials: Sequence[TrialRecord], scale: Scale) -> None:
    places = {arm.batch_size: place for place, arm in enumerate(arms)}
    for reached, marker, colour in ((True, "o", canvas.SPENT), (False, "x", canvas.LOST)):
        chosen = [trial for trial in trials if (trial.state is TrialState.REACHED) is reached]
        axes.plot(
            [(trial.cost or 0.0) / scale.size for trial in chosen],
            [places[trial.batch_size] for trial in chosen],
            marker=marker,
            linestyle="none",
            markersize=5,
            color=colour,
            markeredgecolor=colour,
            alpha=0.75,
            zorder=5,
        )


def _draw_beliefs(axes: Any, arms: Sequence[ArmPosterior], scale: Scale) -> None:
    for place, arm in enumerate(arms):
        if not canvas.drawable([arm.mean_cost]) or arm.mean_cost is None:
            continue
        colour = canvas.OFF if _ruled_out(arm) else canvas.INK
        mean = arm.mean_cost / scale.size
        axes.plot([mean], [place], marker="|", markersize=13, markeredgewidth=2.5, color=colour, zorder=4)
        if arm.standard_deviation is not None and canvas.drawable([_upper(arm)]):
            deviation = arm.standard_deviation / scale.size
            low = max(mean - deviation, axes.get_xlim()[0])
            axes.plot(
                [low, mean + deviation], [place, place], color=colour, linewidth=2, solid_capstyle="round", zorder=4
            )


def _draw_curve(axes: Any, arms: Sequence[ArmPosterior], scale: Scale) -> None:
    """Join the beliefs of a policy that models how cost follows batch size: it has one of untried sizes too."""
    known = [
        (place, arm.mean_cost / scale.size, (arm.standard_deviation or 0.0) / scale.size)
        for place, arm in enumerate(arms)
        if arm.mean_cost is not None and canvas.drawable([arm.mean_cost, _upper(arm)])
    ]
    places, means, deviations = ([row[column] for row in known] for column in range(3))
    low = [max(mean - spread, axes.get_xlim()[0]) for mean, spread in zip(means, deviations, strict=True)]
    high = [mean + spread for mean, spread in zip(means, deviations, strict=True)]
    axes.fill_betweenx(places, low, high, color=canvas.OFF, alpha=0.18, linewidth=0, zorder=1)
    axes.plot(means, places, color=canvas.OFF, linewidth=1, zorder=2)


def _draw_rows(axes: Any, data: ReportData, arms: Sequence[ArmPosterior]) -> None:
    default = data.job.spec.default_batch_size
    axes.set_yticks(
        range(len(arms)),
        [count(arm.batch_size) + (" (default)" if arm.batch_size == default else "") for arm in arms],
    )
    axes.set_ylim(-0.6, len(arms) - 0.4)
    axes.grid(axis="y", color=canvas.LINE, linewidth=0.6)
    for place, (arm, label) in enumerate(zip(arms, axes.get_yticklabels(), strict=True)):
        colour = canvas.OFF if _ruled_out(arm) else canvas.MUTED
        label.set_color(colour)
        axes.text(
            1.01,
            place,
            _wrapped(arm.status),
            transform=axes.get_yaxis_transform(),
            va="center",
            color=colour,
            fontsize=8,
            linespacing=1.0,
            parse_math=False,
        )


def _legend(trials: Sequence[TrialRecord]) -> list[Any]:
    handles = [
        Line2D(
            [],
            [],
            marker="|",
            markersize=9,
            markeredgewidth=2.5,
            color=canvas.INK,
            linewidth=2,
            label="belief: mean ± one s.d.",
        ),
        Line2D([], [], marker="o", color=canvas.SPENT, linestyle="none", label="reached the target"),
    ]
    if any(trial.state is not TrialState.REACHED for trial in trials):
        handles.append(Line2D([], [], marker="x", color=canvas.LOST, linestyle="none", label="did not"))
    return handles


def _caption(data: ReportData, arms: Sequence[ArmPosterior], trials: Sequence[TrialRecord]) -> str:
    parts = ["What a trial at each batch size is believed to cost, and the trials that this rests on."]
    if data.job.spec.policy == "bayes":
        parts.append("The line is the model's curve over batch sizes, the band one standard deviation about it.")
    if len(arms) < len(data.arms):
        parts.append(f"The {len(arms)} sizes with the most trials; all are in the table below.")
    if len(trials) == MAX_DOTS:
        parts.append(f"The latest {MAX_DOTS} trials.")
    return " ".join(parts)


def _upper(arm: ArmPosterior) -> float | None:
    if arm.mean_cost is None or arm.standard_deviation is None:
        return None
    return arm.mean_cost + arm.standard_deviation


def _wrapped(status: str) -> str:
    return "\n".join(textwrap.wrap(line(status, at_most=60), width=26, max_lines=2, placeholder=" …"))


def _ruled_out(arm: ArmPosterior) -> bool:
    return arm.status.startswith("ruled out")
