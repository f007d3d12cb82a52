"""The report's table of a job's knobs and of what its trials ran on."""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from zeus_kfp.components.close_recurrence.report_data import ReportData
from zeus_kfp.components.close_recurrence.report_format import UNKNOWN, line, moment, number
from zeus_kfp.components.close_recurrence.report_tables import Column, Row, Table
from zeus_kfp.state_store.records import TrialRecord


def knobs(data: ReportData) -> Table:
    """Return the job's knobs, and what its trials ran on."""
    spec = data.job.spec
    pairs = [(field.name, _knob(getattr(spec, field.name))) for field in fields(spec)]
    pairs += [
        ("rated power in the cost, W", number(data.job.max_power_w or None)),
        ("registered", moment(data.job.created_at)),
        ("accelerators", _distinct(_accelerator(trial) for trial in data.trials)),
        ("energy meters", _distinct(line(trial.energy_source, at_most=60) for trial in data.trials)),
    ]
    return Table((Column("Knob"), Column("Value")), tuple(Row(pair) for pair in pairs))


def _knob(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return "∞" if value == float("inf") else f"{value:.10g}"
    if isinstance(value, tuple):
        return ", ".join(str(size) for size in value)
    return line(str(value), at_most=255)


def _accelerator(trial: TrialRecord) -> str:
    if not trial.accelerator:
        return ""
    return f"{max(1, trial.accelerator_count)} × {line(trial.accelerator, at_most=60)}"


def _distinct(values: Iterable[str]) -> str:
    known = list(dict.fromkeys(value for value in values if value))
    return ", ".join(known[:5]) + (f" and {len(known) - 5:,} more" if len(known) > 5 else "") or UNKNOWN
