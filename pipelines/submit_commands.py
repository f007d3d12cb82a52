"""The commands that start a run: `submit` on a cluster, `run` on this machine."""

import contextlib
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from zeus_kfp.pipelines import command_options as options

app = typer.Typer()

SUBMIT_HELP = f"""Start one run of a pipeline on a cluster.

The pipeline is uploaded first, as a new version where its content changed. With --wait the command ends with the run:
exit code 0 where it succeeded, {options.RUN_FAILED} where it did not, {options.STILL_RUNNING} where the time is up.

    zeus-kfp submit recurring_training -p job_id=digits -p train_entry_point=trainer:train -p 'batch_sizes=[16, 32, 64]'
    -p default_batch_size=32 -p target_metric=0.95 --wait

{options.CLUSTER_HELP}
"""

RUN_HELP = f"""Run recurrences of a pipeline on this machine, under KFP's local runner, with no cluster.

Training code is a module:function, a script or a command that this machine can run. Exit code {options.RUN_FAILED}
tells that a recurrence failed, for example since no trial reached the target.

    zeus-kfp run -p job_id=digits -p train_entry_point=trainer:train -p 'batch_sizes=[16, 32, 64]'
    -p default_batch_size=32 -p target_metric=0.95 --times 3
"""


@app.command(help=SUBMIT_HELP)
def submit(
    pipeline: options.Pipeline,
    param: options.Parameters = None,
    params: options.ParametersFile = None,
    name: Annotated[str | None, typer.Option(help="Name of the run.")] = None,
    experiment: options.Experiment = "Default",
    service_account: options.ServiceAccount = None,
    wait: Annotated[bool, typer.Option(help="Wait for the run's end.")] = False,
    timeout: Annotated[float | None, typer.Option(help="Longest wait, in s.", min=0)] = None,
    host: options.Host = None,
    namespace: options.Namespace = None,
    as_json: options.AsJson = False,
) -> None:
    """Start one run of a pipeline on a cluster."""
    from zeus_kfp.pipelines.client.package import PipelinePackage
    from zeus_kfp.zeus_core.errors import RunNotFinishedError

    arguments = options.arguments_of(PipelinePackage.of(pipeline).declared, params, param)
    with options.cluster(host, namespace) as client:
        run = client.submit(pipeline, arguments, run_name=name, experiment=experiment, service_account=service_account)
        if wait:
            typer.echo(f"run {run.run_id} started", err=True)
            try:
                run = client.wait(run.run_id, timeout_s=timeout, progress=lambda r: typer.echo(r.in_words(), err=True))
            except RunNotFinishedError as error:
                typer.echo(f"zeus-kfp: {error}", err=True)
                raise typer.Exit(options.STILL_RUNNING) from None
    options.show(run.as_json(), as_json, run.in_words())
    if wait and not run.succeeded:
        raise typer.Exit(options.RUN_FAILED)


@app.command(help=RUN_HELP)
def run(
    pipeline: options.Pipeline = "recurring_training",
    param: options.Parameters = None,
    params: options.ParametersFile = None,
    times: Annotated[int, typer.Option(min=1, help="Recurrences, one after the other.")] = 1,
    root: Annotated[Path, typer.Option(help="Folder for artifacts; the default store goes there too.")] = Path(
        "zeus-kfp"
    ),
    store: Annotated[
        str | None,
        typer.Option(help="The store's URL; ROOT/store.db where none is given.", envvar="ZEUS_KFP_STORE_URL"),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Run recurrences of a pipeline on this machine."""
    from kfp import components

    from zeus_kfp.pipelines.client.arguments import checked_arguments
    from zeus_kfp.pipelines.client.package import PipelinePackage
    from zeus_kfp.pipelines.local import run_locally
    from zeus_kfp.pipelines.local_words import Ending, show_job

    package = PipelinePackage.of(pipeline)
    arguments = checked_arguments(package.declared, options.arguments_of(package.declared, params, param))
    store = store or f"sqlite:///{root.resolve() / 'store.db'}"
    # Training code stands beside the user, as with `python -m`.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))
    loaded = components.load_component_from_text(package.text)
    job_id = arguments.get("job_id") or package.declared.get("job_id", {}).get("defaultValue")
    since, ending = datetime.now(UTC), Ending.WELL
    # Standard output is for what came of it; KFP's runner logs there, and what a step prints.
    with contextlib.redirect_stdout(sys.stderr):
        try:
            for _ in range(times):
                run_locally(loaded, store_url=store, root=root, parameters=arguments)
        except KeyboardInterrupt:
            ending = Ending.INTERRUPTED
        except RuntimeError as error:
            ending = Ending.FAILED
            typer.echo(f"zeus-kfp: {error} What went wrong in that step is in its output above.", err=True)
    if job_id:
        show_job(store, job_id, as_json, since=since, times=times, ending=ending)
    if ending is not Ending.WELL:
        raise typer.Exit(options.RUN_FAILED if ending is Ending.FAILED else options.INTERRUPTED)
