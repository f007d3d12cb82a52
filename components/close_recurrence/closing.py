"""Close a recurrence and write down how it stands: what the exit handler does."""

from pathlib import Path

from kfp import dsl

from zeus_kfp.components.close_recurrence.html import render_html
from zeus_kfp.components.close_recurrence.markdown import render_markdown
from zeus_kfp.components.close_recurrence.report_data import ReportData, scalar_metrics
from zeus_kfp.components.winner import publish_winner
from zeus_kfp.state_store import StateStore
from zeus_kfp.zeus_core.errors import UnknownJobError, UnknownRecurrenceError
from zeus_kfp.zeus_core.power import repair_elsewhere


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
    for line in repair_elsewhere():
        print(line)
    with StateStore.from_environment() as store:
        if not _close(store, job_id, run_id):
            run_id = ""
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
    print(f"recurrence {closed.number} of {job_id}: {closed.state} after {closed.trial_count} trials")
    return True


def _write_both(report: dsl.HTML, summary: dsl.Markdown, text: str) -> None:
    from html import escape

    Path(report.path).write_text(f"<!doctype html><meta charset='utf-8'><p>{escape(text)}</p>", encoding="utf-8")
    Path(summary.path).write_text(text + "\n", encoding="utf-8")
