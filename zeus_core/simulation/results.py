"""What a simulation found, and the two it is measured against: the oracle and never optimising.

The oracle knows the batch size and power limit that are cheapest on average, and uses them from the first
recurrence on. The default is the user's batch size at its cheapest power limit, from the first recurrence on.
Regret is what was spent above the oracle's expected cost, as a share of that cost.
"""

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from zeus_kfp.zeus_core.simulation.world import Outcome
from zeus_kfp.zeus_core.trial import Purpose, TrialState


@dataclass(frozen=True, slots=True)
class SimulatedTrial:
    """One trial of a replay: which recurrence it was in (from 1), what was suggested, how it went."""

    recurrence: int
    batch_size: int
    purpose: Purpose
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Replay:
    """A job's recurrences under one policy and seed.

    Attributes:
        policy: Its name.
        seed: The seed.
        recurrences: How many recurrences.
        trials: All trials, in the order in which they ended.
        end_s: When the last of them ended, in s from the start of the first.
    """

    policy: str
    seed: int
    recurrences: int
    trials: tuple[SimulatedTrial, ...]
    end_s: float

    @property
    def cost(self) -> float:
        """Cost in J of all trials."""
        return math.fsum(trial.outcome.cost for trial in self.trials)

    @property
    def energy_j(self) -> float:
        """Energy in J of all trials."""
        return math.fsum(trial.outcome.energy_j for trial in self.trials)

    @property
    def time_s(self) -> float:
        """Time in s of all trials."""
        return math.fsum(trial.outcome.time_s for trial in self.trials)

    @property
    def unreached(self) -> int:
        """Recurrences that never reached the target."""
        reached = {trial.recurrence for trial in self.trials if trial.outcome.state is TrialState.REACHED}
        return self.recurrences - len(reached)

    def recurrence_costs(self) -> list[float]:
        """Return the cost in J of every recurrence, in their order."""
        costs = [0.0] * self.recurrences
        for trial in self.trials:
            costs[trial.recurrence - 1] += trial.outcome.cost
        return costs


@dataclass(frozen=True, slots=True)
class Yardstick:
    """The expected cost in J of every recurrence for a fixed choice of batch size; infinity where it never ends."""

    recurrence_costs: tuple[float, ...]

    @property
    def cost(self) -> float:
        """Cost in J of all recurrences."""
        return math.fsum(self.recurrence_costs)


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and sample standard deviation over seeds; the latter is 0 for one seed."""

    mean: float
    standard_deviation: float


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """What a policy's replays came to, over seeds.

    Attributes:
        policy: Its name.
        cost: Cumulative cost in J.
        energy_j: Energy in J.
        time_s: Time in s.
        trials: Trials.
        regret: Cost above the oracle's, as a share of the oracle's.
        above_default: Cost above the default's, as a share of the default's.
        unreached: Mean number of recurrences that never reached the target.
        regret_curve: Mean regret after each recurrence, as a share of the oracle's cost of all recurrences.
    """

    policy: str
    cost: Spread
    energy_j: Spread
    time_s: Spread
    trials: Spread
    regret: Spread
    above_default: Spread
    unreached: float
    regret_curve: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Simulation:
    """A simulated job: the yardsticks, the replays of every policy, and what they came to."""

    oracle: Yardstick
    default: Yardstick
    replays: tuple[Replay, ...]
    results: tuple[PolicyResult, ...]


def summarise(replays: tuple[Replay, ...], oracle: Yardstick, default: Yardstick) -> PolicyResult:
    """Return what the replays of one policy came to.

    Args:
        replays: One for each seed, at least one, of the same policy and number of recurrences.
        oracle: Expected costs of the best fixed choice.
        default: Expected costs of never optimising.
    """

    def spread(of: Callable[[Replay], float]) -> Spread:
        values = [of(one) for one in replays]
        return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0)

    return PolicyResult(
        policy=replays[0].policy,
        cost=spread(lambda one: one.cost),
        energy_j=spread(lambda one: one.energy_j),
        time_s=spread(lambda one: one.time_s),
        trials=spread(lambda one: len(one.trials)),
        regret=spread(lambda one: one.cost / oracle.cost - 1),
        above_default=spread(lambda one: one.cost / default.cost - 1),
        unreached=spread(lambda one: one.unreached).mean,
        regret_curve=_regret_curve(replays, oracle),
    )


def _regret_curve(replays: tuple[Replay, ...], oracle: Yardstick) -> tuple[float, ...]:
    means = [statistics.fmean(costs) for costs in zip(*(one.recurrence_costs() for one in replays), strict=True)]
    curve, regret = [], 0.0
    for mean, best in zip(means, oracle.recurrence_costs, strict=True):
        regret += mean - best
        curve.append(regret / oracle.cost)
    return tuple(curve)
