"""A job's truth from trials of our own: the history and profile artifacts that `train_with_profiling` writes.

The history says when each trial reached the target and what an epoch took at the power limit that it settled at; the
profile says how throughput and average power change from limit to limit. The settled limit is the profiled one whose
average power is nearest to that of the epochs, and the epochs at another limit p are scaled from it:

    time_p = time * throughput_settled / throughput_p,    energy_p = energy * (power_p time_p) / (power_settled time)
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Self

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.learning_curve import Curve
from zeus_kfp.zeus_core.profile import Phase, Profile, read_profiles
from zeus_kfp.zeus_core.simulation.truth import EpochPower, JobTruth, SizeTruth
from zeus_kfp.zeus_core.training.history import EpochRecord
from zeus_kfp.zeus_core.validation import integer, number


@dataclass(frozen=True, slots=True)
class Recording:
    """One trial as it was recorded.

    Attributes:
        batch_size: Samples.
        epochs: Its epochs, in order.
        profiles: What was profiled during it; maybe nothing.
    """

    batch_size: int
    epochs: tuple[EpochRecord, ...]
    profiles: tuple[Profile, ...] = ()

    @classmethod
    def read(cls, batch_size: int, history: str | Path, profile: str | Path) -> Self:
        """Return the recording of a trial's two artifacts; a profile that is not there is an empty one.

        Raises:
            InvalidValueError: If a file can't be read or is no such artifact.
        """
        size = integer("batch_size", batch_size, at_least=1)
        try:
            lines = Path(history).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidValueError(f"{history} can't be read as a history: {error}") from None
        epochs = tuple(EpochRecord.from_line(line) for line in lines if line.strip())
        return cls(size, epochs, read_profiles(profile))

    def epochs_to(self, target_metric: float, *, higher_is_better: bool) -> float:
        """Return the epochs until a metric was reached; infinity if it never was."""
        sign = 1 if higher_is_better else -1
        reached = [one.epoch for one in self.epochs if sign * one.metric >= sign * target_metric]
        return float(min(reached, default=math.inf))

    def curve(self, target_metric: float, *, higher_is_better: bool) -> Curve:
        """Return how the trial came as far as it did on its way to a metric: (epochs, best metric so far)."""
        sign, best = 1 if higher_is_better else -1, dict[float, float]()
        for one in self.epochs:
            if not best or sign * one.metric > sign * best[max(best)]:
                best[float(one.epoch)] = one.metric
            if sign * one.metric >= sign * target_metric:
                break
        return tuple(best.items())

    def power(self) -> tuple[EpochPower, ...]:
        """Return what an epoch takes at each power limit; nothing if its energy or time was not recorded."""
        measured = [(one.energy_j, one.time_s) for one in self.epochs if one.energy_j and one.time_s]
        # The first epoch also warms up and profiles.
        settled = measured[1:] or measured
        if not settled:
            return ()
        energy_j, time_s = (fmean(values) for values in zip(*settled, strict=True))
        rows = [one for one in self.profiles if _is_usable(one)]
        if not rows:
            return (EpochPower(energy_j / time_s, energy_j, time_s),)
        base = min(rows, key=lambda row: abs(row.average_power_w - energy_j / time_s))
        return tuple(_scaled(row, base, energy_j, time_s) for row in rows)


def truth_of_recordings(
    recordings: Sequence[Recording], target_metric: float, *, higher_is_better: bool = True, max_power_w: float = 0.0
) -> JobTruth:
    """Return the truth of a job that several trials of it show.

    Args:
        recordings: Its trials, the latest last; of a batch size, the latest that was measured gives the epoch's cost.
        target_metric: The metric to reach.
        higher_is_better: Whether the metric grows as the model gets better.
        max_power_w: Rated power in W over all GPUs used; 0 takes the largest that was profiled.

    Raises:
        InvalidValueError: If no trial was measured, or a number is out of its range.
    """
    target = number("target_metric", target_metric)
    power = {one.batch_size: taken for one in recordings if (taken := one.power())}
    if not power:
        raise InvalidValueError("the recordings hold no trial whose epochs have energy and time: nothing can be priced")
    sizes = {
        size: SizeTruth(
            tuple(
                one.epochs_to(target, higher_is_better=higher_is_better) for one in recordings if one.batch_size == size
            ),
            taken,
            tuple(one.curve(target, higher_is_better=higher_is_better) for one in recordings if one.batch_size == size),
        )
        for size, taken in sorted(power.items())
    }
    largest = max(epoch.power_limit_w for taken in power.values() for epoch in taken)
    return JobTruth(sizes, number("max_power_w", max_power_w, at_least=0) or largest, higher_is_better)


def _is_usable(row: Profile) -> bool:
    is_measured = row.throughput_samples_per_s > 0 and row.average_power_w > 0
    return row.phase is Phase.TRAIN and row.power_limit_w is not None and is_measured


def _scaled(row: Profile, base: Profile, energy_j: float, time_s: float) -> EpochPower:
    slowdown = base.throughput_samples_per_s / row.throughput_samples_per_s
    limit_w = (row.power_limit_w or 0.0) * max(row.accelerator_count, 1)
    return EpochPower(limit_w, energy_j * slowdown * row.average_power_w / base.average_power_w, time_s * slowdown)
