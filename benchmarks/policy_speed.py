"""Time of one suggestion and one observation after 1,000 trials: ours against the published policy.

    python benchmarks/policy_speed.py [--trials 1000] [--repeats 7]

Both get the same costs, in turns in one process, so that both see the same machine; the fastest repeat counts.
`zeus==0.16.0` (`pip install --no-deps`) is needed. A ratio of 1 or more means that ours is at least as fast.
"""

import argparse
import math
import time
import warnings

import numpy as np
from zeus._legacy.job import Job
from zeus._legacy.policy.optimizer import PruningGTSBatchSizeOptimizer

from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.learnt import Learnt, Observation, observe
from zeus_kfp.zeus_core.policies import ZeusPolicy
from zeus_kfp.zeus_core.trial import Purpose, TrialState

SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)
MEASURED_TRIALS = 200


class Ours:
    """Our policy with what it learnt, as the store keeps it."""

    def __init__(self, job: JobSpec) -> None:
        """Start without any trial."""
        self.job, self.learnt, self.policy = job, Learnt(), ZeusPolicy()
        self.rng = np.random.default_rng(job.seed)
        self.purpose = Purpose.EXPLORATION

    def suggest(self) -> int:
        """Return the next trial's batch size."""
        suggestion = self.policy.suggest(self.job, self.learnt, (), self.rng)
        self.purpose = suggestion.purpose
        return suggestion.batch_size

    def observe(self, size: int, cost: float) -> None:
        """Count in a trial that reached the target."""
        seen = Observation(size, self.purpose, TrialState.REACHED, cost, cost)
        self.learnt = observe(self.job, self.learnt, seen)


class Published:
    """The published policy behind the same two calls."""

    def __init__(self, job: JobSpec) -> None:
        """Start without any trial."""
        self.job = Job("data", "network", "sgd", 0.5, 100, job.default_batch_size)
        self.policy = PruningGTSBatchSizeOptimizer(window_size=job.window_size, seed=job.seed, verbose=False)
        self.policy.register_job(self.job, list(job.batch_sizes))

    def suggest(self) -> int:
        """Return the next trial's batch size."""
        return int(self.policy.predict(self.job))

    def observe(self, size: int, cost: float) -> None:
        """Count in a trial that reached the target."""
        self.policy.observe(self.job, size, cost, True)


def drive(side: Ours | Published, trials: int, noise: np.random.Generator) -> tuple[float, float]:
    """Run trials whose cost is lowest at 64; return the mean seconds of a suggestion and an observation."""
    suggesting = observing = 0.0
    for _ in range(trials):
        start = time.perf_counter()
        size = side.suggest()
        suggesting += time.perf_counter() - start
        cost = 1e5 * math.exp(0.1 * math.log(size / 64) ** 2 + 0.05 * noise.normal())
        start = time.perf_counter()
        side.observe(size, cost)
        observing += time.perf_counter() - start
    return suggesting / trials, observing / trials


def measure(job: JobSpec, earlier_trials: int, repeats: int) -> dict[str, tuple[float, float]]:
    """Return the fastest mean seconds of a suggestion and an observation, by side."""
    fastest: dict[str, tuple[float, float]] = {}
    for _ in range(repeats):
        for make in (Ours, Published):
            side, noise = make(job), np.random.default_rng(1)
            drive(side, earlier_trials, noise)
            took = drive(side, MEASURED_TRIALS, noise)
            fastest[make.__name__] = min(fastest.get(make.__name__, took), took, key=sum)
    return fastest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000, help="trials before the measured ones")
    parser.add_argument("--repeats", type=int, default=5, help="the fastest of so many counts")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for window_size in (0, 10):
        job = JobSpec("speed", SIZES, 128, target_metric=0.5, window_size=window_size)
        took = measure(job, arguments.trials, arguments.repeats)
        print(f"{arguments.trials} earlier trials, {len(SIZES)} batch sizes, window_size {window_size}")
        for name, (suggesting, observing) in took.items():
            print(f"  {name:10} suggest {suggesting * 1e6:7.1f} us   observe {observing * 1e6:7.1f} us")
        print(f"  published / ours: {sum(took['Published']) / sum(took['Ours']):.2f}")


if __name__ == "__main__":
    main()
