"""A job's history to report on, built from short lines."""

import math
import statistics
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from zeus_kfp.components.close_recurrence.report_data import ReportData
from zeus_kfp.state_store.records import JobPhase, JobRecord, RecurrenceRecord, RecurrenceState, TrialRecord
from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.policies.interface import ArmPosterior
from zeus_kfp.zeus_core.trial import Purpose, TrialState

START = datetime(2026, 3, 2, 6, 0, tzinfo=UTC)
POWER_W = 65.0
TRACEBACK = (
    "Traceback (most recent call last):\n"
    '  File "train.py", line 41, in train\n'
    "    loss.backward()\n"
    "RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x63 and 64x32)\n"
)

# Each recurrence: (batch size, state, epochs, cost in J, purpose, reason, error) of its trials.
E, S = Purpose.EXPLORATION, Purpose.SAMPLING
R, N, OOM, F, X = (TrialState(name) for name in ("reached", "not_reached", "oom", "failed", "expired"))
DIGITS: list[list[tuple[Any, ...]]] = [
    [(32, R, 9, 1420, E)],
    [(16, R, 8, 2210, E)],
    [(8, N, 5, 2860, E, "early stop: the next epoch would cross the cost threshold"), (64, R, 10, 1010, E)],
    [(128, R, 12, 830, E)],
    [(256, R, 15, 760, E)],
    [(512, N, 40, 1540, E, "max_epochs: 0.942 after 40 epochs, target 0.95"), (32, R, 9, 1390, E)],
    [
        (1024, OOM, 0, None, E, "CUDA out of memory", "torch.OutOfMemoryError: CUDA out of memory."),
        (128, R, 11, 790, E),
    ],
    [(256, R, 14, 720, S)],
    [(128, F, 0, None, S, "RuntimeError: mat1 and mat2 shapes cannot be multiplied", TRACEBACK), (256, R, 15, 750, S)],
    [(128, N, 20, 1320, S, "early stop: the next epoch would cross the cost threshold"), (64, X, None, None, S)],
    [(256, R, 14, 735, S)],
    [(256, R, 13, 690, S)],
]
WHY = {
    E: "exploring upwards from 32: the next size (round 1 of 2)",
    S: "lowest of one draw for each of 5 batch sizes",
}


def make_job(**knobs: Any) -> JobSpec:
    sizes = (8, 16, 32, 64, 128, 256, 512, 1024)
    values = {
        "job_id": "digits-nightly",
        "batch_sizes": sizes,
        "default_batch_size": 32,
        "target_metric": 0.95,
        "max_epochs": 40,
    }
    return JobSpec(**{**values, **knobs})


def make_trial(job: JobSpec, recurrence: int, slot: int, number: int, outcome: Sequence[Any]) -> TrialRecord:
    batch_size, state, epochs, cost, purpose, reason, error = (*outcome, *("", "")[len(outcome) - 5 :])[:7]
    opened = START + timedelta(days=recurrence - 1, minutes=10 * slot)
    energy_j = None if cost is None else 0.92 * cost
    time_s = None if epochs is None else 12.0 if cost is None else 1.08 * cost / POWER_W
    return TrialRecord(
        job_id=job.job_id, run_id=f"run-{recurrence}", recurrence_number=recurrence, number=number, slot=slot,
        batch_size=batch_size, purpose=purpose, why=WHY[purpose], cost_threshold=None, learning_rate_factor=1.0,
        state=state, reason=reason, error=error, num_epochs=epochs, metric=0.953 if state is R else None,
        energy_j=energy_j, time_s=time_s, cost=cost, energy_source="estimate", energy_estimated=True,
        max_power_w=POWER_W, accelerator="2-core CPU", accelerator_count=1, node="node-1", attempts=1, model_uri="",
        power_limiter="", power_limit_found_w=None, power_limits_found_w={}, power_limit_w=None,
        second_energy_j=None, second_energy_source="",
        issued_at=opened, lease_expires_at=opened + timedelta(hours=1), finished_at=opened + timedelta(minutes=5),
    )  # fmt: skip


def make_recurrence(trials: Sequence[TrialRecord]) -> RecurrenceRecord:
    won = [trial.batch_size for trial in trials if trial.state is R]
    costs = [trial.cost for trial in trials if trial.cost is not None]
    first, last = trials[0], trials[-1]
    return RecurrenceRecord(
        job_id=first.job_id, run_id=first.run_id, number=first.recurrence_number,
        state=RecurrenceState.REACHED if won else RecurrenceState.NOT_REACHED, data_epoch="2026",
        trial_count=len(trials), batch_size=won[0] if won else None,
        num_epochs=sum(trial.num_epochs or 0 for trial in trials),
        energy_j=sum(trial.energy_j or 0.0 for trial in trials), time_s=sum(trial.time_s or 0.0 for trial in trials),
        cost=sum(costs) if costs else None, energy_estimated=any(trial.energy_estimated for trial in trials),
        opened_at=first.issued_at, closed_at=last.finished_at,
    )  # fmt: skip


def make_arm(batch_size: int, trials: Sequence[TrialRecord]) -> ArmPosterior:
    own = [trial for trial in trials if trial.batch_size == batch_size]
    costs = [trial.cost for trial in own if trial.cost is not None]
    deviation = statistics.stdev(costs) / math.sqrt(len(costs)) if len(costs) > 1 else None
    status = "sampled" if len(costs) > 1 else "exploring" if own else "untried"
    for state, why in ((N, "an exploration did not reach the target"), (OOM, "out of memory")):
        if own and own[0].state is state:
            status = f"ruled out: {why}"
    return ArmPosterior(batch_size, statistics.fmean(costs) if costs else None, deviation, len(costs), status)


def make_data(history: Sequence[Sequence[Sequence[Any]]], **knobs: Any) -> ReportData:
    job = make_job(**knobs)
    trials: list[TrialRecord] = []
    recurrences = []
    for number, outcomes in enumerate(history, start=1):
        own = [
            make_trial(job, number, slot, len(trials) + slot, outcome) for slot, outcome in enumerate(outcomes, start=1)
        ]
        recurrences.append(make_recurrence(own))
        trials += own
    arms = tuple(make_arm(size, trials) for size in job.batch_sizes)
    won = [recurrence for recurrence in recurrences if recurrence.batch_size and recurrence.cost]
    best = min(won, key=lambda recurrence: recurrence.cost or 0, default=None)
    record = JobRecord(
        job,
        JobPhase.RUNNING,
        POWER_W,
        best and best.cost,
        best and best.batch_size,
        len(recurrences),
        len(trials),
        START,
    )
    return ReportData(record, tuple(recurrences), tuple(trials), arms)


@pytest.fixture
def build() -> Callable[..., ReportData]:
    """Make a history from short lines."""
    return make_data


@pytest.fixture
def digits() -> ReportData:
    """Twelve recurrences of a job: an exploration, an out of memory, a crash, early stops, one without a model."""
    return make_data(DIGITS)
