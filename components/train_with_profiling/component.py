"""Train once at the suggested batch size, measure what it takes, and return the outcome as data."""

from kfp import dsl

from zeus_kfp.components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def train_with_profiling(
    data: dsl.Input[dsl.Dataset],
    suggestion: dsl.Input[dsl.Artifact],
    batch_size: int,
    entry_point: str,
    model: dsl.Output[dsl.Model],
    history: dsl.Output[dsl.Artifact],
    profile: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
    entry_source: str = "",
    arguments: str = "{}",
    checkpoint_dir: str = "",
    cpu_limit: str = "",
    memory_limit: str = "",
) -> str:
    """Run the user's training code at a batch size; a training failure is data, not a failed step.

    Args:
        data: The preprocessed data set.
        suggestion: The trial's plan, from suggest_batch_size.
        batch_size: Samples, as suggested.
        entry_point: module:function, a script (path.py and its arguments), or any command.
        entry_source: Source text that defines the function, where it lies in no module of the image.
        arguments: JSON object that the training code finds in trial.arguments.
        checkpoint_dir: Folder on a volume that outlives the pod, for checkpoints and attempts; "" for none.
        cpu_limit: CPU limit of the task; an input so that KFP hands the parameter down to where it is set.
        memory_limit: Memory limit of the task, likewise.
        model: The trained model.
        history: Metric, energy and time of every epoch (JSON lines).
        profile: Average power and throughput by phase (JSON).
        metrics: The trial's figures.

    Returns:
        The outcome (JSON): reached, not_reached, oom or failed, and what it took.
    """
    from zeus_kfp.components.train_with_profiling.training_step import run_training_step

    return run_training_step(
        data=data,
        suggestion=suggestion,
        batch_size=batch_size,
        entry_point=entry_point,
        entry_source=entry_source,
        arguments=arguments,
        checkpoint_dir=checkpoint_dir,
        model=model,
        history=history,
        profile=profile,
        metrics=metrics,
    )
