"""Values of one trial: what was suggested, what the training side is told, what came out."""

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.learning_curve import Curve, Reference, checked_curve, checked_reference
from zeus_kfp.zeus_core.validation import (
    MAX_ENERGY_J,
    MAX_INTEGER,
    MAX_POWER_W,
    MAX_TIME_S,
    integer,
    number,
    text,
    truth,
)
from zeus_kfp.zeus_core.values import field_values

MAX_OUTCOME_CHARACTERS = 8_000
"""KFP limits a parameter to 10,000 characters; an outcome stays below with room for escapes."""

MAX_GPUS = 32
"""Most GPUs of one pod whose limits an outcome tells."""


MAX_EPOCHS = 1e12
"""More than any trial can be predicted to need: five times the most that it can train."""


class TrialState(StrEnum):
    """The states of a trial: issued, then exactly one of the others."""

    ISSUED = "issued"
    REACHED = "reached"
    NOT_REACHED = "not_reached"
    OOM = "oom"
    FAILED = "failed"
    EXPIRED = "expired"


class Purpose(StrEnum):
    """Why a batch size was handed out."""

    EXPLORATION = "exploration"
    """A step of the pruning walk: its result moves the walk on."""
    CONCURRENT = "concurrent"
    """The best known size, since another trial holds the walk's next step."""
    SAMPLING = "sampling"
    """Chosen by the posterior."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A policy's answer.

    Attributes:
        batch_size: Samples, one of the job's sizes.
        purpose: Why it was handed out.
        why: The same in one sentence for people.
        cost_threshold: Cost in J at which the trial stops early; None for never.
        learning_rate_factor: Factor on the user's learning rate.
    """

    batch_size: int
    purpose: Purpose
    why: str
    cost_threshold: float | None
    learning_rate_factor: float


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """All that the training side needs to know of its trial; travels as JSON in the `suggestion` artifact.

    Attributes:
        job_id: The job's name.
        run_id: The KFP run.
        slot: Which try of the recurrence, from 1.
        number: The trial's number in its job, from 1.
        batch_size: Samples (global).
        purpose: Why this size.
        why: The same in one sentence.
        learning_rate_factor: Factor on the user's learning rate.
        target_metric: Value that ends the trial.
        higher_is_better: Whether the metric grows as the model gets better.
        max_epochs: Most epochs to train.
        eta_knob: Weight of energy in the cost.
        max_power_w: Rated power in W used in the cost; 0 until the first trial has reported it.
        cost_threshold: Cost in J at which to stop early; None for never.
        max_trial_time_s: Seconds after which the supervisor ends the trial.
        power_limit_w: Best known power limit per GPU in W; None if not profiled.
        power_limit_accelerator: Model of the GPU that it was profiled on; "" where that doesn't matter. On another
            model it is profiled anew.
        power_objective: What the best power limit is: "cost", "energy", "time" or "slowdown:1.1".
        reference: What earlier trials tell of the way to the target, by which a hopeless trial is stopped early; empty
            where they tell nothing, or none is to be stopped so.
    """

    job_id: str
    run_id: str
    slot: int
    number: int
    batch_size: int
    purpose: Purpose
    why: str
    learning_rate_factor: float
    target_metric: float
    higher_is_better: bool
    max_epochs: int
    eta_knob: float
    max_power_w: float
    cost_threshold: float | None
    max_trial_time_s: float
    power_limit_w: float | None = None
    power_limit_accelerator: str = ""
    power_objective: str = "cost"
    reference: Reference = ()

    def to_json(self) -> str:
        """Return the plan as a JSON object."""
        return json.dumps(field_values(self), allow_nan=False)

    @classmethod
    def from_json(cls, document: str) -> Self:
        """Return the plan that :meth:`to_json` wrote.

        Raises:
            InvalidValueError: If the text is not such an object.
        """
        values = _parse_object("suggestion", document, cls)
        reference = checked_reference("reference of the suggestion", values.get("reference", ()))
        return cls(**{**values, "purpose": Purpose(values["purpose"]), "reference": reference})

    def is_reached(self, metric: float) -> bool:
        """Return whether ``metric`` reaches the target."""
        return metric >= self.target_metric if self.higher_is_better else metric <= self.target_metric

    def best_of(self, metrics: Iterable[float | None]) -> float | None:
        """Return the best of some metrics, those that are not known left out; None without any."""
        best = max if self.higher_is_better else min
        return best((metric for metric in metrics if metric is not None), default=None)


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """What came of a trial, as the training side reports it.

    Attributes:
        state: reached, not_reached, oom or failed.
        reason: Why it ended so, for people ("early stop: …", "max_epochs", the error's last line).
        epochs: Epochs trained to their end.
        metric: Last metric reported; None if none was.
        energy_j: Energy in J over all GPUs used and all attempts; None if it can't be known.
        time_s: Time in s over all attempts.
        energy_source: Name of the meter ("nvml", "estimate", …); "" if there was none.
        energy_estimated: Whether the energy was estimated, not measured, be it that of an earlier attempt alone.
        second_energy_j: Energy in J of the last attempt by the meter that checks the first one; None without.
        second_energy_source: Name of that meter; "" if there was none.
        max_power_w: Rated power in W over all GPUs used; 0 if unknown.
        accelerator: Model of the GPU, or of the CPU where there is none.
        accelerator_count: How many of them.
        node: Machine that it ran on.
        power_limiter: How power limits were set: "nvml", "zeusd" or "observe only"; "" without any GPU.
        power_limit_found_w: Limit in W of each GPU before training; None if unknown or different.
        power_limits_found_w: Limit in W of each GPU before training, by UUID; empty where none can be read.
        power_limit_w: Limit in W that was chosen, after profiling or by earlier trials; None if none was.
        attempts: How often the trial's pod was started.
        model_uri: Where the model lies; "" if none was saved.
        exit_code: The user's process's exit code, negative for a signal; None if it never started.
        data_missing: Whether the preprocessed data set was gone from storage.
        error: Last lines of a failed process's output, for people.
        least_epochs: Epochs that it very likely needed at least, where it was stopped as hopeless; else None.
        curve: How it reached the target (epochs, best metric so far); empty if it did not, or that is not known.
    """

    state: TrialState
    reason: str = ""
    epochs: int = 0
    metric: float | None = None
    energy_j: float | None = None
    time_s: float = 0.0
    energy_source: str = ""
    energy_estimated: bool = False
    second_energy_j: float | None = None
    second_energy_source: str = ""
    max_power_w: float = 0.0
    accelerator: str = ""
    accelerator_count: int = 0
    node: str = ""
    power_limiter: str = ""
    power_limit_found_w: float | None = None
    power_limits_found_w: Mapping[str, float] = field(default_factory=dict, hash=False)
    power_limit_w: float | None = None
    attempts: int = 1
    model_uri: str = ""
    exit_code: int | None = None
    data_missing: bool = False
    error: str = ""
    least_epochs: float | None = None
    curve: Curve = ()

    def __post_init__(self) -> None:
        """Check every value.

        Raises:
            InvalidValueError: If one is out of its range.
        """
        put = object.__setattr__
        put(self, "state", _reported_state(self.state))
        for name, limit in (("reason", 1000), ("error", 4000), ("model_uri", 2000)):
            put(self, name, text(name, getattr(self, name), at_most=limit, allow_empty=True))
        for name in ("energy_source", "second_energy_source", "accelerator", "node", "power_limiter"):
            put(self, name, text(name, getattr(self, name), allow_empty=True))
        for name, lowest in (("epochs", 0), ("attempts", 1), ("accelerator_count", 0), ("exit_code", -MAX_INTEGER)):
            if name != "exit_code" or self.exit_code is not None:
                put(self, name, integer(name, getattr(self, name), at_least=lowest, at_most=MAX_INTEGER))
        for name in ("energy_estimated", "data_missing"):
            put(self, name, truth(name, getattr(self, name)))
        for name in ("power_limit_found_w", "power_limit_w"):
            if getattr(self, name) is not None:
                put(self, name, number(name, getattr(self, name), at_least=0, at_most=MAX_POWER_W))
        put(self, "power_limits_found_w", _limits_w("power_limits_found_w", self.power_limits_found_w))
        if self.metric is not None:
            put(self, "metric", number("metric", self.metric))
        put(self, "max_power_w", number("max_power_w", self.max_power_w, at_least=0, at_most=MAX_POWER_W))
        self._check_spent()
        self._check_curve()

    def _check_spent(self) -> None:
        put = object.__setattr__
        counts_as_cost = self.state in (TrialState.REACHED, TrialState.NOT_REACHED)
        if counts_as_cost or self.energy_j is not None:
            put(self, "energy_j", number("energy_j", self.energy_j, above=0, at_most=MAX_ENERGY_J))
        if self.second_energy_j is not None:
            second_j = number("second_energy_j", self.second_energy_j, at_least=0, at_most=MAX_ENERGY_J)
            put(self, "second_energy_j", second_j)
        above = 0 if counts_as_cost else None
        put(self, "time_s", number("time_s", self.time_s, at_least=0, above=above, at_most=MAX_TIME_S))

    def _check_curve(self) -> None:
        put = object.__setattr__
        put(self, "curve", checked_curve("curve", self.curve))
        if self.curve and self.state is not TrialState.REACHED:
            raise InvalidValueError(f"a trial in state {self.state.value!r} has no curve to the target: leave it empty")
        if self.least_epochs is None:
            return
        if self.state is not TrialState.NOT_REACHED or not self.epochs:
            raise InvalidValueError(
                f"least_epochs belongs to a trial that was stopped as hopeless after an epoch or more, not to one in "
                f"state {self.state.value!r} after {self.epochs}: leave it out"
            )
        put(self, "least_epochs", number("least_epochs", self.least_epochs, above=self.epochs, at_most=MAX_EPOCHS))

    def to_json(self) -> str:
        """Return the outcome as a JSON object short enough for a KFP parameter."""
        return json.dumps(field_values(self), allow_nan=False)

    @classmethod
    def from_json(cls, document: str) -> Self:
        """Return the outcome that :meth:`to_json` wrote.

        Raises:
            InvalidValueError: If the text is no JSON object, a field is missing, unknown or out of its range.
        """
        return cls(**_parse_object("outcome", document, cls))


def _limits_w(name: str, value: Any) -> dict[str, float]:
    if not isinstance(value, Mapping) or len(value) > MAX_GPUS:
        raise InvalidValueError(f"{name} must give the limit in W of at most {MAX_GPUS} GPUs by UUID, not {value!r}")
    return {
        text(f"GPU in {name}", uuid, at_most=80): number(f"{name}[{uuid!r}]", limit_w, above=0, at_most=MAX_POWER_W)
        for uuid, limit_w in value.items()
    }


def _reported_state(value: Any) -> TrialState:
    reportable = (TrialState.REACHED, TrialState.NOT_REACHED, TrialState.OOM, TrialState.FAILED)
    if value not in [state.value for state in reportable]:
        allowed = ", ".join(state.value for state in reportable)
        raise InvalidValueError(f"state of an outcome must be one of {allowed}, not {value!r}")
    return TrialState(value)


def _parse_object(name: str, document: str, cls: type[Any]) -> dict[str, Any]:
    try:
        values = json.loads(document)
    except (TypeError, ValueError, RecursionError) as error:
        shown = str(document)[:120]
        raise InvalidValueError(f"{name} must be a JSON object, not {shown!r}: {error}") from None
    if not isinstance(values, dict):
        raise InvalidValueError(f"{name} must be a JSON object, not {str(document)[:120]!r}")
    known = {field.name: field for field in dataclasses.fields(cls)}
    unknown = sorted(set(values) - set(known))
    missing = sorted(key for key, field in known.items() if key not in values and _is_required(field))
    if unknown or missing:
        raise InvalidValueError(f"{name} has unknown fields {unknown} and lacks {missing}")
    return values


def _is_required(field: "dataclasses.Field[Any]") -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def finite_or_none(value: float) -> float | None:
    """Return ``value``, or None for an infinity: JSON and databases hold no infinity."""
    return value if math.isfinite(value) else None
