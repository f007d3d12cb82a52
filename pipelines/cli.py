"""The `zeus-kfp` command."""

import errno
import io
import sys
from pathlib import Path
from typing import Annotated

import typer

from zeus_kfp.pipelines import schedule_commands, store_commands, submit_commands
from zeus_kfp.pipelines.command_examples import show_examples
from zeus_kfp.pipelines.simulate import simulate_command

app = typer.Typer(
    help="Recurring training that gets cheaper: batch size and power limit learnt across runs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(submit_commands.app)
for name, commands in {
    "schedule": schedule_commands.app,
    "jobs": store_commands.jobs,
    "recurrences": store_commands.recurrences,
    "trials": store_commands.trials,
    "profiles": store_commands.profiles,
    "arms": store_commands.arms,
    "db": store_commands.database,
}.items():
    app.add_typer(commands, name=name)


@app.command()
def demo(
    folder: Annotated[Path, typer.Option(help="Where the store, artifacts, logs and the report go.")] = Path("demo"),
    recurrences: Annotated[int, typer.Option(min=1, help="How often to retrain.")] = 12,
    device: Annotated[str, typer.Option(help="cpu, or fake-gpu: a simulated GPU with power limits.")] = "cpu",
) -> None:
    """Retrain a real model again and again on this machine, and show what it cost."""
    from rich.console import Console

    from zeus_kfp.pipelines.demo.run import run_demo

    # A console of its own file: the runs' output is led elsewhere while they last.
    failed = run_demo(folder, recurrences, Console(file=sys.stdout), device)
    raise typer.Exit(1 if failed else 0)


@app.command()
def doctor() -> None:
    """Say what this machine or pod can measure and set, and what to change where it can't."""
    from rich.console import Console

    from zeus_kfp.pipelines.doctor import doctor_table, examine
    from zeus_kfp.pipelines.finding import Verdict

    findings = examine()
    Console().print(doctor_table(findings))
    raise typer.Exit(any(finding.verdict is Verdict.BROKEN for finding in findings))


@app.command("compile")
def compile_command(
    folder: Annotated[Path, typer.Argument(help="Folder that the YAML goes into.")],
) -> None:
    """Write the pipelines and components as YAML, ready to upload in the KFP UI.

    The image that they run in is taken from ZEUS_KFP_IMAGE where it is set.
    """
    from zeus_kfp.pipelines.compiling import compile_all

    for path in compile_all(folder):
        typer.echo(path)


@app.command()
def report(
    job: Annotated[str, typer.Argument(help="Name of the job.")],
    output: Annotated[Path, typer.Option(help="Where the HTML page goes.")] = Path("report.html"),
) -> None:
    """Write a job's report from the store that ZEUS_KFP_STORE_URL names."""
    from zeus_kfp.components.close_recurrence.html import render_html
    from zeus_kfp.components.close_recurrence.report_data import ReportData
    from zeus_kfp.state_store import StateStore

    with StateStore.from_environment() as store:
        page = render_html(ReportData.from_store(store, job))
    output.write_text(page, encoding="utf-8")
    typer.echo(output)


app.command("simulate")(simulate_command)
show_examples(app)


def main() -> None:
    """Run the command; an error of ours, or a file that can't be used, is one line, not a traceback."""
    from zeus_kfp.zeus_core.errors import ZeusError

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A name that the terminal can't show is no reason to fail.
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except ZeusError as error:
        typer.echo(f"zeus-kfp: {error}", err=True)
        raise SystemExit(1) from None
    except OSError as error:
        # A file or folder that the command line names, such as one that can't be written, or a disk that is full.
        what = error.filename or ("the output" if error.errno == errno.ENOSPC else None)
        if what is None:
            raise
        typer.echo(f"zeus-kfp: {what} can't be used: {error.strerror}", err=True)
        raise SystemExit(1) from None
