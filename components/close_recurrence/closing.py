"""Close a recurrence and write down how it stands: what the exit handler does."""

import json
from collections.abc import Iterable
from pathlib import Path

from kfp import dsl

from zeus_kfp.components.close_recurrence.html import render_html
from zeus_kfp.components.close_recurrence.markdown import render_markdown
from zeus_kfp.components.close_recurrence.report_data import ReportData, scalar_metrics
from zeus_kfp.components.winner import publish_winner
from zeus_kfp.state_store import StateStore
from zeus_kfp.zeus_core.errors import UnknownJobError, UnknownRecurrenceError, ZeusError
from zeus_kfp.zeus_core.power import repair_elsewhere
from zeus_kfp.zeus_core.power.elsewhere import Left


def close_and_report(
    job_id: str, run_id: str, *, report: dsl.HTML, summary: dsl.Markdown, metrics: dsl.Metrics, winner: dsl.Model
) -> None:
    """Close the recurrence of a run and write its report, also where the run was never granted one.

    Before that, power limits that killed pods have left are put back, where the pods keep them in a shared folder.

    Args:
        job_id: Name of the job.
        run_id: The KFP run.
        report: Where the HTML report goes.
        summary: Where the Markdown report goes.
        metrics: Where the recurrence's figures go.
        winner: Where the winner's model is published, if there is one.
    """
    left = repair_elsewhere()
    for gpu in left:
        print(gpu.line)
    with StateStore.from_environment() as store:
        if not _close(store, job_id, run_id):
            run_id = ""
        _note_lost_pods(store, left)
        try:
            data = ReportData.from_store(store, job_id)
        except UnknownJobError as error:
            _write_both(report, summary, f"No report: {error}")
            return
        best = store.winner(job_id, run_id) if run_id else None
    Path(report.path).write_text(render_html(data, run_id=run_id or None), encoding="utf-8")
    Path(summary.path).write_text(render_markdown(data, run_id=run_id or None), encoding="utf-8")
    for name, value in scalar_metrics(data, run_id).items():
        metrics.log_metric(name, value)
    if best is not None and best.model_uri:
        publish_winner(best, winner)


def _close(store: StateStore, job_id: str, run_id: str) -> bool:
    try:
        closed = store.close_recurrence(job_id, run_id)
    except (UnknownJobError, UnknownRecurrenceError) as error:
        print(f"nothing to close: {error}")
        return False
    print(closed.in_words())
    return True


def _note_lost_pods(store: StateStore, left: Iterable[Left]) -> None:
    """Keep where a pod was that was killed before it could report, and which limits its GPUs had."""
    for gpu in left:
        if gpu.found is None or not gpu.found.trial:
            continue
        try:
            job_id, run_id, slot = json.loads(gpu.found.trial)
            store.note_lost_pod(job_id, run_id, slot, gpu.found.node, {gpu.uuid: gpu.found.found_w})
        except (ValueError, TypeError, ZeusError) as error:
            print(f"{gpu.uuid} can't be noted in the store: {error}")


def _write_both(report: dsl.HTML, summary: dsl.Markdown, text: str) -> None:
    from html import escape

    Path(report.path).write_text(f"<!doctype html><meta charset='utf-8'><p>{escape(text)}</p>", encoding="utf-8")
    Path(summary.path).write_text(text + "\n", encoding="utf-8")
