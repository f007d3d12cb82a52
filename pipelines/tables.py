"""Tables for the terminal."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from zeus_kfp.components.close_recurrence.report_data import RecurrenceRow, ReportData
from zeus_kfp.components.close_recurrence.report_format import UNKNOWN, Scale

if TYPE_CHECKING:
    from zeus_kfp.pipelines.client import ScheduleStatus


def recurrence_table(data: ReportData) -> Table:
    """Return a job's recurrences with what each took, against the default batch size."""
    rows = data.rows
    cost, energy = Scale.for_energy(r.cost for r in rows), Scale.for_energy(r.energy_j for r in rows)
    time = Scale.for_time(r.time_s for r in rows)
    estimated = any(row.energy_estimated for row in rows)
    table = Table(
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        title=f"Job {data.job.spec.job_id}, default batch size {data.job.spec.default_batch_size}",
    )
    columns = ("recur-\nrence", "trials", "batch\nsize", "epochs", f"time\n({time.unit})")
    energy_column = ("estimated\n" if estimated else "") + f"energy ({energy.unit})"
    for column in (*columns, energy_column, f"cost\n({cost.unit})", "against\ndefault"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row, time, energy, cost))
    return table


def _cells(row: RecurrenceRow, time: Scale, energy: Scale, cost: Scale) -> list[str]:
    return [
        str(row.number),
        str(row.trials),
        UNKNOWN if row.batch_size is None else str(row.batch_size),
        str(row.num_epochs),
        time.text(row.time_s),
        energy.text(row.energy_j),
        cost.text(row.cost),
        UNKNOWN if row.cost_vs_default is None else f"{row.cost_vs_default:.0%}",
        row.state.value,
    ]


def schedule_table(schedules: Iterable["ScheduleStatus"]) -> Table:
    """Return a cluster's schedules with their next and last run."""
    table = Table(box=SIMPLE_HEAD)
    for column in ("schedule", "when", "next run (UTC)", "last run", "state"):
        table.add_column(column)
    for status in schedules:
        upcoming = f"{status.next_run:%Y-%m-%d %H:%M}" if status.next_run else UNKNOWN
        last = UNKNOWN
        if status.last_run and status.last_run.created_at:
            last = f"{status.last_run.created_at:%Y-%m-%d %H:%M} {status.last_run.state}"
        state = "on" if status.enabled else "deleted" if status.is_deleted else "paused"
        state += ", last run to end" if status.retiring else ""
        table.add_row(status.name, status.when, upcoming, last, state)
    return table
