"""Made-up jobs that are hard to tell hopeless trials of: their metric stands still, jumps, wavers or misleads.

Each job has batch sizes of powers of two. Its runs come along at a size's pace (the slowest takes two to four times the
epochs of the fastest) and each at its own (±10 %), as far as its family lets them:

- `smooth`: the metric rises and levels off.
- `steps at epochs`: plateaus; the learning rate drops at fixed epochs, whatever the pace, and the metric jumps.
- `steps at shares`: the same, at shares of max_epochs.
- `warm restarts`: at each restart the metric falls back, and rises higher than before.
- `noisy plateau`: what changes from one epoch to the next is chance more than progress.
- `lucky starts`: one run in three is far ahead in its first third, and not at its end.

No constant of the predictor was chosen by the others:

- `late start`: nothing for an unknown time, then a quick rise.
- `one cycle`: the learning rate falls to zero at max_epochs, and most of the progress comes there.
- `two speeds`: half of the runs are slow first and fast later, and need no more epochs.
- `relapse`: halfway the metric gets worse for a while.
- `falling loss`: a power law of a loss, with heavy-tailed chance.
- `steps by samples`: the learning rate drops after a number of updates, hence the later the larger the batch.
- `lucky finish`: a plateau below the target, and at each epoch a small chance to come over it.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from regret_jobs import Array, Case

from zeus_kfp.zeus_core.learning_curve import Curve
from zeus_kfp.zeus_core.simulation import EpochPower, JobTruth, SizeTruth, recorded_job

EPOCHS = 400
"""Epochs that a run is followed for."""
RUNS = 12
"""Runs of each size."""
MARGINS = (1.15, 1.5, 3.0)
"""Max_epochs over the epochs of the slowest run at the default batch size."""


class Training(NamedTuple):
    """What a run meets: its generator, its pace, its batch size in octaves from the job's smallest, and max_epochs."""

    rng: np.random.Generator
    pace: float
    octaves: float
    max_epochs: float

    def progress(self) -> Array:
        """Return how far it has come after each epoch; 1 is most of what there is, after 20 epochs at pace 1."""
        return np.arange(1, EPOCHS + 1) / (20 * self.pace)


def _smooth(run: Training) -> Array:
    return 1 - np.exp(-run.progress())


def _stepped(run: Training, drops: Array) -> Array:
    """Return the metric where each phase between drops of the learning rate levels off above the one before."""
    metric, levels = np.empty(EPOCHS), (0.5, 0.75, 0.9, 0.95)
    value, phases = 0.0, np.searchsorted(drops, np.arange(EPOCHS), side="right")
    for epoch, phase in enumerate(phases):
        value += (levels[phase] - value) * (1 - math.exp(-1 / (4 * run.pace)))
        metric[epoch] = value
    return metric + 0.005 * run.rng.normal(size=EPOCHS)


def _steps_at_epochs(run: Training) -> Array:
    return _stepped(run, np.array([30, 60, 90]))


def _steps_at_shares(run: Training) -> Array:
    return _stepped(run, run.max_epochs * np.array([0.4, 0.7, 0.9]))


def _steps_by_samples(run: Training) -> Array:
    return _stepped(run, np.array([8, 16, 24]) * 2 ** (run.octaves / 2))


def _warm_restarts(run: Training) -> Array:
    starts = np.array([0, 8, 24, 56, 120, 248])
    cycle = np.searchsorted(starts, np.arange(EPOCHS), side="right") - 1
    part = (np.arange(EPOCHS) - starts[cycle] + 1) / (8 * 2.0**cycle)
    return (1 - np.exp(-run.progress())) * (0.6 + 0.4 * np.minimum(part, 1.0)) + 0.01 * run.rng.normal(size=EPOCHS)


def _noisy_plateau(run: Training) -> Array:
    return 1 - 0.6 * np.exp(-8 * run.progress()) - 0.4 * np.exp(-run.progress()) + 0.03 * run.rng.normal(size=EPOCHS)


def _lucky_starts(run: Training) -> Array:
    ahead = np.exp(-((run.progress() / 0.3) ** 2)) * (0.4 if run.rng.random() < 1 / 3 else 0.0)
    return 1 - np.exp(-run.progress()) + ahead


def _late_start(run: Training) -> Array:
    start = 1.0 + 0.3 * run.rng.normal()
    return 1 / (1 + np.exp(-12 * (run.progress() - start)))


def _one_cycle(run: Training) -> Array:
    share = np.minimum(np.arange(1, EPOCHS + 1) / run.max_epochs, 1.0)
    return 0.5 * (1 - np.exp(-3 * run.progress())) + 0.5 * share**4 * (1 - np.exp(-2 * run.progress()))


def _two_speeds(run: Training) -> Array:
    power = run.rng.choice([0.5, 2.0])
    return np.minimum(run.progress(), 2.0) ** power / 2


def _relapse(run: Training) -> Array:
    return 1 - np.exp(-run.progress()) - 0.5 * np.exp(-(((run.progress() - 0.8) / 0.3) ** 2))


def _falling_loss(run: Training) -> Array:
    return -((run.progress() + 0.05) ** -0.5) * (1 + 0.03 * run.rng.standard_t(3, size=EPOCHS))


def _lucky_finish(run: Training) -> Array:
    return 0.6 * (1 - np.exp(-3 * run.progress())) + np.where(run.rng.random(EPOCHS) < 0.05 / run.pace, 0.4, 0.0)


class Family(NamedTuple):
    """How a job's metric grows, the targets that it may have, and whether max_epochs shapes its schedule."""

    metric: Callable[[Training], Array]
    targets: tuple[float, ...]
    is_by_max_epochs: bool = False


FAMILIES = {
    "smooth": Family(_smooth, (0.8, 0.95)),
    "steps at epochs": Family(_steps_at_epochs, (0.6, 0.72, 0.8)),
    "steps at shares": Family(_steps_at_shares, (0.6, 0.72, 0.8), is_by_max_epochs=True),
    "warm restarts": Family(_warm_restarts, (0.7, 0.85)),
    "noisy plateau": Family(_noisy_plateau, (0.85, 0.95)),
    "lucky starts": Family(_lucky_starts, (0.8, 0.95)),
}
HELD_OUT = {
    "late start": Family(_late_start, (0.8,)),
    "one cycle": Family(_one_cycle, (0.5, 0.7), is_by_max_epochs=True),
    "two speeds": Family(_two_speeds, (0.6,)),
    "relapse": Family(_relapse, (0.6, 0.9)),
    "falling loss": Family(_falling_loss, (-0.8, -0.6)),
    "steps by samples": Family(_steps_by_samples, (0.6, 0.72, 0.8)),
    "lucky finish": Family(_lucky_finish, (0.9,)),
}


def hard_to_tell(name: str, count: int) -> Iterator[Case]:
    """Give jobs of a family."""
    families = FAMILIES | HELD_OUT
    rng = np.random.default_rng([7, list(families).index(name)])
    while count:
        truth, start, target, max_epochs = _made_up(families[name], rng)
        if max_epochs is not None:
            count -= 1
            job = recorded_job(truth, default_batch_size=start, target_metric=target, max_epochs=max_epochs)
            yield Case(f"{name} {count}", name, job, truth)


def _made_up(family: Family, rng: np.random.Generator) -> tuple[JobTruth, int, float, int | None]:
    """Return a truth, a default batch size, a target and max_epochs; None where the default does not reach that."""
    octaves = np.arange(5, 5 + rng.integers(4, 8))
    best = rng.choice(octaves)
    distance = np.abs(octaves - best) / np.abs(octaves - best).max()
    paces = rng.uniform(0.8, 1.5) * rng.uniform(2, 4) ** distance
    target, planned = float(rng.choice(family.targets)), int(rng.choice((50, 70, 100)))
    costs = math.exp(rng.uniform(8, 14)) * (1 + 2 ** (rng.uniform(octaves[0], octaves[-1] + 1) - octaves))
    sizes = {}
    for octave, pace, cost in zip(octaves, paces, costs, strict=True):
        runs = [Training(rng, pace * math.exp(0.1 * rng.normal()), octave - octaves[0], planned) for _ in range(RUNS)]
        curves = tuple(_best_so_far(family.metric(run), target) for run in runs)
        epochs = tuple(curve[-1][0] if curve[-1][1] >= target else math.inf for curve in curves)
        sizes[int(2**octave)] = SizeTruth(epochs, (EpochPower(300.0, cost, cost / 300.0),), curves)
    start = int(rng.choice(list(sizes)))
    slowest = max(sizes[start].epochs)
    if slowest > (planned if family.is_by_max_epochs else EPOCHS):
        return JobTruth(sizes, 300.0), start, target, None
    max_epochs = planned if family.is_by_max_epochs else math.ceil(float(rng.choice(MARGINS)) * slowest)
    return JobTruth(sizes, 300.0), start, target, max_epochs


def _best_so_far(metrics: Array, target: float) -> Curve:
    """Return a run's best metrics up to the first that reaches the target."""
    found: list[tuple[float, float]] = []
    for epoch, metric in enumerate(metrics.tolist(), 1):
        if not found or metric > found[-1][1]:
            found.append((float(epoch), metric))
            if metric >= target:
                break
    return tuple(found)
