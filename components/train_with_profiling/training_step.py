"""What stands between KFP and the supervisor: artifacts in, an outcome and artifacts out."""

from pathlib import Path
from typing import Any

from kfp import dsl

from zeus_kfp.components.arguments import parse_arguments
from zeus_kfp.components.train_with_profiling.supervisor import supervise
from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.trial import TrialOutcome, TrialPlan


def run_training_step(
    *,
    data: dsl.Dataset,
    suggestion: dsl.Artifact,
    batch_size: int,
    entry_point: str,
    entry_source: str,
    arguments: str,
    checkpoint_dir: str,
    model: dsl.Model,
    history: dsl.Artifact,
    profile: dsl.Artifact,
    metrics: dsl.Metrics,
) -> str:
    """Run the trial of a suggestion and return its outcome as JSON.

    Raises:
        InvalidValueError: If the suggestion is none, belongs to another batch size, or the arguments are no object.
        EntryPointError: If the user's code can't be found.
    """
    plan = _plan_of(suggestion, batch_size)
    outcome = supervise(
        plan,
        entry_point=entry_point,
        entry_source=entry_source,
        arguments=parse_arguments("train_arguments", arguments),
        data_path=data.path,
        model_path=model.path,
        model_uri=model.uri,
        history_path=history.path,
        profile_path=profile.path,
        checkpoint_dir=checkpoint_dir,
    )
    _show(plan, outcome, model, metrics)
    return outcome.to_json()


def _plan_of(suggestion: dsl.Artifact, batch_size: int) -> TrialPlan:
    if batch_size < 1:
        raise InvalidValueError(
            f"batch_size {batch_size} means that suggest_batch_size had nothing left to try: put training under "
            "dsl.If(suggest.outputs['Output'] > 0)"
        )
    plan = TrialPlan.from_json(Path(suggestion.path).read_text(encoding="utf-8"))
    if plan.batch_size != batch_size:
        raise InvalidValueError(
            f"batch_size {batch_size} is not that of the suggestion ({plan.batch_size}): connect both outputs of the "
            "same suggest_batch_size task"
        )
    return plan


def _show(plan: TrialPlan, outcome: TrialOutcome, model: dsl.Model, metrics: dsl.Metrics) -> None:
    figures: dict[str, Any] = {
        "batch_size": plan.batch_size,
        "epochs": outcome.epochs,
        "metric": outcome.metric,
        "energy_j": outcome.energy_j,
        "second_energy_j": outcome.second_energy_j,
        "time_s": outcome.time_s,
    }
    for name, value in figures.items():
        if value is not None:
            metrics.log_metric(name, float(value))
    model.metadata.update(batch_size=plan.batch_size, trial=plan.number, state=outcome.state.value)
