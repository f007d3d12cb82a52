"""What the report of a job is made of, and the numbers that every form of it shares."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, Self, TypeGuard

from zeus_kfp.state_store.records import JobRecord, RecurrenceRecord, RecurrenceState, TrialRecord
from zeus_kfp.zeus_core.policies.interface import ArmPosterior
from zeus_kfp.zeus_core.trial import Purpose, TrialState


class ReportSource(Protocol):
    """The store's read side, as far as the report needs it."""

    def job(self, job_id: str, /) -> JobRecord:
        """Return the job."""
        ...

    def recurrences(self, job_id: str, /) -> Sequence[RecurrenceRecord]:
        """Return the job's recurrences."""
        ...

    def trials(self, job_id: str, /) -> Sequence[TrialRecord]:
        """Return the job's trials."""
        ...

    def arms(self, job_id: str, /) -> Sequence[ArmPosterior]:
        """Return the belief about every batch size of the job."""
        ...


@dataclass(frozen=True, slots=True)
class Baseline:
    """What the trials at the default batch size that reached the target took, on average.

    Attributes:
        count: How many there are.
        cost: Mean cost in J.
        energy_j: Mean energy in J over those of known energy; None if it is known of none.
        time_s: Mean time in s over those of known time; None if it is known of none.
    """

    count: int
    cost: float
    energy_j: float | None
    time_s: float | None


@dataclass(frozen=True, slots=True)
class RecurrenceRow:
    """One recurrence as tables show it.

    Attributes:
        number: Its number in the job, from 1.
        run_id: The KFP run.
        state: How it stands.
        trials: Trials handed out.
        tried: Batch size and state of each of them, in order.
        batch_size: The winner's batch size; None without a winner.
        num_epochs: Epochs over all its trials.
        time_s: Training time in s over all its trials.
        energy_j: Energy in J over all its trials; None if it is known of none.
        energy_estimated: Whether any of the energy was estimated.
        cost: Cost in J over all its trials that have one; None if none has.
        cost_vs_default: The cost as a multiple of the mean cost of training at the default batch size;
            None while that is not known.
        explored: Whether any of its trials was a step of the exploration.
    """

    number: int
    run_id: str
    state: RecurrenceState
    trials: int
    tried: tuple[tuple[int, TrialState], ...]
    batch_size: int | None
    num_epochs: int
    time_s: float
    energy_j: float | None
    energy_estimated: bool
    cost: float | None
    cost_vs_default: float | None
    explored: bool


@dataclass(frozen=True)
class ReportData:
    """A job's whole history, read once.

    Attributes:
        job: The job and its knobs.
        recurrences: Its recurrences, oldest first.
        trials: Its trials, oldest first.
        arms: The belief about each batch size.
    """

    job: JobRecord
    recurrences: tuple[RecurrenceRecord, ...] = ()
    trials: tuple[TrialRecord, ...] = ()
    arms: tuple[ArmPosterior, ...] = ()

    @classmethod
    def from_store(cls, store: ReportSource, job_id: str) -> Self:
        """Read a job's history.

        Raises:
            UnknownJobError: If the store holds no such job.
        """
        return cls(
            job=store.job(job_id),
            recurrences=tuple(sorted(store.recurrences(job_id), key=lambda recurrence: recurrence.number)),
            trials=tuple(sorted(store.trials(job_id), key=lambda trial: trial.number)),
            arms=tuple(store.arms(job_id)),
        )

    @cached_property
    def baseline(self) -> Baseline | None:
        """What training at the default batch size takes; None until such a trial has reached the target."""
        default = self.job.spec.default_batch_size
        at_default = [
            trial
            for trial in self.trials
            if trial.batch_size == default and trial.state is TrialState.REACHED and trial.cost is not None
        ]
        cost = mean(trial.cost for trial in at_default)
        if cost is None or cost <= 0:
            return None
        energy_j = mean(trial.energy_j for trial in at_default)
        return Baseline(len(at_default), cost, energy_j, mean(trial.time_s for trial in at_default))

    @cached_property
    def rows(self) -> tuple[RecurrenceRow, ...]:
        """Every recurrence as tables show it, oldest first."""
        trials: dict[str, list[TrialRecord]] = {}
        for trial in self.trials:
            trials.setdefault(trial.run_id, []).append(trial)
        return tuple(self._row(recurrence, trials.get(recurrence.run_id, [])) for recurrence in self.recurrences)

    def row(self, run_id: str | None) -> RecurrenceRow | None:
        """Return the recurrence that a KFP run is; None if it is none of this job's."""
        return next((row for row in self.rows if row.run_id == run_id), None)

    def _row(self, recurrence: RecurrenceRecord, trials: Sequence[TrialRecord]) -> RecurrenceRow:
        return RecurrenceRow(
            number=recurrence.number,
            run_id=recurrence.run_id,
            state=recurrence.state,
            trials=recurrence.trial_count,
            tried=tuple((trial.batch_size, trial.state) for trial in trials),
            batch_size=recurrence.batch_size,
            num_epochs=recurrence.num_epochs,
            time_s=recurrence.time_s,
            energy_j=recurrence.energy_j or None,
            energy_estimated=recurrence.energy_estimated,
            cost=recurrence.cost,
            cost_vs_default=self._against_default(recurrence.cost),
            explored=any(trial.purpose is Purpose.EXPLORATION for trial in trials),
        )

    def _against_default(self, cost: float | None) -> float | None:
        return None if self.baseline is None or cost is None else cost / self.baseline.cost


def scalar_metrics(data: ReportData, run_id: str) -> dict[str, float]:
    """Return what KFP shows as the run's metrics, finite numbers only.

    Args:
        data: The job's history.
        run_id: The KFP run; a run that is no recurrence of the job has no metrics.

    Returns:
        reached and energy_estimated (0 or 1), trials, batch_size (the winner's), epochs, metric (the
        winner's), energy_j (J), time_s (s), cost (J) and cost_vs_default_percent (100: as much as training at
        the default batch size), without those that are not known.
    """
    row = data.row(run_id)
    if row is None:
        return {}
    won = [trial for trial in data.trials if trial.run_id == run_id and trial.state is TrialState.REACHED]
    values = {
        "reached": float(row.state is RecurrenceState.REACHED),
        "trials": row.trials,
        "batch_size": row.batch_size,
        "epochs": row.num_epochs,
        "metric": won[-1].metric if won else None,
        "energy_j": row.energy_j,
        "energy_estimated": None if row.energy_j is None else float(row.energy_estimated),
        "time_s": row.time_s,
        "cost": row.cost,
        "cost_vs_default_percent": None if row.cost_vs_default is None else 100 * row.cost_vs_default,
    }
    return {name: float(value) for name, value in values.items() if is_finite(value)}


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the finite ``values``; None without any."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    # Divided first: the sum of costs near the largest float would overflow.
    return math.fsum(value / len(known) for value in known) if known else None


def is_finite(value: float | None) -> TypeGuard[float]:
    """Return whether ``value`` is there and finite."""
    return value is not None and math.isfinite(value)
