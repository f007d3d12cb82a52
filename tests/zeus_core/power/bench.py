"""Whole trials on the fake GPU, by its own clock."""

import dataclasses

from zeus_kfp.zeus_core.meters import open_meter
from zeus_kfp.zeus_core.power import open_limiter
from zeus_kfp.zeus_core.power.options import ProfilingOptions
from zeus_kfp.zeus_core.training import Trial
from zeus_kfp.zeus_core.training.local import local_assignment
from zeus_kfp.zeus_core.training.summary import Summary

LIMITS_W = [250, 225, 200, 175, 150, 125, 100]


class Bench:
    """Trains on the fake GPU, and notes the limit of every step."""

    def __init__(self, gpus, folder):
        self.gpus, self.folder, self.said = gpus, folder, []
        self.steps, self.evals = [], []

    def trial(self, *, options=None, plan=None, **knobs):
        usual = {
            "batch_size": 32,
            "target_metric": 1.0,
            "higher_is_better": True,
            "max_epochs": 3,
            "learning_rate_factor": 1.0,
            "eta_knob": 0.5,
            "cost_threshold": None,
            "data_path": "",
            "arguments": {},
            "directory": self.folder,
        }
        assignment = local_assignment(**usual | knobs)
        assignment = dataclasses.replace(assignment, plan=dataclasses.replace(assignment.plan, **plan or {}))
        return Trial(
            assignment,
            meter=open_meter(),
            clock=self.gpus.clock,
            synchronize=lambda: None,
            progress=self.said.append,
            limiter=open_limiter(),
            profiling=options or ProfilingOptions(),
        )

    def run(self, *, steps=400, step_s=0.1, eval_steps=0, metric=0.0, **knobs):
        trial = self.trial(**knobs)
        for _ in trial.epochs():
            for _ in trial.train(range(steps)):
                self.steps.append(self.gpus.limits_w()[0])
                self.gpus.work(step_s)
            for _ in trial.eval(range(eval_steps)):
                self.evals.append(self.gpus.limits_w()[0])
                self.gpus.work(step_s)
            trial.report_metric(metric)
        trial.close()
        return Summary.read(self.folder / "summary.json")

    @property
    def limits_after_the_sweep(self):
        """Check that the limits went down step by step, each once, and return those that came after."""
        changes = [w for w, before in zip(self.steps, [None, *self.steps], strict=False) if w != before]
        assert changes[:7] == LIMITS_W
        assert len(changes) == 8
        return set(changes[7:])

    @property
    def chosen(self):
        return [line for line in self.said if "chosen" in line or "no power limit" in line]
