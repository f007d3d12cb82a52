"""Run the demonstration: recurrences of the real pipeline under KFP's local runner, on an SQLite store."""

import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from zeus_kfp.components.close_recurrence.html import render_html
from zeus_kfp.components.close_recurrence.report_data import ReportData
from zeus_kfp.pipelines.demo.fake_gpu import fake_gpu
from zeus_kfp.pipelines.demo.progress import tapped_output
from zeus_kfp.pipelines.local import run_locally
from zeus_kfp.pipelines.recurring_training import recurring_training
from zeus_kfp.pipelines.tables import recurrence_table
from zeus_kfp.state_store import StateStore
from zeus_kfp.state_store.database import STORE_VARIABLE
from zeus_kfp.state_store.records import RecurrenceRecord, RecurrenceState
from zeus_kfp.zeus_core.errors import InvalidValueError, JobInUseError, UnknownJobError

JOB_ID = "digits"
JOB: dict[str, Any] = {
    "job_id": JOB_ID,
    "batch_sizes": [8, 16, 32, 64, 128],
    "default_batch_size": 8,
    "target_metric": 0.97,
    "max_epochs": 40,
    "max_retries": 3,
    "max_trial_time_s": 120.0,
    "user": "demo",
}


def run_demo(folder: Path, recurrences: int, console: Console, device: str = "cpu") -> int:
    """Retrain the digits model ``recurrences`` times, then show the table and write the report.

    Args:
        folder: Where the store, artifacts, logs and the report go; a store that is there is gone on from.
        recurrences: How often to retrain.
        console: Where people look.
        device: "cpu", or "fake-gpu" for a simulated GPU whose power limits are profiled and set.

    Returns:
        How many recurrences ended without reaching the target.

    Raises:
        InvalidValueError: If the device is none of these, or what the demonstration trains with is not installed.
        JobInUseError: If another recurrence of the demonstration is under way, or was left behind.
    """
    missing = [name for name in ("sklearn", "torch") if find_spec(name) is None]
    if missing:
        raise InvalidValueError(
            f"the demonstration trains with {' and '.join(missing)}, which is not installed: install the extra `demo`, "
            "such as by `pip install --constraint constraints.txt '.[demo]'` in a checkout"
        )
    if device == "fake-gpu":
        with fake_gpu(folder.resolve() / "gpu"):
            return _run(f"{JOB_ID}-{device}", folder.resolve(), recurrences, console)
    if device != "cpu":
        raise InvalidValueError(f"the demonstration's device must be cpu or fake-gpu, not {device!r}")
    return _run(JOB_ID, folder.resolve(), recurrences, console)


def _run(job_id: str, folder: Path, recurrences: int, console: Console) -> int:
    store_url = f"sqlite:///{folder / 'store.db'}"
    folder.mkdir(parents=True, exist_ok=True)
    pipeline = recurring_training(
        train="zeus_kfp.pipelines.demo.digits:train",
        preprocess="zeus_kfp.pipelines.demo.digits:preprocess",
        name="digits",
        **JOB | {"job_id": job_id},
    )
    earlier = _recurrences_so_far(store_url, job_id)
    console.print(f"Retraining a digit classifier {recurrences} times; the store knows {earlier} recurrences so far.")
    failed = 0
    with _progress(console) as progress:
        task = progress.add_task("starting", total=recurrences)
        for number in range(earlier + 1, earlier + recurrences + 1):
            failed += not _recur(pipeline, job_id, number, folder, store_url, progress, task)
            progress.advance(task)
        progress.update(task, description="done")
    _show(store_url, job_id, folder / "report.html", console)
    return failed


def _recurrences_so_far(store_url: str, job_id: str) -> int:
    with StateStore(store_url) as store:
        try:
            return store.job(job_id).recurrence_count
        except UnknownJobError:
            return 0


def _recur(
    pipeline: object, job_id: str, number: int, folder: Path, store_url: str, progress: Progress, task: TaskID
) -> bool:
    log = folder / "logs" / f"recurrence-{number:03}.log"

    def on_line(line: str) -> None:
        if line.startswith("epoch "):
            progress.update(task, description=f"recurrence {number}: {line}")
        else:
            progress.console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)

    with tapped_output(log, on_line):
        try:
            run_locally(pipeline, store_url=store_url, root=folder / "artifacts")
        except KeyboardInterrupt:
            _close_what_is_under_way(store_url, job_id)
            raise
        except RuntimeError as error:
            on_line(f"recurrence {number} failed: {error}; its log is {log}")
            return False
    if _recurrences_so_far(store_url, job_id) < number:
        raise JobInUseError(_why_not_granted(store_url, job_id, log))
    return True


def _under_way(store_url: str, job_id: str) -> tuple[RecurrenceRecord, ...]:
    with StateStore(store_url) as store:
        return store.recurrences(job_id, state=RecurrenceState.OPEN)


def _close_what_is_under_way(store_url: str, job_id: str) -> None:
    # The demonstration has a single slot, so that it is ours.
    with StateStore(store_url) as store:
        for recurrence in store.recurrences(job_id, state=RecurrenceState.OPEN):
            store.close_recurrence(job_id, recurrence.run_id)


def _why_not_granted(store_url: str, job_id: str, log: Path) -> str:
    for recurrence in _under_way(store_url, job_id):
        return (
            f"recurrence {recurrence.number} of the demonstration is under way, or was left by one that was killed: "
            f"wait for its end, or free its slot by `{STORE_VARIABLE}={shlex.quote(store_url)} zeus-kfp recurrences "
            f"close {recurrence.job_id} {recurrence.run_id}`"
        )
    return f"the demonstration was granted no further recurrence: {log} says why"


def _progress(console: Console) -> Progress:
    return Progress(
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
        console=console,
        redirect_stdout=False,
        redirect_stderr=False,
    )


def _show(store_url: str, job_id: str, report: Path, console: Console) -> None:
    with StateStore(store_url) as store:
        data = ReportData.from_store(store, job_id)
    report.write_text(render_html(data), encoding="utf-8")
    console.print(recurrence_table(data))
    console.print(f"Report: {report}", soft_wrap=True)
