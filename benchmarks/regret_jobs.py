"""The jobs that `policy_regret.py` replays: recorded ones, and made-up ones of families that no constant was chosen on.

A made-up job has batch sizes of powers of two, epochs to the target and the cost of an epoch over them. Its family says
how the epochs run: `convex` (flat, then rising), `flat` (any size will do), `step` (much dearer from some size on),
`wavy` (several valleys), `dead ends` (sizes that never reach, and some that do by luck), `heavy noise` (a factor of two
from run to run), `one size` and `thirty sizes`.
"""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.policies import policy_named
from zeus_kfp.zeus_core.simulation import (
    PLAIN,
    EpochPower,
    JobTruth,
    Scenario,
    SizeTruth,
    oracle,
    recorded_job,
    recorded_truth,
    replay_seeds,
)

TRACES = Path(os.environ.get("ZEUS_KFP_SHARED_DATA", "")) / "zeus-traces"
GPUS = ("v100", "a40")
# Network, optimizer, target, max_epochs and default batch size of the paper's jobs.
RECORDED = {
    "cifar100": ("shufflenetv2", "adadelta", 0.6, 100, 1024),
    "librispeech": ("deepspeech2", "adamw", 40.0, 16, 192),
    "movielens-1m": ("ncf", "adam", 0.41, 100, 1024),
    "sentiment140": ("bert_base_uncased", "adamw", 0.84, 10, 128),
}
RECURRENCES = 50
Array = np.ndarray


@dataclass(frozen=True)
class Case:
    """A job to replay: a name, the data set that it belongs to, its knobs and its truth."""

    name: str
    family: str
    job: JobSpec
    truth: JobTruth

    def cost(self, policy: str, seeds: int, recurrences: int = RECURRENCES, scenario: Scenario = PLAIN) -> Array:
        """Return the mean cost in J of every recurrence."""
        replays = replay_seeds(self.job, self.truth, policy_named(policy), recurrences, range(seeds), scenario)
        return np.mean([one.recurrence_costs() for one in replays], axis=0)

    def end_s(self, policy: str, seeds: int, scenario: Scenario) -> float:
        """Return the mean time in s at which the last recurrence ends."""
        replays = replay_seeds(self.job, self.truth, policy_named(policy), RECURRENCES, range(seeds), scenario)
        return float(np.mean([one.end_s for one in replays]))

    def regret(self, policy: str, seeds: int, recurrences: int = RECURRENCES, scenario: Scenario = PLAIN) -> float:
        """Return the mean regret after all recurrences."""
        best = oracle(self.job, self.truth, recurrences, scenario).cost
        return float(self.cost(policy, seeds, recurrences, scenario).sum() / best - 1)

    def with_knobs(self, **knobs: object) -> "Case":
        """Return the case with other knobs."""
        return replace(self, job=replace(self.job, **knobs))

    def reaching(self) -> list[int]:
        """Return the batch sizes that reach the target at least sometimes."""
        priced = self.truth.priced(self.job.eta_knob)
        return [size for size in self.job.batch_sizes if math.isfinite(priced[size].mean_cost(self.job.max_epochs))]


def recorded_cases() -> list[Case]:
    cases = []
    for gpu in GPUS:
        for dataset, (network, optimizer, target, max_epochs, size) in RECORDED.items():
            truth = recorded_truth(
                TRACES / "summary_train.csv",
                TRACES / f"summary_power_{gpu}.csv",
                target,
                dataset=dataset,
                network=network,
                optimizer=optimizer,
            )
            job = recorded_job(truth, default_batch_size=size, target_metric=target, max_epochs=max_epochs)
            cases.append(Case(f"{gpu} {dataset}", dataset, job, truth))
    return cases


def every_default(cases: Sequence[Case]) -> Iterator[Case]:
    """Give each case once for every batch size that reaches the target at least sometimes, as the default."""
    for case in cases:
        for size in case.reaching():
            yield replace(case, name=f"{case.name} from {size}").with_knobs(default_batch_size=size)


def _convex(octaves: Array, rng: np.random.Generator) -> Array:
    critical = rng.uniform(octaves[0] - 1, octaves[-1] + 1)
    return np.log1p(2 ** ((octaves - critical) * rng.uniform(0.8, 1.4)))


def _flat(octaves: Array, rng: np.random.Generator) -> Array:
    return 0.03 * rng.normal(size=len(octaves))


def _step(octaves: Array, rng: np.random.Generator) -> Array:
    return np.where(octaves > rng.choice(octaves), rng.uniform(0.5, 1.5), 0.0)


def _wavy(octaves: Array, rng: np.random.Generator) -> Array:
    return 0.35 * np.sin(octaves * rng.uniform(1.0, 2.5) + rng.uniform(0, 6)) + _convex(octaves, rng) / 2


def _dead_ends(octaves: Array, rng: np.random.Generator) -> Array:
    return np.where(rng.random(len(octaves)) < 0.3, rng.choice([1.2, 99.0], size=len(octaves)), _convex(octaves, rng))


# Curve of ln epochs over log2(batch size), least and most sizes, noise of ln epochs.
FAMILIES: dict[str, tuple[Callable[[Array, np.random.Generator], Array], int, int, float]] = {
    "convex": (_convex, 4, 13, 0.1),
    "flat": (_flat, 4, 13, 0.1),
    "step": (_step, 4, 13, 0.1),
    "wavy": (_wavy, 5, 13, 0.1),
    "dead ends": (_dead_ends, 4, 13, 0.1),
    "heavy noise": (_convex, 4, 13, 0.35),
    "one size": (_flat, 1, 1, 0.1),
    "thirty sizes": (_convex, 30, 30, 0.1),
}


def made_up_jobs(family: str, count: int) -> Iterator[Case]:
    """Give jobs of a family whose default is any size that reaches the target in most runs."""
    rng = np.random.default_rng(list(FAMILIES).index(family))
    while count:
        max_epochs = int(rng.choice([30, 100, 300]))
        truth = _made_up_truth(family, max_epochs, rng)
        usual = [size for size, one in truth.sizes.items() if np.median(one.epochs) <= max_epochs]
        if not usual:
            continue
        count -= 1
        start = int(rng.choice(usual))
        job = recorded_job(truth, default_batch_size=start, target_metric=0.5, max_epochs=max_epochs)
        yield Case(f"{family} {count}", family, job, truth)


def _made_up_truth(family: str, max_epochs: int, rng: np.random.Generator) -> JobTruth:
    curve, least, most, noise = FAMILIES[family]
    count = int(rng.integers(least, most + 1))
    # Thirty sizes lie a third of an octave apart, others one.
    octaves = rng.integers(2, 6) + np.arange(count) / (3 if count == 30 else 1)
    log_epochs = math.log(max_epochs) - rng.uniform(0.5, 2.5) + curve(octaves, rng)
    busy = rng.uniform(octaves[0], octaves[-1] + 1)
    epoch_cost = math.exp(rng.uniform(8, 14)) * (1 + 2 ** (busy - octaves))
    waste = rng.uniform(0.02, 0.5)
    sizes = {}
    for index in range(count):
        runs = np.maximum(np.round(np.exp(np.minimum(log_epochs[index] + noise * rng.normal(size=6), 99))), 1)
        limits = zip(np.linspace(100, 300, 7), _limit_costs(epoch_cost[index], waste), strict=True)
        power = tuple(EpochPower(w, c * w / 300, c / 300) for w, c in limits)
        sizes[round(2 ** octaves[index])] = SizeTruth(tuple(float(run) for run in runs), power)
    return JobTruth(sizes, 300.0)


def _limit_costs(cost: float, waste: float) -> Array:
    """Return an epoch's time times 300 W at seven power limits, the slowest first."""
    return cost * (1 + waste * np.linspace(1, 0, 7) ** 2)
