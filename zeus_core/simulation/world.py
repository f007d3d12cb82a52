"""A simulated cluster: it runs trials as the recorded traces say they would go."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from zeus_kfp.zeus_core.cost import zeus_cost
from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.learning_curve import Curve, Reference, curve_of
from zeus_kfp.zeus_core.simulation.curves import hopeless_after, stretched
from zeus_kfp.zeus_core.simulation.scenario import Change, ChangeKind, Scenario
from zeus_kfp.zeus_core.simulation.truth import EpochPower, JobTruth, PricedSize
from zeus_kfp.zeus_core.trial import TrialState

PENALTY = 100.0
"""A trial whose threshold allows no epoch never runs, and counts as this many times the threshold."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a simulated trial went.

    Attributes:
        state: How it ended.
        power_limit_w: The power limit in W that it ran at.
        epochs: Epochs trained, 0 if it never ran.
        energy_j: Energy in J.
        time_s: Time in s.
        cost: Cost in J of that energy and time.
        observed_cost: Cost in J that the policy is told; None where the trial has none.
        epoch_cost: Cost in J of an epoch at the cheapest power limit; None if the trial never got to know it.
        least_epochs: Epochs that it seemed to need at least, where it was stopped as hopeless; else None.
        would_reach: Whether a trial that was stopped as hopeless would have reached the target within its threshold.
        curve: How it reached the target; empty if it did not, or that was not recorded.
    """

    state: TrialState
    power_limit_w: float
    epochs: float
    energy_j: float
    time_s: float
    cost: float
    observed_cost: float | None = None
    epoch_cost: float | None = None
    least_epochs: float | None = None
    would_reach: bool = False
    curve: Curve = ()


class World:
    """Runs trials; remembers which batch sizes had their power limits profiled."""

    def __init__(self, job: JobSpec, truth: JobTruth, scenario: Scenario, rng: np.random.Generator) -> None:
        """Start with nothing profiled."""
        self._job, self._scenario, self._rng = job, scenario, rng
        self._changes = list(scenario.changes)
        self._profiled: frozenset[int] = frozenset()
        self._turn_to(truth)

    def change(self, recurrence: int) -> Change | None:
        """Move on to a recurrence, from 1; return the change that begins with it, if any."""
        if not self._changes or recurrence < self._changes[0].recurrence:
            return None
        change = self._changes.pop(0)
        self._turn_to(change.truth)
        if change.kind is not ChangeKind.DRIFT:
            self._profiled = frozenset()
        return change

    def run(self, batch_size: int, cost_threshold: float | None, reference: Reference = ()) -> Outcome:
        """Run a trial until it reaches the target, is hopeless, or threshold, max_epochs, memory or bad luck end it."""
        size = self._sizes[batch_size]
        if self._scenario.fits_up_to is not None and batch_size > self._scenario.fits_up_to:
            return Outcome(TrialState.OOM, size.epoch.power_limit_w, 0.0, 0.0, 0.0, 0.0)
        first, self._profiled = batch_size not in self._profiled, self._profiled | {batch_size}
        needed, curve = self._needed_epochs(size)
        allowed = float(self._job.max_epochs)
        if cost_threshold is not None:
            allowed = min(cost_threshold // size.epoch_cost, allowed)
        if not allowed:
            penalty = PENALTY * (cost_threshold or 0.0)
            limit_w = size.epoch.power_limit_w
            return Outcome(TrialState.NOT_REACHED, limit_w, 0.0, 0.0, 0.0, 0.0, penalty, size.epoch_cost)
        epochs, state = (needed, TrialState.REACHED) if needed <= allowed else (allowed, TrialState.NOT_REACHED)
        way: dict[str, Any] = {}
        if hopeless := self._hopeless_after(reference, curve, allowed):
            way = {"least_epochs": hopeless[1], "would_reach": state is TrialState.REACHED}
            epochs, state = hopeless[0], TrialState.NOT_REACHED
        elif state is TrialState.REACHED and curve:
            way = {"curve": self._reported(curve)}
        if self._scenario.failure_probability and self._rng.random() < self._scenario.failure_probability:
            epochs, state, way = epochs * self._rng.random(), TrialState.FAILED, {}
        return replace(self._outcome(size, state, epochs, size.first_epoch if first else size.epoch), **way)

    def _turn_to(self, truth: JobTruth) -> None:
        self._max_power_w = truth.max_power_w
        self._sizes = truth.priced(self._job.eta_knob)

    def _needed_epochs(self, size: PricedSize) -> tuple[float, Curve]:
        """Return the epochs to the target of one recorded run, and how it came there."""
        # One draw from the generator whatever the number of runs: the published simulator draws so too.
        run = int(self._rng.integers(len(size.epochs)))
        epochs, curve = size.epochs[run], size.curves[run] if size.curves else ()
        if self._scenario.noise and math.isfinite(epochs):
            factor = math.exp(self._scenario.noise * self._rng.normal())
            return float(math.ceil(epochs * factor)), stretched(curve, factor)
        return epochs, curve

    def _hopeless_after(self, reference: Reference, curve: Curve, allowed: float) -> tuple[float, float] | None:
        if not reference or not curve:
            return None
        return hopeless_after(reference, curve, allowed, higher_is_better=self._job.higher_is_better)

    def _reported(self, curve: Curve) -> Curve:
        return curve_of(curve, self._job.target_metric, higher_is_better=self._job.higher_is_better)

    def _outcome(self, size: PricedSize, state: TrialState, epochs: float, first_epoch: EpochPower) -> Outcome:
        first, rest = min(epochs, 1.0), max(epochs - 1.0, 0.0)
        energy_j = first * first_epoch.energy_j + rest * size.epoch.energy_j
        time_s = first * first_epoch.time_s + rest * size.epoch.time_s
        cost = zeus_cost(energy_j, time_s, eta_knob=self._job.eta_knob, max_power_w=self._max_power_w)
        failed = state is TrialState.FAILED
        return Outcome(
            state,
            size.epoch.power_limit_w,
            epochs,
            energy_j,
            time_s,
            cost,
            observed_cost=None if failed else cost,
            epoch_cost=None if failed else size.epoch_cost,
        )
