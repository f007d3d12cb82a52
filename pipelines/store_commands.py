"""The commands that look into the store that ZEUS_KFP_STORE_URL names, and those that end or reset a job."""

import dataclasses
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zeus_kfp.pipelines.store_output import Format, to_json, write
from zeus_kfp.state_store.records import JobPhase, RecurrenceState, TrialRecord
from zeus_kfp.zeus_core.errors import InvalidValueError, UnknownJobError, UnknownTrialError
from zeus_kfp.zeus_core.trial import TrialState

if TYPE_CHECKING:
    from zeus_kfp.state_store import StateStore
    from zeus_kfp.state_store.records import JobOverview

jobs = typer.Typer(help="Jobs: what recurs, and what was learnt of it.", no_args_is_help=True)
recurrences = typer.Typer(help="Recurrences: the KFP runs of a job.", no_args_is_help=True)
trials = typer.Typer(help="Trials: the trainings of a recurrence.", no_args_is_help=True)
profiles = typer.Typer(help="Profiles: power and throughput by batch size and power limit.", no_args_is_help=True)
arms = typer.Typer(help="Arms: what is believed of each batch size.", no_args_is_help=True)
database = typer.Typer(help="The store's database.", no_args_is_help=True)

Job = Annotated[str, typer.Argument(help="Name of the job.")]
Run = Annotated[str, typer.Argument(help="The KFP run.")]
OfJob = Annotated[str | None, typer.Option("--job", help="Only those of this job.")]
OfUser = Annotated[str | None, typer.Option("--user", help="Only those of this user's jobs.")]
OfPhase = Annotated[JobPhase | None, typer.Option("--phase", help="Only those of jobs in this phase.")]
Since = Annotated[
    str | None, typer.Option("--since", help="Only those since 2027-01-31, 2027-01-31T03:00Z, 12h or 7d.")
]
As = Annotated[Format, typer.Option("--format", "-f", help="A table for people, JSON or CSV for programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]
WithHistory = Annotated[bool, typer.Option("--with-history", help="Remove its recurrences and trials too, for good.")]

PATIENCE_S = 5.0
"""People wait less long than a step of a pipeline does."""

_SPANS = {"h": "hours", "d": "days", "w": "weeks"}


def moment(since: str | None, now: datetime) -> datetime | None:
    """Return a moment given as a date, a time or a span before now, such as 7d.

    Raises:
        InvalidValueError: If it is none of these.
    """
    if since is None:
        return None
    span = re.fullmatch(r"(\d{1,6})([hdw])", since.strip())
    try:
        if span:
            return now - timedelta(**{_SPANS[span[2]]: int(span[1])})
        given = datetime.fromisoformat(since.strip())
        return given.replace(tzinfo=UTC) if given.tzinfo is None else given
    except (ValueError, OverflowError):
        raise InvalidValueError(
            f"--since must be like 2027-01-31, 2027-01-31T03:00Z, 12h or 7d, not {since!r}"
        ) from None


@contextmanager
def _store(must_exist: bool = True) -> "Iterator[StateStore]":
    """Give the store; a mistyped path is an error, and no new, empty store, but for commands about the store itself."""
    from zeus_kfp.state_store import StateStore

    with StateStore.from_environment(patience_s=PATIENCE_S, must_exist=must_exist) as store:
        yield store


def _write(records: Sequence[Mapping[str, Any]], columns: Sequence[str], form: Format) -> None:
    from rich.console import Console

    write(records, columns, form, Console(file=sys.stdout))


def _fields(record: Any) -> dict[str, Any]:
    own = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    return own | {"ended": record.ended} if isinstance(record, TrialRecord) else own


def _of_overview(overview: "JobOverview") -> dict[str, Any]:
    job = overview.job
    standing = {name: value for name, value in _fields(job).items() if name not in ("spec", "max_power_w")}
    latest = {name: value for name, value in _fields(overview).items() if name != "job"}
    return _fields(job.spec) | {"rated_power_w": job.max_power_w} | standing | latest


def _each_job(store: "StateStore", job: str | None, user: str | None, phase: JobPhase | None) -> list[str]:
    """Return the names of the jobs that are meant."""
    if job is None:
        return [overview.job.spec.job_id for overview in store.jobs(phase=phase, user=user)]
    found = store.job(job)
    return [job] if phase in (None, found.phase) and user in (None, found.spec.user) else []


def _unless_gone(store: "StateStore", name: str, read: "Callable[[StateStore, str], Sequence[Any]]") -> Sequence[Any]:
    """Return a job's records; none if it was purged since it was listed."""
    try:
        return read(store, name)
    except UnknownJobError:
        return ()


def _list(
    read: "Callable[[StateStore, str], Sequence[Any]]",
    columns: Sequence[str],
    form: Format,
    job: str | None,
    user: str | None,
    phase: JobPhase | None,
) -> None:
    with _store() as store:
        names = _each_job(store, job, user, phase)
        records = [{"job_id": name} | _fields(record) for name in names for record in _unless_gone(store, name, read)]
    _write(records, columns, form)


@jobs.command("list")
def list_jobs(
    phase: OfPhase = None, user: OfUser = None, job: OfJob = None, since: Since = None, form: As = Format.TABLE
) -> None:
    """List jobs with their latest recurrence."""
    with _store() as store:
        if job is not None:
            store.job(job)  # one that is not there is an error, and no empty table
        found = store.jobs(phase=phase, user=user, since=moment(since, datetime.now(UTC)))
    records = [_of_overview(overview) for overview in found if job is None or overview.job.spec.job_id == job]
    columns = ("job_id", "user", "phase", "default_batch_size", "best_batch_size", "recurrence_count", "trial_count")
    _write(records, (*columns, "latest_state", "latest_opened_at"), form)


@jobs.command("show")
def show_job(job: Job) -> None:
    """Show a job: its knobs, where it stands, and what is believed of each batch size (JSON)."""
    with _store() as store:
        typer.echo(to_json({"job": store.job(job), "arms": store.arms(job)}))


@jobs.command("export")
def export_job(
    job: Job, output: Annotated[Path | None, typer.Option(help="A file; the terminal if none is given.")] = None
) -> None:
    """Write all that the store knows of a job as one JSON document."""
    with _store() as store:
        document = to_json(store.export(job))
    if output is None:
        typer.echo(document)
    else:
        output.write_text(document + "\n", encoding="utf-8")
        typer.echo(output)


@jobs.command("complete")
def complete_job(job: Job, yes: Yes = False) -> None:
    """End a job: later runs of it train nothing. Recurrences under way go on, and its history stays."""
    _confirm(yes, f"End job {job}?")
    with _store() as store:
        store.complete_job(job)
    typer.echo(f"job {job} is complete")


@jobs.command("reopen")
def reopen_job(job: Job) -> None:
    """Go on with a job that was completed or deleted."""
    with _store() as store:
        store.reopen_job(job)
    typer.echo(f"job {job} goes on")


@jobs.command("delete")
def delete_job(job: Job, with_history: WithHistory = False, yes: Yes = False) -> None:
    """Strike a job out; its history stays unless told otherwise."""
    _confirm(yes, f"Delete job {job}{', with its whole history' if with_history else ''}?")
    with _store() as store:
        store.delete_job(job, keep_history=not with_history)
    typer.echo(f"job {job} is deleted, {'with' if with_history else 'but not'} its history")


@jobs.command("signal-drift")
def signal_drift(
    job: Job,
    reason: Annotated[str, typer.Option(help="What has changed, in words.")],
    value: Annotated[float | None, typer.Option(help="A figure that goes with it.")] = None,
) -> None:
    """Let a job's next run open a recurrence before its period is over; saying so twice changes nothing."""
    with _store() as store:
        drift = store.signal_drift(job, reason, value=value)
    typer.echo(f"drift of {job} waits for its next run since {drift.signalled_at:%Y-%m-%d %H:%M} UTC: {drift.reason}")


@jobs.command("drifts")
def list_drifts(job: Job, form: As = Format.TABLE) -> None:
    """List the drift that was signalled of a job, and the recurrence that each started."""
    with _store() as store:
        records = [_fields(drift) for drift in store.drifts(job)]
    _write(records, ("reason", "value", "signalled_at", "recurrence_number"), form)


@jobs.command("prunable")
def list_prunable(job: Job, form: As = Format.TABLE) -> None:
    """List the models and preprocessed data that a job no longer needs. Nothing is deleted.

    A model's address is known. Preprocessed data lies below the pipeline root, in the folder of the run that made it,
    and its Dataset artifact carries its data epoch in its metadata.
    """
    with _store() as store:
        records = [_fields(item) for item in store.prunable(job)]
    _write(records, ("kind", "uri", "made_by", "data_epoch", "recurrence_number", "batch_size", "made_at"), form)


@jobs.command("reset")
def reset_job(job: Job, with_history: WithHistory = False, yes: Yes = False) -> None:
    """Forget what was learnt of a job, so that it explores anew; its history stays unless told otherwise."""
    _confirm(yes, f"Forget what was learnt of job {job}{' and its whole history' if with_history else ''}?")
    with _store() as store:
        store.reset_job(job, keep_history=not with_history)
    typer.echo(f"job {job} starts over")


@recurrences.command("list")
def list_recurrences(
    job: OfJob = None,
    user: OfUser = None,
    phase: OfPhase = None,
    state: Annotated[RecurrenceState | None, typer.Option(help="Only those in this state.")] = None,
    since: Since = None,
    form: As = Format.TABLE,
) -> None:
    """List recurrences with the sums over their trials."""
    begun = moment(since, datetime.now(UTC))
    columns = (
        "job_id",
        "number",
        "run_id",
        "state",
        "batch_size",
        "trial_count",
        "num_epochs",
        "energy_j",
        "time_s",
        "cost",
    )
    _list(lambda store, name: store.recurrences(name, state=state, since=begun), columns, form, job, user, phase)


@recurrences.command("show")
def show_recurrence(job: Job, run: Run) -> None:
    """Show a recurrence and its trials (JSON)."""
    with _store() as store:
        typer.echo(to_json({"recurrence": store.recurrence(job, run), "trials": store.trials(job, run)}))


@recurrences.command("close")
def close_recurrence(job: Job, run: Run) -> None:
    """Close the recurrence of a run that is dead, and free its slot before its lease has passed."""
    with _store() as store:
        closed = store.close_recurrence(job, run)
    typer.echo(closed.in_words())


@trials.command("list")
def list_trials(
    job: OfJob = None,
    user: OfUser = None,
    phase: OfPhase = None,
    run: Annotated[str | None, typer.Option(help="Only those of this KFP run.")] = None,
    state: Annotated[TrialState | None, typer.Option(help="Only those in this state.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Only those at this batch size.")] = None,
    since: Since = None,
    form: As = Format.TABLE,
) -> None:
    """List trials."""
    begun = moment(since, datetime.now(UTC))
    columns = (
        "job_id",
        "recurrence_number",
        "number",
        "batch_size",
        "ended",
        "num_epochs",
        "metric",
        "energy_j",
        "time_s",
        "cost",
    )

    def read(store: "StateStore", name: str) -> Sequence[Any]:
        if job is not None and run is not None:
            store.recurrence(job, run)  # one that is not there is an error, and no empty table
        return store.trials(name, run, state=state, batch_size=batch_size, since=begun)

    _list(read, columns, form, job, user, phase)


@trials.command("show")
def show_trial(job: Job, number: Annotated[int, typer.Argument(help="The trial's number in its job.")]) -> None:
    """Show a trial (JSON)."""
    with _store() as store:
        found = [trial for trial in store.trials(job) if trial.number == number]
    if not found:
        raise UnknownTrialError(
            f"job {job!r} has no trial {number}: `zeus-kfp trials list --job {job}` shows what it has"
        )
    typer.echo(to_json(found[0]))


@profiles.command("list")
def list_profiles(
    job: OfJob = None,
    user: OfUser = None,
    phase: OfPhase = None,
    batch_size: Annotated[int | None, typer.Option(help="Only those at this batch size.")] = None,
    since: Since = None,
    form: As = Format.TABLE,
) -> None:
    """List what trials measured of power and throughput."""
    begun = moment(since, datetime.now(UTC))
    with _store() as store:
        records = [
            {"job_id": name, "trial_number": record.trial_number} | _fields(record.profile)
            for name in _each_job(store, job, user, phase)
            for record in store.profiles(name, batch_size=batch_size, since=begun)
        ]
    columns = (
        "job_id",
        "trial_number",
        "batch_size",
        "phase",
        "power_limit_w",
        "average_power_w",
        "throughput_samples_per_s",
    )
    _write(records, (*columns, "accelerator", "accelerator_count"), form)


@arms.command("list")
def list_arms(
    job: OfJob = None, user: OfUser = None, phase: OfPhase = None, since: Since = None, form: As = Format.TABLE
) -> None:
    """List what is believed of each batch size; --since takes jobs that were registered or opened since."""
    begun = moment(since, datetime.now(UTC))
    columns = ("job_id", "batch_size", "count", "mean_cost", "standard_deviation", "status")

    def read(store: "StateStore", name: str) -> Sequence[Any]:
        recent = begun is None or any(o.job.spec.job_id == name for o in store.jobs(since=begun))
        return store.arms(name) if recent else ()

    _list(read, columns, form, job, user, phase)


@database.command()
def upgrade() -> None:
    """Make or upgrade the schema of the store."""
    with _store(must_exist=False) as store:
        store.upgrade()
    typer.echo("the store is up to date")


@database.command()
def check() -> None:
    """Say whether the store can be reached and its schema is the one that this version needs; exit code 1 if not."""
    from zeus_kfp.state_store.schema import VERSIONS

    with _store(must_exist=False) as store:
        version = store.check()
    if version != VERSIONS[-1]:
        found = f"is {version}" if version else "is not made yet"
        typer.echo(f"the store's schema {found}, this version needs {VERSIONS[-1]}: run `zeus-kfp db upgrade`")
        raise typer.Exit(1)
    typer.echo(f"the store can be reached and its schema is up to date ({version})")


def _confirm(yes: bool, question: str) -> None:
    if not yes:
        typer.confirm(question, abort=True)
