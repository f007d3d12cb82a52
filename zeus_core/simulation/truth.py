"""The truth of a job, as traces recorded it: what a trial at any batch size and power limit takes.

    cost of an epoch = eta * energy_j + (1 - eta) * max_power_w * time_s

The first trial at a batch size profiles every power limit during its first epoch, in equal shares, so that this
epoch takes the mean energy and time over the limits; every later one takes those of the cheapest limit.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.learning_curve import Curve
from zeus_kfp.zeus_core.simulation.curves import curves_of, is_higher_better
from zeus_kfp.zeus_core.simulation.traces import PowerRow, TrainingTask, TrainRow

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EpochPower:
    """What an epoch takes at one power limit: W, J and s."""

    power_limit_w: float
    energy_j: float
    time_s: float


@dataclass(frozen=True, slots=True)
class SizeTruth:
    """What training at one batch size takes.

    Attributes:
        epochs: Epochs to the target of each recorded run; infinity where it never reached it.
        power: What an epoch takes at each power limit, at least one.
        curves: How far each of the runs came, and when; empty where that was not recorded.
    """

    epochs: tuple[float, ...]
    power: tuple[EpochPower, ...]
    curves: tuple[Curve, ...] = ()


@dataclass(frozen=True, slots=True)
class PricedSize:
    """A batch size whose cheapest power limit is known for some eta.

    Attributes:
        epochs: As in :class:`SizeTruth`.
        epoch: What an epoch takes at the cheapest limit.
        epoch_cost: Its cost in J.
        first_epoch: What the epoch takes that profiles every limit.
        curves: As in :class:`SizeTruth`.
    """

    epochs: tuple[float, ...]
    epoch: EpochPower
    epoch_cost: float
    first_epoch: EpochPower
    curves: tuple[Curve, ...] = ()

    def mean_cost(self, max_epochs: float) -> float:
        """Return the mean cost in J until the target is reached, failed tries included; infinity if it never is."""
        reached = [epochs for epochs in self.epochs if epochs <= max_epochs]
        if not reached:
            return math.inf
        failures = (len(self.epochs) - len(reached)) / len(reached)
        return self.epoch_cost * (sum(reached) / len(reached) + failures * max_epochs)


@dataclass(frozen=True, slots=True)
class JobTruth:
    """What training a job takes at every batch size.

    Attributes:
        sizes: By batch size, ascending.
        max_power_w: Largest power limit in W that the trace has for any job, which the cost is made of.
        higher_is_better: Whether the metric of the curves grows as the model gets better.
    """

    sizes: Mapping[int, SizeTruth]
    max_power_w: float
    higher_is_better: bool = True

    def priced(self, eta_knob: float) -> dict[int, PricedSize]:
        """Return every batch size with its cheapest power limit; of equal ones the highest."""
        return {size: self._price(truth, eta_knob) for size, truth in self.sizes.items()}

    def _price(self, truth: SizeTruth, eta_knob: float) -> PricedSize:
        def cost(epoch: EpochPower) -> float:
            return eta_knob * epoch.energy_j + (1 - eta_knob) * self.max_power_w * epoch.time_s

        power = sorted(truth.power, key=lambda epoch: -epoch.power_limit_w)
        best = min(power, key=cost)
        count = len(power)
        mean_energy_j = math.fsum(epoch.energy_j for epoch in power) / count
        mean_time_s = math.fsum(epoch.time_s for epoch in power) / count
        profiled = EpochPower(best.power_limit_w, mean_energy_j, mean_time_s)
        return PricedSize(truth.epochs, best, cost(best), profiled, truth.curves)


def job_truth(
    train: Sequence[TrainRow],
    power: Sequence[PowerRow],
    target_metric: float,
    *,
    dataset: str | None = None,
    network: str | None = None,
    optimizer: str | None = None,
) -> JobTruth:
    """Return the truth of the one job in the traces that matches.

    A batch size takes part if both traces have it; one without a row for the target never reaches it.

    Args:
        train: Epochs to target metrics.
        power: Time and power of an epoch.
        target_metric: The metric to reach; the train trace must have rows for exactly it.
        dataset: Its data set; None for any.
        network: Its network; None for any.
        optimizer: Its optimizer; None for any.

    Raises:
        InvalidValueError: If no job matches or several do, or the target was not recorded.
    """
    wanted = TrainingTask(dataset or "", network or "", optimizer or "")
    task = _only_match({row.task for row in train} & {row.task for row in power}, wanted)
    runs = [row for row in train if row.task == task]
    targets = sorted({row.target_metric for row in runs})
    if target_metric not in targets:
        raise InvalidValueError(f"target_metric {target_metric!r} was not recorded for {task}: choose one of {targets}")
    epochs = _by_size((row.batch_size, row.target_epoch) for row in runs if row.target_metric == target_metric)
    epoch_power = _by_size(
        (row.batch_size, EpochPower(row.power_limit_w, row.time_s * row.average_power_w, row.time_s))
        for row in power
        if row.task == task
    )
    recorded = {row.batch_size for row in runs}
    higher_is_better = is_higher_better(runs)
    curves = curves_of(runs, target_metric, higher_is_better=higher_is_better)
    sizes = {
        size: SizeTruth(tuple(epochs.get(size, (math.inf,))), tuple(limits), curves.get(size, ()))
        for size, limits in sorted(epoch_power.items())
        if size in recorded
    }
    return JobTruth(sizes, _max_power_w(train, power), higher_is_better)


def _only_match(tasks: set[TrainingTask], wanted: TrainingTask) -> TrainingTask:
    def matches(task: TrainingTask) -> bool:
        pairs = ((wanted.dataset, task.dataset), (wanted.network, task.network), (wanted.optimizer, task.optimizer))
        return all(want in ("", have) for want, have in pairs)

    found = [task for task in tasks if matches(task)]
    if len(found) != 1:
        how_many = "several jobs" if found else "no job"
        known = sorted(map(str, tasks))
        raise InvalidValueError(
            f"{how_many} of both traces match dataset={wanted.dataset!r}, network={wanted.network!r}, "
            f"optimizer={wanted.optimizer!r}: name one of {known}"
        )
    return found[0]


def _max_power_w(train: Iterable[TrainRow], power: Iterable[PowerRow]) -> float:
    recorded = {(row.task, row.batch_size) for row in train}
    return max(row.power_limit_w for row in power if (row.task, row.batch_size) in recorded)


def _by_size(pairs: Iterable[tuple[int, T]]) -> dict[int, list[T]]:
    grouped: dict[int, list[T]] = {}
    for size, value in pairs:
        grouped.setdefault(size, []).append(value)
    return grouped
