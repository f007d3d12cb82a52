"""What a trial has cost so far, and whether another epoch would cross its threshold.

    stop before epoch k+1  if  C_k + c_k > threshold                                        [1, section 4.2]

with C_k the cost of k epochs (earlier attempts at the trial included) and c_k the mean cost of this attempt's
epochs, training and evaluation together; where power limits were profiled, the cost of an epoch at the limit chosen,
by its epochs so far or else by its profile. The trial thus stops before it crosses the threshold, not after.

References:
    [1] You, Chung, Chowdhury. "Zeus: Understanding and Optimizing GPU Energy Consumption of DNN Training",
        NSDI 2023.
"""

import math

from zeus_kfp.zeus_core.cost import zeus_cost
from zeus_kfp.zeus_core.training.instrument import Spent
from zeus_kfp.zeus_core.trial import TrialPlan


class Spending:
    """The cost of a trial's epochs."""

    def __init__(self, plan: TrialPlan, meter_max_power_w: float, earlier: Spent) -> None:
        """Start before the first epoch.

        Args:
            plan: The trial's plan, with its threshold and knobs.
            meter_max_power_w: Rated power in W as the meter knows it, used where the plan has none.
            earlier: What earlier attempts at the trial have taken.
        """
        self._plan = plan
        self._max_power_w = plan.max_power_w or meter_max_power_w
        self._earlier = self.cost_of(earlier) or 0.0
        self._costs: list[float | None] = []

    def cost_of(self, spent: Spent) -> float | None:
        """Return the cost in J of what was spent; None if energy, time or a needed rated power is unknown."""
        eta = self._plan.eta_knob
        if not spent.energy_j or spent.time_s <= 0 or (self._max_power_w <= 0 and eta < 1):
            return None
        return zeus_cost(spent.energy_j, spent.time_s, eta_knob=eta, max_power_w=self._max_power_w)

    def add_epoch(self, spent: Spent) -> float | None:
        """Add an epoch and return its cost in J, None if it can't be known."""
        self._costs.append(self.cost_of(spent))
        return self._costs[-1]

    def why_stop(self, predicted: Spent | None = None) -> str:
        """Return why the next epoch must not start, "" if it may.

        Args:
            predicted: What the next epoch will take; None if that isn't known better than by the mean.
        """
        threshold, so_far, following = self._plan.cost_threshold, self.so_far(), self._following(predicted)
        if threshold is None or so_far is None or following is None or so_far + following <= threshold:
            return ""
        return (
            f"early stop: {so_far:.4g} J spent, and another epoch of about {following:.4g} J would cross the "
            f"threshold of {threshold:.4g} J"
        )

    def epochs_left(self, predicted: Spent | None = None) -> float:
        """Return the epochs that the threshold still allows, infinity if it allows any number.

        Args:
            predicted: What the next epoch will take; None if that isn't known better than by the mean.
        """
        threshold, so_far, following = self._plan.cost_threshold, self.so_far(), self._following(predicted)
        if threshold is None or so_far is None or not following:
            return math.inf
        return max(threshold - so_far, 0.0) / following

    def so_far(self) -> float | None:
        """Return the trial's cost in J up to now; an epoch of unknown cost counts as the mean of the others.

        None if no epoch's cost is known.
        """
        mean = self._mean_epoch_cost()
        return None if mean is None else self._earlier + mean * len(self._costs)

    def _following(self, predicted: Spent | None) -> float | None:
        """Return the cost in J of the next epoch."""
        mean = self._mean_epoch_cost()
        return mean if predicted is None else self.cost_of(predicted) or mean

    def _mean_epoch_cost(self) -> float | None:
        known = [cost for cost in self._costs if cost is not None]
        return sum(known) / len(known) if known else None
