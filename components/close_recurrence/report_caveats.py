"""What a reader must know of the report's numbers, to take them for no more than they are."""

from zeus_kfp.components.close_recurrence.report_data import ReportData
from zeus_kfp.components.close_recurrence.report_format import count, energy, line, plural
from zeus_kfp.state_store.records import RecurrenceState, TrialRecord
from zeus_kfp.zeus_core.meters.checked import disagree
from zeus_kfp.zeus_core.trial import TrialState

_WITHOUT_COST = (TrialState.OOM, TrialState.FAILED, TrialState.EXPIRED)


def caveats(data: ReportData) -> tuple[str, ...]:
    """Return what a reader must know to take the numbers for no more than they are."""
    return tuple(
        sentence
        for sentence in (
            _estimated(data),
            _disagreeing(data),
            _baseline_basis(data),
            _without_cost(data),
            _without_model(data),
            _hopeless(data),
            _moved(data),
            _several_accelerators(data),
        )
        if sentence
    )


def _estimated(data: ReportData) -> str:
    known = [trial for trial in data.trials if trial.energy_j is not None]
    estimated = sum(trial.energy_estimated for trial in known)
    if not estimated:
        return ""
    which = "" if estimated == len(known) else f" in {estimated:,} of {plural(len(known), 'trial')}"
    rest = ", and so is what the costs take from it" if data.job.spec.eta_knob > 0 else ""
    return f"Energy estimated, not measured{which} (marked ≈){rest}."


def _disagreeing(data: ReportData) -> str:
    apart = [trial for trial in data.trials if _has_disagreeing_meters(trial)]
    if not apart:
        return ""
    last = apart[-1]
    return (
        f"Two meters differ by half or more in {plural(len(apart), 'trial')}, last in trial {last.number:,}: "
        f"{energy(last.energy_j)} by {line(last.energy_source)}, {energy(last.second_energy_j)} by "
        f"{line(last.second_energy_source)}. The first one counts."
    )


def _has_disagreeing_meters(trial: TrialRecord) -> bool:
    if trial.energy_j is None or trial.second_energy_j is None or trial.time_s is None:
        return False
    # The second energy is that of the last attempt alone.
    is_same_stretch = trial.attempts == 1 and not trial.energy_estimated
    return is_same_stretch and disagree(trial.energy_j, trial.second_energy_j, trial.time_s)


def _baseline_basis(data: ReportData) -> str:
    if data.baseline is None:
        return ""
    default = count(data.job.spec.default_batch_size)
    return (
        f"The default batch size {default} costs {energy(data.baseline.cost)}: the mean of "
        f"{plural(data.baseline.count, 'trial')} that reached the target with it."
    )


def _without_cost(data: ReportData) -> str:
    lost = sum(trial.state in _WITHOUT_COST and trial.cost is None for trial in data.trials)
    if not lost:
        return ""
    have = "has no cost and is" if lost == 1 else "have no cost and are"
    return f"{plural(lost, 'trial')} that ran out of memory, failed or never reported {have} not counted in it."


def _without_model(data: ReportData) -> str:
    with_model = (RecurrenceState.OPEN, RecurrenceState.REACHED)
    lost = sum(row.state not in with_model for row in data.rows)
    return f"The cost of {plural(lost, 'recurrence')} without a model is included." if lost else ""


def _hopeless(data: ReportData) -> str:
    stopped = sum(trial.is_hopeless for trial in data.trials)
    if not stopped:
        return ""
    was = "was stopped as hopeless; it counts" if stopped == 1 else "were stopped as hopeless; they count"
    return f"{plural(stopped, 'trial')} {was} against the batch size with the cost predicted, not with what was spent."


def _moved(data: ReportData) -> str:
    models = [line(model, at_most=60) for model in data.job.accelerators[-3:]]
    if len(models) < 2:
        return ""
    return (
        f"The job has moved from {' to '.join(models)}: the epochs learnt before count on, and costs were learnt anew "
        "from the second trial there."
    )


def _several_accelerators(data: ReportData) -> str:
    kinds = sorted({line(trial.accelerator, at_most=60) for trial in data.trials if trial.accelerator})
    if len(kinds) < 2:
        return ""
    shown = ", ".join(kinds[:5]) + (f" and {len(kinds) - 5:,} more" if len(kinds) > 5 else "")
    return f"Trials ran on different accelerators, whose costs differ for that reason too: {shown}."
