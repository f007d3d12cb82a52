"""A trial under the supervisor: its plan, training that reaches the target, and what is left of it."""

import dataclasses
import json
from pathlib import Path

from zeus_kfp.zeus_core.profile import read_profiles
from zeus_kfp.zeus_core.trial import Purpose, TrialOutcome, TrialPlan

PLAN = TrialPlan(
    job_id="digits",
    run_id="run/1",
    slot=1,
    number=7,
    batch_size=64,
    purpose=Purpose.EXPLORATION,
    why="the walk's next step",
    learning_rate_factor=1.5,
    target_metric=0.9,
    higher_is_better=True,
    max_epochs=5,
    eta_knob=0.5,
    max_power_w=0.0,
    cost_threshold=None,
    max_trial_time_s=100.0,
)
REACHING = """
def train(trial):
    for epoch in trial.epochs():
        for _ in trial.train([[0.0]] * 5):
            sum(range(20_000))
        trial.report_metric((epoch + 1) / 2)
    with open(trial.model_path, "w") as file:
        file.write(f"model of {trial.batch_size}")
"""
SUPERVISOR = """
import json, signal, sys
# Whoever runs the tests in the background may have these ignored, and what is ignored stays so in a child.
signal.signal(signal.SIGTERM, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
from zeus_kfp.components.train_with_profiling.supervisor import supervise
from zeus_kfp.zeus_core.trial import TrialPlan
plan, arguments = sys.argv[1:]
print("outcome", supervise(TrialPlan.from_json(plan), **json.loads(arguments)).to_json())
"""
"""A program that supervises a trial of this plan with these arguments, and prints its outcome."""


def plan_with(**knobs):
    """Return the plan with other values."""
    return dataclasses.replace(PLAN, **knobs)


def usual_arguments(out):
    """Return what the supervisor is told, where files go to a folder."""
    return {
        "entry_point": "user:train",
        "arguments": {},
        "data_path": "",
        "model_path": str(out / "model"),
        "model_uri": "s3://bucket/model",
        "history_path": str(out / "history.jsonl"),
        "profile_path": str(out / "profile.json"),
    }


@dataclasses.dataclass
class Trained:
    """The outcome of a trial, and the folder that its files went to."""

    outcome: TrialOutcome
    folder: Path

    @property
    def history(self):
        """The rows of its history."""
        return [json.loads(line) for line in (self.folder / "history.jsonl").read_text().splitlines()]

    @property
    def profiles(self):
        """The rows of its profile."""
        return read_profiles(self.folder / "profile.json")
