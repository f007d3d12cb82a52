"""What people are told at the end of runs on this machine."""

import shlex
from collections.abc import Iterator
from datetime import datetime
from enum import Enum

import typer

from zeus_kfp.components.winner import why_no_winner
from zeus_kfp.state_store import StateStore
from zeus_kfp.state_store.records import RecurrenceRecord, RecurrenceState
from zeus_kfp.zeus_core.errors import UnknownJobError


class Ending(Enum):
    """How the runs ended."""

    WELL = "well"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


def show_job(store_url: str, job_id: str, as_json: bool, *, since: datetime, times: int, ending: Ending) -> None:
    """Print the job's recurrences, and on standard error what else must be known.

    Args:
        store_url: The store's URL.
        job_id: The job's name.
        as_json: Whether the recurrences are printed as JSON.
        since: When the runs began.
        times: How many there were to be.
        ending: How they ended.
    """
    with StateStore(store_url) as store:
        try:
            recurrences = store.recurrences(job_id)
        except UnknownJobError:
            typer.echo("[]" if as_json else "no recurrence was opened")
            return
        _print(store, job_id, recurrences, as_json)
        ours = [recurrence for recurrence in recurrences if recurrence.opened_at >= since]
        for line in _remarks(store, ours, times, ending):
            typer.echo(f"zeus-kfp: {line}", err=True)


def _print(store: StateStore, job_id: str, recurrences: tuple[RecurrenceRecord, ...], as_json: bool) -> None:
    from rich.console import Console

    from zeus_kfp.components.close_recurrence.report_data import ReportData
    from zeus_kfp.pipelines.store_output import to_json
    from zeus_kfp.pipelines.tables import recurrence_table

    if as_json:
        typer.echo(to_json(recurrences))
    else:
        Console().print(recurrence_table(ReportData.from_store(store, job_id)))


def _remarks(store: StateStore, ours: list[RecurrenceRecord], times: int, ending: Ending) -> Iterator[str]:
    if ending is Ending.WELL and len(ours) < times:
        yield f"{len(ours)} of {times} runs were granted a recurrence; the output above says why"
    if ending is Ending.FAILED and ours and ours[-1].state is RecurrenceState.NOT_REACHED:
        yield why_no_winner(store.trials(ours[-1].job_id, ours[-1].run_id))
    for recurrence in ours:
        if ending is not Ending.WELL and recurrence.state is RecurrenceState.OPEN:
            yield (
                f"recurrence {recurrence.number} was under way, and keeps its slot until its lease is over; free it by "
                f"`zeus-kfp recurrences close {shlex.quote(recurrence.job_id)} {recurrence.run_id}`, with "
                "ZEUS_KFP_STORE_URL set to this store"
            )
