"""A recurring training task and its knobs."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Self

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.power.selectors import checked_objective
from zeus_kfp.zeus_core.validation import MAX_INTEGER, MAX_POWER_W, integer, integral, number, text, truth

MAX_BATCH_SIZES = 256
MAX_CONCURRENT_RECURRENCES = 1000
MIN_PERIOD_S = 60.0
ONCE = -1
"""How often something is done that is done once in a job's life, whatever becomes of its data."""


class LearningRateRule(StrEnum):
    """How the learning rate follows the batch size, as a factor on the user's own."""

    NONE = "none"
    LINEAR = "linear"
    """Proportional to the batch size: plain SGD."""
    SQUARE_ROOT = "square_root"
    """Proportional to its square root: Adam and other adaptive optimizers."""

    def factor(self, batch_size: int, default_batch_size: int) -> float:
        """Return the factor for ``batch_size``, 1.0 at the default batch size."""
        ratio = batch_size / default_batch_size
        return {"none": 1.0, "linear": ratio, "square_root": math.sqrt(ratio)}[self.value]


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What the user fixes about a recurring training task; validated when made.

    Attributes:
        job_id: The job's name, unique in a store.
        batch_sizes: Candidate batch sizes in samples (global, over all GPUs), ascending.
        default_batch_size: The size the user trains with today; exploration starts here.
        target_metric: The value of the validation metric that ends a trial.
        higher_is_better: Whether the metric grows as the model gets better.
        max_epochs: Epochs after which a trial that has not reached the target is given up.
        eta_knob: Weight of energy against time in the cost, 0 (time only) to 1 (energy only).
        beta_knob: A trial stops early once it would cost ``beta_knob`` times the cheapest recurrence so far;
            above 1, infinity never stops early.
        max_power_w: Rated power in W summed over the GPUs used; 0 takes what the first trial reports.
        max_retries: Trials that one recurrence may spend.
        num_recurrences: Recurrences after which the job is complete; 0 means without end.
        max_concurrent_recurrences: Recurrences of this job that may run at the same time.
        max_concurrent_recurrences_per_user: Recurrences of all jobs of ``user`` that may run at the same time for this
            job to start another; 0 means no cap.
        period_s: Seconds that pass between the starts of two recurrences, unless drift is signalled; 0 lets every
            run of the pipeline start one.
        preprocess_every: Recurrences after which the data is preprocessed again; 1 does so in each, 0 only when the
            data changes, -1 never.
        max_trial_time_s: Seconds after which a trial is ended by its supervisor.
        max_step_time_s: Seconds that any other step may take, such as preprocessing or a stage after the winner; a
            recurrence that is not heard of for longer is taken for dead.
        policy: Name of the batch-size policy.
        num_pruning_rounds: Rounds of the pruning walk that comes before Thompson sampling.
        num_explorations: Observations that an arm needs before it is sampled.
        window_size: Latest costs of an arm that count, so that old ones are forgotten; 0 counts all.
        prior_mean: Mean of every arm's prior, in cost with the sign turned (a reward).
        prior_precision: Precision of that prior; 0 is a flat one.
        seed: Seed of the policy's random generator.
        learning_rate_rule: How the learning rate follows the batch size.
        power_objective: What the best power limit is: "cost", "energy", "time", or "slowdown:1.1" for the lowest at
            which training is at most 1.1 times as slow.
        user: Whom the job belongs to, for filters and reports.
        hopeless_stop: Whether a trial stops once it is very likely to take more epochs than its cost threshold or
            ``max_epochs`` allows.

    Raises:
        InvalidValueError: If any of them is out of its range.
    """

    job_id: str
    batch_sizes: tuple[int, ...]
    default_batch_size: int
    target_metric: float
    higher_is_better: bool = True
    max_epochs: int = 100
    eta_knob: float = 0.5
    beta_knob: float = 2.0
    max_power_w: float = 0.0
    max_retries: int = 5
    num_recurrences: int = 0
    max_concurrent_recurrences: int = 1
    max_concurrent_recurrences_per_user: int = 0
    period_s: float = 0.0
    preprocess_every: int = 0
    max_trial_time_s: float = 86_400.0
    max_step_time_s: float = 86_400.0
    policy: str = "bayes"
    num_pruning_rounds: int = 2
    num_explorations: int = 2
    window_size: int = 0
    prior_mean: float = 0.0
    prior_precision: float = 0.0
    seed: int = 123456
    learning_rate_rule: LearningRateRule = LearningRateRule.NONE
    power_objective: str = "cost"
    user: str = ""
    hopeless_stop: bool = True

    def __post_init__(self) -> None:
        """Check every knob and bring it to its own type."""
        put = object.__setattr__
        put(self, "job_id", text("job_id", self.job_id))
        put(self, "user", text("user", self.user, allow_empty=True))
        put(self, "policy", text("policy", self.policy, at_most=64))
        put(self, "power_objective", checked_objective(text("power_objective", self.power_objective, at_most=64)))
        put(self, "batch_sizes", _checked_batch_sizes(self.batch_sizes))
        put(self, "default_batch_size", integer("default_batch_size", self.default_batch_size, at_least=1))
        if self.default_batch_size not in self.batch_sizes:
            raise InvalidValueError(
                f"default_batch_size {self.default_batch_size} is not among batch_sizes "
                f"{list(self.batch_sizes)}: add it to the list or choose one of them"
            )
        if not isinstance(self.higher_is_better, bool):
            raise InvalidValueError(f"higher_is_better must be true or false, not {self.higher_is_better!r}")
        put(self, "hopeless_stop", truth("hopeless_stop", self.hopeless_stop))
        put(self, "target_metric", number("target_metric", self.target_metric))
        put(self, "eta_knob", number("eta_knob", self.eta_knob, at_least=0, at_most=1))
        put(self, "beta_knob", number("beta_knob", self.beta_knob, above=1, finite=False))
        put(self, "max_power_w", number("max_power_w", self.max_power_w, at_least=0, at_most=MAX_POWER_W))
        for name in ("max_trial_time_s", "max_step_time_s"):
            put(self, name, number(name, getattr(self, name), above=0, at_most=1e9))
        put(self, "period_s", _checked_period_s(self.period_s))
        put(self, "max_concurrent_recurrences", _checked_concurrency(self.max_concurrent_recurrences))
        put(self, "prior_mean", number("prior_mean", self.prior_mean))
        put(self, "prior_precision", number("prior_precision", self.prior_precision, at_least=0))
        for name, low, high in _INTEGER_RANGES:
            put(self, name, integer(name, getattr(self, name), at_least=low, at_most=high))
        put(self, "learning_rate_rule", _checked_rule(self.learning_rate_rule))

    @classmethod
    def from_parameters(cls, **parameters: Any) -> Self:
        """Return the spec of knobs as KFP hands them over, where integers in a list arrive as floats.

        Raises:
            InvalidValueError: If a knob is out of its range.
        """
        sizes = parameters.get("batch_sizes")
        if isinstance(sizes, Iterable) and not isinstance(sizes, str | bytes):
            parameters["batch_sizes"] = tuple(integral("a batch size", size) for size in sizes)
        return cls(**parameters)

    def differences(self, other: "JobSpec") -> dict[str, tuple[Any, Any]]:
        """Return the knobs whose value differs, each with its value here and in ``other``."""
        pairs = {f.name: (getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


# KFP carries an integer parameter as a double, which is exact up to 2**53 only.
_INTEGER_RANGES = (
    ("max_epochs", 1, 10**9),
    ("max_retries", 1, 1000),
    ("num_recurrences", 0, 10**9),
    ("max_concurrent_recurrences_per_user", 0, 10**9),
    ("preprocess_every", ONCE, 10**9),
    ("num_pruning_rounds", 0, 100),
    ("num_explorations", 1, 100),
    ("window_size", 0, 10_000),
    ("seed", 0, 2**53 - 1),
)


def _checked_period_s(value: Any) -> float:
    period_s = number("period_s", value, at_least=0, at_most=1e9)
    if 0 < period_s < MIN_PERIOD_S:
        raise InvalidValueError(
            f"period_s must be 0 or at least {MIN_PERIOD_S:g} s, not {value!r}: each start costs some seven pods, and "
            "runs would pile up faster than they end. 0 starts a recurrence with every run of the pipeline"
        )
    return period_s


def _checked_concurrency(value: Any) -> int:
    recurrences = integer("max_concurrent_recurrences", value)
    if not 1 <= recurrences <= MAX_CONCURRENT_RECURRENCES:
        raise InvalidValueError(
            f"max_concurrent_recurrences must be at least 1 and at most {MAX_CONCURRENT_RECURRENCES}, not "
            f"{recurrences}: each recurrence holds an accelerator, and without a cap a job whose runs take longer than "
            "its period starts more and more of them"
        )
    return recurrences


def _checked_rule(value: Any) -> LearningRateRule:
    try:
        return LearningRateRule(value)
    except ValueError:
        allowed = ", ".join(rule.value for rule in LearningRateRule)
        raise InvalidValueError(f"learning_rate_rule must be one of {allowed}, not {value!r}") from None


def _checked_batch_sizes(values: Any) -> tuple[int, ...]:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InvalidValueError(f"batch_sizes must be a list of integers such as [8, 16, 32], not {values!r}")
    sizes = tuple(integer("a batch size", value, at_least=1, at_most=MAX_INTEGER) for value in values)
    if not sizes:
        raise InvalidValueError("batch_sizes must hold at least one size, such as [8, 16, 32]")
    if len(sizes) > MAX_BATCH_SIZES:
        raise InvalidValueError(f"batch_sizes may hold {MAX_BATCH_SIZES} sizes at most, not {len(sizes)}")
    if len(set(sizes)) < len(sizes):
        twice = sorted({size for size in sizes if sizes.count(size) > 1})
        raise InvalidValueError(f"batch_sizes must not repeat a size: {twice} are there more than once")
    if list(sizes) != sorted(sizes):
        raise InvalidValueError(f"batch_sizes must be ascending, not {list(sizes)}: give {sorted(sizes)}")
    return sizes
