"""The `zeus-kfp simulate` command: policies side by side on recorded traces."""

import dataclasses
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zeus_kfp.zeus_core.errors import InvalidValueError

if TYPE_CHECKING:
    from rich.table import Table

    from zeus_kfp.zeus_core.job import JobSpec
    from zeus_kfp.zeus_core.simulation import JobTruth, Scenario, Simulation


def simulate_command(
    train_trace: Annotated[Path, typer.Option(help="CSV of the epochs that recorded runs took to a metric.")],
    power_trace: Annotated[Path, typer.Option(help="CSV of an epoch's time and power at each power limit.")],
    default_batch_size: Annotated[int, typer.Option(help="The batch size that the user trains with.")],
    target_metric: Annotated[float, typer.Option(help="The metric to reach; the train trace must have it.")],
    dataset: Annotated[str | None, typer.Option(help="Which job, where the traces hold several.")] = None,
    network: Annotated[str | None, typer.Option(help="Which job, where the traces hold several.")] = None,
    optimizer: Annotated[str | None, typer.Option(help="Which job, where the traces hold several.")] = None,
    max_epochs: Annotated[int, typer.Option(help="Epochs after which a trial is given up.")] = 100,
    eta: Annotated[float, typer.Option(help="Weight of energy against time in the cost, 0 to 1.")] = 0.5,
    beta: Annotated[float, typer.Option(help="A trial stops early at so many times the cheapest recurrence.")] = 2.0,
    recurrences: Annotated[int, typer.Option(help="How often the job recurs.")] = 50,
    seeds: Annotated[int, typer.Option(help="How many seeds, from 0.")] = 20,
    policy: Annotated[list[str] | None, typer.Option(help="A policy; may be given again.  [default: both]")] = None,
    hopeless_stop: Annotated[bool, typer.Option(help="Stop trials that are very likely to take too long.")] = False,
    overlap: Annotated[int, typer.Option(help="Recurrences that run at the same time.")] = 1,
    slow_start: Annotated[bool, typer.Option(help="Let fewer run at the same time while the job is new.")] = True,
    failure_probability: Annotated[float, typer.Option(help="Chance that a trial fails by itself.")] = 0.0,
    fits_up_to: Annotated[int | None, typer.Option(help="Largest batch size that fits in memory.")] = None,
    noise: Annotated[float, typer.Option(help="Standard deviation of ln(epochs) beside the recorded runs'.")] = 0.0,
    drift_train_trace: Annotated[Path | None, typer.Option(help="Train trace after a change of the data.")] = None,
    gpu_power_trace: Annotated[Path | None, typer.Option(help="Power trace after a change of the GPU.")] = None,
    change_at: Annotated[int | None, typer.Option(help="The first recurrence after it.  [default: 26]")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the results as JSON there.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the regret curves there (png, svg, pdf).")] = None,
) -> None:
    """Replay recorded traces through batch-size policies, and compare what they cost."""
    from rich.console import Console

    from zeus_kfp.zeus_core.simulation import Scenario, recorded_job, recorded_truth, simulate

    for path in (json_file, plot):
        _check_writable(path)
    which = {"dataset": dataset, "network": network, "optimizer": optimizer}
    truth = recorded_truth(train_trace, power_trace, target_metric, **which)
    change = None
    if drift_train_trace or gpu_power_trace:
        after = recorded_truth(drift_train_trace or train_trace, gpu_power_trace or power_trace, target_metric, **which)
        change = _change(after, 26 if change_at is None else change_at, is_gpu=gpu_power_trace is not None)
    elif change_at is not None:
        raise InvalidValueError("--change-at needs what changes: give --drift-train-trace, --gpu-power-trace or both")
    scenario = Scenario(overlap, failure_probability, fits_up_to, noise, (change,) if change else (), slow_start)
    job = recorded_job(
        truth,
        batch_sizes=_shared_sizes(truth, scenario),
        default_batch_size=default_batch_size,
        target_metric=target_metric,
        max_epochs=max_epochs,
        eta_knob=eta,
        beta_knob=beta,
        hopeless_stop=hopeless_stop,
        max_concurrent_recurrences=overlap,
    )
    result = simulate(job, truth, policy or ["zeus", "bayes"], recurrences=recurrences, seeds=seeds, scenario=scenario)
    Console(width=140).print(_table(result, recurrences, seeds))
    if json_file:
        _write(json_file, json.dumps(_document(job, result, recurrences, seeds), indent=2, allow_nan=False) + "\n")
    if plot:
        _draw(plot, result)


def _change(after: "JobTruth", recurrence: int, *, is_gpu: bool) -> Any:
    from zeus_kfp.zeus_core.simulation import Change, ChangeKind

    return Change(recurrence, after, ChangeKind.GPU if is_gpu else ChangeKind.DRIFT)


def _shared_sizes(truth: "JobTruth", scenario: "Scenario") -> tuple[int, ...]:
    shared = set(truth.sizes).intersection(*(change.truth.sizes for change in scenario.changes))
    return tuple(sorted(shared))


def _table(result: "Simulation", recurrences: int, seeds: int) -> "Table":
    from rich.table import Table

    table = Table(title=f"{recurrences} recurrences, mean ± standard deviation over {seeds} seeds")
    table.add_column("policy")
    for heading in ("cost (J)", "energy (J)", "time (s)", "trials", "above oracle", "above default"):
        table.add_column(heading, justify="right")
    for one in result.results:
        sums = [f"{s.mean:.4g} ± {s.standard_deviation:.1g}" for s in (one.cost, one.energy_j, one.time_s)]
        shares = [f"{s.mean:+.1%} ± {s.standard_deviation:.1%}" for s in (one.regret, one.above_default)]
        table.add_row(one.policy, *sums, f"{one.trials.mean:.1f}", *shares)
    table.add_row("oracle", f"{result.oracle.cost:.4g}")
    table.add_row("default", f"{result.default.cost:.4g}")
    return table


def _document(job: "JobSpec", result: "Simulation", recurrences: int, seeds: int) -> dict[str, Any]:
    default_cost = result.default.cost
    return {
        "job": {
            "batch_sizes": list(job.batch_sizes),
            "default_batch_size": job.default_batch_size,
            "target_metric": job.target_metric,
            "max_epochs": job.max_epochs,
            "eta_knob": job.eta_knob,
            "beta_knob": job.beta_knob if math.isfinite(job.beta_knob) else None,
            "hopeless_stop": job.hopeless_stop,
        },
        "recurrences": recurrences,
        "seeds": seeds,
        "oracle_cost": result.oracle.cost,
        "default_cost": default_cost if math.isfinite(default_cost) else None,
        "policies": [dataclasses.asdict(one) for one in result.results],
    }


def _draw(path: Path, result: "Simulation") -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    for one in result.results:
        numbers = range(1, len(one.regret_curve) + 1)
        axes.plot(numbers, [100 * regret for regret in one.regret_curve], label=one.policy)
    axes.set_xlabel("recurrence")
    axes.set_ylabel("regret so far (% of the oracle's total cost)")
    axes.legend()
    axes.grid(alpha=0.3)
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise _unwritable(path, error) from None


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _unwritable(path, error) from None


def _check_writable(path: Path | None) -> None:
    """Refuse a file that can't be written before the simulation, which may take minutes."""
    if path is None:
        return
    if path.is_dir():
        raise _unwritable(path, "it is a folder")
    if not path.parent.is_dir():
        raise _unwritable(path, "its folder is not there")


def _unwritable(path: Path, error: object) -> InvalidValueError:
    return InvalidValueError(f"{path} can't be written: {error}. Name a file in a folder that exists")
