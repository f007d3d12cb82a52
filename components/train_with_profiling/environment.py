"""The environment of a training process: what a program that knows nothing of this library can read its trial from."""

import json
from collections.abc import Mapping

from zeus_kfp.zeus_core.power.note import TRIAL_KEY_VARIABLE
from zeus_kfp.zeus_core.processes import TRIAL_VARIABLE
from zeus_kfp.zeus_core.training.assignment import Assignment

WITHHELD = ("ZEUS_KFP_STORE_URL",)
"""The user's code needs no way into the store."""


def child_environment(
    base: Mapping[str, str], extra: Mapping[str, str], assignment: Assignment, assignment_path: str
) -> dict[str, str]:
    """Return the whole environment of a training process.

    Args:
        base: The supervisor's own.
        extra: What the entry point needs on top.
        assignment: What to train.
        assignment_path: File that holds the assignment.
    """
    plan = assignment.plan
    told = {
        TRIAL_VARIABLE: assignment_path,
        TRIAL_KEY_VARIABLE: json.dumps([plan.job_id, plan.run_id, plan.slot]),
        "ZEUS_KFP_BATCH_SIZE": str(plan.batch_size),
        "ZEUS_KFP_LEARNING_RATE_FACTOR": repr(plan.learning_rate_factor),
        "ZEUS_KFP_DATA_PATH": assignment.data_path,
        "ZEUS_KFP_MODEL_PATH": assignment.model_path,
        "ZEUS_KFP_CHECKPOINT_DIR": assignment.checkpoint_dir,
        "ZEUS_KFP_HISTORY_FILE": assignment.history_path,
        "ZEUS_KFP_TARGET_METRIC": repr(plan.target_metric),
        "ZEUS_KFP_HIGHER_IS_BETTER": "true" if plan.higher_is_better else "false",
        "ZEUS_KFP_MAX_EPOCHS": str(plan.max_epochs),
        "ZEUS_KFP_ARGUMENTS": json.dumps(dict(assignment.arguments)),
        "PYTHONUNBUFFERED": "1",
    }
    kept = {name: value for name, value in base.items() if name not in WITHHELD}
    return kept | dict(extra) | told
