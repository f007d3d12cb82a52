"""An assignment without any pipeline, for trying a training loop on one machine."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zeus_kfp.zeus_core.training.assignment import Assignment, check_arguments
from zeus_kfp.zeus_core.trial import Purpose, TrialPlan
from zeus_kfp.zeus_core.validation import integer, number, text, truth


def local_assignment(
    *,
    batch_size: int,
    target_metric: float,
    higher_is_better: bool,
    max_epochs: int,
    learning_rate_factor: float,
    eta_knob: float,
    cost_threshold: float | None,
    data_path: str | Path,
    arguments: Mapping[str, Any],
    directory: str | Path | None,
) -> Assignment:
    """Return an assignment whose files lie in a folder, a new temporary one if none is given.

    Raises:
        InvalidValueError: If a value is out of its range.
    """
    check_arguments(arguments)
    path = str(data_path) if isinstance(data_path, Path) else data_path
    plan = TrialPlan(
        job_id="local",
        run_id="local",
        slot=1,
        number=1,
        batch_size=integer("batch_size", batch_size, at_least=1),
        purpose=Purpose.SAMPLING,
        why="chosen by hand",
        learning_rate_factor=number("learning_rate_factor", learning_rate_factor, above=0),
        target_metric=number("target_metric", target_metric),
        higher_is_better=truth("higher_is_better", higher_is_better),
        max_epochs=integer("max_epochs", max_epochs, at_least=1),
        eta_knob=number("eta_knob", eta_knob, at_least=0, at_most=1),
        max_power_w=0.0,
        cost_threshold=None if cost_threshold is None else number("cost_threshold", cost_threshold, above=0),
        max_trial_time_s=1e9,
    )
    root = Path(directory or tempfile.mkdtemp(prefix="zeus-kfp-trial-")).resolve()
    (root / "checkpoints").mkdir(parents=True, exist_ok=True)
    return Assignment(
        plan=plan,
        data_path=text("data_path", path, at_most=4096, allow_empty=True),
        model_path=str(root / "model"),
        checkpoint_dir=str(root / "checkpoints"),
        history_path=str(root / "history.jsonl"),
        summary_path=str(root / "summary.json"),
        arguments=dict(arguments),
    )
