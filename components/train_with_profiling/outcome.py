"""Put together what a trial reports."""

import dataclasses
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from zeus_kfp.components.train_with_profiling.judging import Evidence, Verdict
from zeus_kfp.components.train_with_profiling.measuring import Measured
from zeus_kfp.zeus_core.learning_curve import Curve, curve_of
from zeus_kfp.zeus_core.power.note import NODE_VARIABLE
from zeus_kfp.zeus_core.training.history import EpochRecord
from zeus_kfp.zeus_core.trial import (
    MAX_EPOCHS,
    MAX_GPUS,
    MAX_OUTCOME_CHARACTERS,
    TrialOutcome,
    TrialPlan,
    TrialState,
)

_MOST_ERROR_CHARACTERS = 4000
_MOST_REASON_CHARACTERS = 1000


def outcome_of(
    verdict: Verdict,
    evidence: Evidence,
    measured: Measured,
    *,
    limits_found_w: Mapping[str, float],
    attempts: int,
    model_uri: str,
) -> TrialOutcome:
    """Return a trial's outcome.

    Args:
        verdict: How it ended.
        evidence: What its process left behind.
        measured: What all attempts took.
        limits_found_w: Power limit in W of each GPU before training, by UUID.
        attempts: How many attempts there were, this one included.
        model_uri: Where the model lies; "" if none was saved.
    """
    told = evidence.summary
    reason = verdict.reason
    if verdict.state is TrialState.REACHED and not model_uri:
        reason += "; no model was saved: use trial.save_model(model), or write to trial.model_path"
    is_reached, is_given_up = (verdict.state is state for state in (TrialState.REACHED, TrialState.NOT_REACHED))
    outcome = TrialOutcome(
        state=verdict.state,
        reason=printable(reason)[:_MOST_REASON_CHARACTERS],
        epochs=evidence.epochs,
        metric=evidence.metric,
        energy_j=measured.energy_j,
        time_s=measured.time_s,
        energy_source=measured.energy_source,
        energy_estimated=measured.energy_estimated,
        second_energy_j=measured.second.energy_j,
        second_energy_source=measured.second.source,
        max_power_w=measured.max_power_w,
        accelerator=printable(measured.accelerator),
        accelerator_count=measured.accelerator_count,
        node=node_name(),
        power_limiter="" if told is None else told.power_limiter,
        power_limit_found_w=None if told is None else told.power_limit_found_w,
        power_limits_found_w=dict(list(limits_found_w.items())[:MAX_GPUS]),
        power_limit_w=None if told is None else told.power_limit_w,
        attempts=attempts,
        model_uri=model_uri,
        exit_code=evidence.exit_code,
        error=printable(verdict.error)[-_MOST_ERROR_CHARACTERS:],
        least_epochs=_above(evidence.least_epochs, evidence.epochs) if is_given_up else None,
        curve=evidence.curve if is_reached else (),
    )
    return _short_enough(outcome)


def data_missing(data_path: str) -> TrialOutcome:
    """Return the outcome of a trial that could not begin, since its data set is gone."""
    return TrialOutcome(
        state=TrialState.FAILED,
        reason=(
            f"the preprocessed data set is gone from storage ({data_path[-300:]} is not there): training was not "
            "started; the next recurrence preprocesses it again"
        ),
        node=node_name(),
        data_missing=True,
    )


def node_name(environ: Mapping[str, str] = os.environ) -> str:
    """Return the machine's name: a pod's own name is not that of its node."""
    return printable(environ.get(NODE_VARIABLE, "") or socket.gethostname())[:255]


def has_model(model_path: str) -> bool:
    """Return whether something was saved: a file, or a folder with something in it."""
    path = Path(model_path)
    return path.is_file() or (path.is_dir() and any(path.iterdir()))


def curve_told(plan: TrialPlan, records: Sequence[EpochRecord], *, is_own: bool, attempts: int) -> Curve:
    """Return how a trial reached its target, as its history tells; empty if it did not, or that can't be known.

    Args:
        plan: The trial's plan.
        records: The history of the last attempt at it.
        is_own: Whether the library wrote it, so that its epochs are numbered through all attempts.
        attempts: How many attempts there were.
    """
    points = [(record.epoch if is_own else count, record.metric) for count, record in enumerate(records, 1)]
    if attempts > 1 and not (is_own and points and points[0][0] == 1):
        return ()  # it has gone on from a checkpoint, or may have, and how it came there is not known
    if points != sorted(points, key=lambda point: point[0]) or (points and points[0][0] < 1):
        return ()
    return curve_of(points, plan.target_metric, higher_is_better=plan.higher_is_better)


def _above(least_epochs: float | None, epochs: int) -> float | None:
    return None if least_epochs is None or not 0 < epochs < least_epochs <= MAX_EPOCHS else least_epochs


def printable(value: str) -> str:
    """Return text without the characters that databases refuse."""
    return value.replace("\0", "").encode("utf-8", errors="replace").decode("utf-8")


def _short_enough(outcome: TrialOutcome) -> TrialOutcome:
    """Return the outcome with its error cut from the front until it fits into a KFP parameter."""
    while len(outcome.to_json()) > MAX_OUTCOME_CHARACTERS and outcome.error:
        outcome = dataclasses.replace(outcome, error=outcome.error[len(outcome.error) // 4 + 1 :])
    return outcome
