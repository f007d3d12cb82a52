"""What the trials of one batch size say of its epochs and of their cost, for a policy that models both.

The cost of a trial is (epochs to the target) x (cost of an epoch). The first is random and does not depend on the
accelerator; the second is known after one trial. Logarithms are kept, since both vary by factors. A trial that was
given up leaves lower bounds. Every sum is folded in constant time.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from zeus_kfp.zeus_core.validation import number
from zeus_kfp.zeus_core.values import field_values

MAX_EPOCH_COST = 1e100


@dataclass(frozen=True, slots=True)
class Moments:
    """Count, mean and sum of squared deviations from the mean of numbers seen one by one (Welford's sums)."""

    count: int = 0
    mean: float = 0.0
    sum_squared_deviations: float = 0.0

    def with_value(self, value: float) -> "Moments":
        """Return the moments once ``value`` is counted in."""
        count, deviation = self.count + 1, value - self.mean
        mean = self.mean + deviation / count
        return Moments(count, mean, self.sum_squared_deviations + deviation * (value - mean))


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of one batch size's epochs and their cost.

    Attributes:
        log_cost: Moments of ln(cost in J) over the trials that reached the target.
        log_epochs: Moments of ln(epochs) over those whose number of epochs is known.
        epoch_cost: Latest known cost in J of an epoch; None without any.
        unreached_count: Trials that were given up.
        unreached_cost: Highest cost in J at which one was given up; None without any.
        unreached_epochs: Most epochs after which one was given up; None without any.
        earlier_epoch_cost: What an epoch cost in J on the accelerator before this one; None without any.
        surprises: Trials in a row that contradicted those before them.
        held: Cost in J and epochs (None if not known) of those of them that reached the target; they are counted in
            once a later trial has told whether they were chance.
    """

    log_cost: Moments = Moments()
    log_epochs: Moments = Moments()
    epoch_cost: float | None = None
    unreached_count: int = 0
    unreached_cost: float | None = None
    unreached_epochs: float | None = None
    earlier_epoch_cost: float | None = None
    surprises: int = 0
    held: tuple[tuple[float, float | None], ...] = ()

    @property
    def reached_count(self) -> int:
        """Trials that reached the target, on this accelerator or any other."""
        return max(self.log_cost.count, self.log_epochs.count)

    def with_trial(
        self, reached: bool, cost: float, num_epochs: float | None = None, epoch_cost: float | None = None
    ) -> "Evidence":
        """Return the evidence once a trial is counted in.

        Args:
            reached: Whether it reached the target.
            cost: What it cost in J, above 0.
            num_epochs: Epochs that it trained; None if not known.
            epoch_cost: Cost in J of an epoch once the power limit has settled; None takes the trial's own mean.

        Raises:
            InvalidValueError: If ``num_epochs`` or ``epoch_cost`` is no such number.
        """
        epochs = None if num_epochs is None else number("num_epochs", num_epochs, at_least=0)
        if epoch_cost is not None:
            epoch_cost = number("epoch_cost", epoch_cost, above=0, at_most=MAX_EPOCH_COST)
        elif epochs:
            epoch_cost = cost / epochs
        known = replace(self, epoch_cost=self.epoch_cost if epoch_cost is None else epoch_cost)
        return known._with_reached(cost, epochs) if reached else known._with_given_up(cost, epochs)

    def _with_reached(self, cost: float, epochs: float | None) -> "Evidence":
        log_epochs = self.log_epochs.with_value(math.log(epochs)) if epochs else self.log_epochs
        return replace(self, log_cost=self.log_cost.with_value(math.log(cost)), log_epochs=log_epochs)

    def _with_given_up(self, cost: float, epochs: float | None) -> "Evidence":
        return replace(
            self,
            unreached_count=self.unreached_count + 1,
            unreached_cost=max(cost, self.unreached_cost or 0.0),
            unreached_epochs=self.unreached_epochs if epochs is None else max(epochs, self.unreached_epochs or 0.0),
        )

    def to_values(self) -> dict[str, Any]:
        """Return the evidence as JSON can hold it."""
        values = field_values(self)
        moments = {name: field_values(values[name]) for name in ("log_cost", "log_epochs")}
        return {**values, **moments, "held": [list(trial) for trial in self.held] or None}

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Self:
        """Return the evidence that :meth:`to_values` gave, before or after a trip through JSON."""
        moments = {name: Moments(**values[name]) for name in ("log_cost", "log_epochs")}
        held = values["held"] or ()
        if held and not isinstance(held[0], Sequence):  # earlier releases held back one at most
            held = (held,)
        return cls(**{**values, **moments, "held": tuple((cost, epochs) for cost, epochs in held)})

    def released(self) -> "Evidence":
        """Return the evidence with the trials counted in that were held back, if there are any."""
        released = replace(self, held=()) if self.held else self
        for cost, epochs in self.held:
            released = released.with_trial(True, cost, epochs, self.epoch_cost)
        return released

    def on_another_accelerator(self) -> "Evidence":
        """Return what holds there: epochs, and the epoch cost as a hint."""
        return replace(
            self.released(),
            log_cost=Moments(),
            epoch_cost=None,
            unreached_cost=None,
            earlier_epoch_cost=self.epoch_cost or self.earlier_epoch_cost,
        )

    def on_other_data(self) -> "Evidence":
        """Return what holds once the data has changed: the cost of an epoch, and the trials held back."""
        return Evidence(epoch_cost=self.epoch_cost, earlier_epoch_cost=self.earlier_epoch_cost, held=self.held)


NOISE_DEVIATION = 0.1
"""Prior standard deviation of ln epochs from run to run, about a tenth of the epochs."""
NOISE_WEIGHT = 3.0
"""How many observations that prior is worth."""


def noise_variance(moments: Iterable[Moments]) -> float:
    """Return the variance of a single trial's logarithm, pooled over batch sizes, with a weak prior."""
    seen = list(moments)
    freedom = sum(max(one.count - 1, 0) for one in seen)
    squares = sum(one.sum_squared_deviations for one in seen)
    return (NOISE_WEIGHT * NOISE_DEVIATION**2 + squares) / (NOISE_WEIGHT + freedom)
