"""Compile the library's pipelines and components to the YAML that it ships."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kfp import compiler, dsl

from zeus_kfp.components.close_recurrence import close_recurrence
from zeus_kfp.components.fingerprint_data import fingerprint_data
from zeus_kfp.components.open_recurrence import open_recurrence
from zeus_kfp.components.preprocess_once import preprocess_once
from zeus_kfp.components.report_feedback import report_feedback
from zeus_kfp.components.select_winner import select_winner
from zeus_kfp.components.signal_drift import signal_drift
from zeus_kfp.components.stage_done import stage_done
from zeus_kfp.components.stage_turn import stage_turn
from zeus_kfp.components.suggest_batch_size import suggest_batch_size
from zeus_kfp.components.train_with_profiling import train_with_profiling
from zeus_kfp.pipelines.recurring_training import recurring_training

COMPONENTS = (
    open_recurrence,
    preprocess_once,
    suggest_batch_size,
    train_with_profiling,
    report_feedback,
    select_winner,
    close_recurrence,
    stage_turn,
    stage_done,
    fingerprint_data,
    signal_drift,
)


def _with_gpu(task: dsl.PipelineTask) -> None:
    task.set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(1)


PIPELINES: dict[str, Callable[[], Any]] = {
    "recurring_training": recurring_training,
    "recurring_training_gpu": lambda: recurring_training(name="recurring-training-gpu", configure_train=_with_gpu),
}


def compile_all(folder: Path) -> list[Path]:
    """Write every pipeline and component as YAML and return the paths, in a fixed order."""
    (folder / "components").mkdir(parents=True, exist_ok=True)
    written = []
    for name, build in PIPELINES.items():
        written.append(folder / f"{name}.yaml")
        compiler.Compiler().compile(build(), str(written[-1]))
    for component in COMPONENTS:
        written.append(folder / "components" / f"{component.python_func.__name__}.yaml")
        compiler.Compiler().compile(component, str(written[-1]))
    return written
