"""The command `schedule`: recurring runs that can be changed."""

from typing import TYPE_CHECKING, Annotated

import typer

from zeus_kfp.pipelines import command_options as options

if TYPE_CHECKING:
    from zeus_kfp.pipelines.client import ScheduleStatus

app = typer.Typer(
    help=f"""Schedules of recurring training on a cluster.

    A schedule is known by its name. Changing, pausing or deleting one never ends a recurrence that is under way, and
    what was missed while it was paused is not made up for.

    {options.CLUSTER_HELP}
    """,
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(help="The schedule's name.")]
Cron = Annotated[
    str | None,
    typer.Option(
        help="Six fields in UTC, seconds first: '0 0 3 * * *' is every night at three, '0 0 */6 * * *' every 6 h."
    ),
]
Every = Annotated[str | None, typer.Option(help="An interval instead: 30m, 6h, 1d, 1w, 1d12h.")]
Start = Annotated[
    str | None, typer.Option(help="No run before this time, such as 2027-01-31T03:00:00Z; none takes it away.")
]
End = Annotated[str | None, typer.Option(help="No run after this time; none takes it away.")]
PipelineRoot = Annotated[str | None, typer.Option(help="Where the runs keep their artifacts.")]


@app.command()
def create(
    name: Name,
    pipeline: options.Pipeline,
    cron: Cron = None,
    every: Every = None,
    start: Start = None,
    end: End = None,
    param: options.Parameters = None,
    params: options.ParametersFile = None,
    max_concurrency: Annotated[int, typer.Option(help="Runs that may be under way at once, 1 to 10.")] = 1,
    experiment: options.Experiment = "Default",
    service_account: options.ServiceAccount = None,
    pipeline_root: PipelineRoot = None,
    paused: Annotated[
        bool | None,
        typer.Option("--paused/--not-paused", help="Start no runs until it is resumed. As it is where not given."),
    ] = None,
    or_update: Annotated[bool, typer.Option(help="Change it where it is already there.")] = False,
    host: options.Host = None,
    namespace: options.Namespace = None,
    as_json: options.AsJson = False,
) -> None:
    """Make a schedule: the pipeline is uploaded, and started by the clock from then on."""
    from zeus_kfp.pipelines.client.package import PipelinePackage

    arguments = options.arguments_of(PipelinePackage.of(pipeline).declared, params, param)
    with options.cluster(host, namespace) as client:
        make = client.create_or_update_schedule if or_update else client.create_schedule
        status = make(
            name,
            pipeline,
            cron=cron,
            every=every,
            start=start,
            end=end,
            parameters=arguments,
            max_concurrency=max_concurrency,
            experiment=experiment,
            service_account=service_account,
            pipeline_root=pipeline_root,
            paused=paused,
        )
    _show(status, as_json)


@app.command()
def update(
    name: Name,
    pipeline: Annotated[str | None, typer.Option(help="Another pipeline, or a changed one.")] = None,
    cron: Cron = None,
    every: Every = None,
    start: Start = None,
    end: End = None,
    param: options.Parameters = None,
    params: options.ParametersFile = None,
    max_concurrency: Annotated[int | None, typer.Option(help="Runs that may be under way at once, 1 to 10.")] = None,
    experiment: Annotated[str | None, typer.Option(help="Another experiment of KFP.")] = None,
    service_account: options.ServiceAccount = None,
    pipeline_root: PipelineRoot = None,
    host: options.Host = None,
    namespace: options.Namespace = None,
    as_json: options.AsJson = False,
) -> None:
    """Change what is given of a schedule; the rest stays, and so does a recurrence that is under way."""
    with options.cluster(host, namespace) as client:
        declared = client.declared_parameters(name, pipeline)
        arguments = options.arguments_of(declared, params, param)
        status = client.update_schedule(
            name,
            pipeline=pipeline,
            cron=cron,
            every=every,
            start=start,
            end=end,
            parameters=arguments,
            max_concurrency=max_concurrency,
            experiment=experiment,
            service_account=service_account,
            pipeline_root=pipeline_root,
        )
    _show(status, as_json)


@app.command()
def pause(
    name: Name, host: options.Host = None, namespace: options.Namespace = None, as_json: options.AsJson = False
) -> None:
    """Start no more runs; those under way go on."""
    with options.cluster(host, namespace) as client:
        status = client.pause(name)
    _show(status, as_json)


@app.command()
def resume(
    name: Name, host: options.Host = None, namespace: options.Namespace = None, as_json: options.AsJson = False
) -> None:
    """Start runs again; none of those that were missed is made up for."""
    with options.cluster(host, namespace) as client:
        status = client.resume(name)
    _show(status, as_json)


@app.command()
def trigger(
    name: Name,
    param: options.Parameters = None,
    if_due: Annotated[
        bool, typer.Option("--if-due", help="Train only where the job's period has passed or drift was signalled.")
    ] = False,
    host: options.Host = None,
    namespace: options.Namespace = None,
    as_json: options.AsJson = False,
) -> None:
    """Start one run now, beside the schedule, with its parameters but for those given; it waits for no period."""
    with options.cluster(host, namespace) as client:
        arguments = options.arguments_of(client.declared_parameters(name), None, param)
        run = client.run_now(name, arguments, if_due=if_due)
    options.show(run.as_json(), as_json, run.in_words())


@app.command("list")
def list_command(
    host: options.Host = None, namespace: options.Namespace = None, as_json: options.AsJson = False
) -> None:
    """List the schedules with their next and last run."""
    from rich.console import Console

    from zeus_kfp.pipelines.tables import schedule_table

    with options.cluster(host, namespace) as client:
        found = client.list_schedules()
    if as_json:
        options.show([status.as_json() for status in found], as_json, "")
    elif found:
        Console().print(schedule_table(found))
    else:
        typer.echo("no schedules")


@app.command()
def delete(
    name: Name,
    wait: Annotated[float, typer.Option(help="Longest wait for a live run to end, in s.", min=0)] = 0,
    host: options.Host = None,
    namespace: options.Namespace = None,
    as_json: options.AsJson = False,
) -> None:
    """Delete a schedule. While a recurrence is under way it starts no more runs, and is deleted by the next call.

    Exit code 4 tells that it still waits for a run.
    """
    with options.cluster(host, namespace) as client:
        deletion = client.delete(name, timeout_s=wait)
    text = "deleted" if deletion.is_done else "starts no more runs, and waits: " + "; ".join(deletion.waits_for)
    options.show(deletion.as_json(), as_json, f"{name}: {text}")
    if not deletion.is_done:
        raise typer.Exit(options.STILL_RUNNING)


def _show(status: "ScheduleStatus", as_json: bool) -> None:
    options.show(status.as_json(), as_json, status.in_words())
