"""Choose the best power limit of a sweep.

With E(p) and T(p) the energy and time that the same work takes at power limit p:

    Energy          argmin E(p)
    Time            argmin T(p)
    ZeusCost        argmin eta * E(p) + (1 - eta) * max_power * T(p)                    [1, eq. 2 and section 4.2]
    MaxSlowdown     the lowest p with T(p) <= factor * T(highest p)

Of limits that are equally good the faster one is chosen, then the higher.

References:
    [1] You, Chung, Chowdhury. "Zeus: Understanding and Optimizing GPU Energy Consumption of DNN Training",
        NSDI 2023.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from zeus_kfp.zeus_core.cost import zeus_cost
from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.profile import Phase, Profile
from zeus_kfp.zeus_core.validation import MAX_ENERGY_J, MAX_TIME_S, number


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """What some fixed work takes at a power limit.

    Attributes:
        power_limit_w: Limit per GPU in W.
        energy_j: Energy in J over all GPUs.
        time_s: Time in s.
    """

    power_limit_w: float
    energy_j: float
    time_s: float

    def __post_init__(self) -> None:
        """Check every value.

        Raises:
            InvalidValueError: If one isn't a number above 0, or more than can be.
        """
        number("power_limit_w", self.power_limit_w, above=0)
        number("energy_j", self.energy_j, above=0, at_most=MAX_ENERGY_J)
        number("time_s", self.time_s, above=0, at_most=MAX_TIME_S)


class Selector(Protocol):
    """Chooses one point of a sweep."""

    def choose(self, sweep: Sequence[SweepPoint]) -> SweepPoint:
        """Return the best point.

        Raises:
            InvalidValueError: If the sweep is empty.
        """
        ...


class Energy:
    """Least energy, whatever the time."""

    def choose(self, sweep: Sequence[SweepPoint]) -> SweepPoint:
        """Return the point of least energy."""
        return min(_checked(sweep), key=lambda point: (point.energy_j, point.time_s, -point.power_limit_w))


class Time:
    """Least time, whatever the energy."""

    def choose(self, sweep: Sequence[SweepPoint]) -> SweepPoint:
        """Return the point of least time."""
        return min(_checked(sweep), key=lambda point: (point.time_s, point.energy_j, -point.power_limit_w))


class ZeusCost:
    """Least cost."""

    def __init__(self, eta_knob: float, max_power_w: float) -> None:
        """Set the trade-off.

        Args:
            eta_knob: Weight of energy, 0 to 1.
            max_power_w: Rated power in W over all GPUs, above 0.

        Raises:
            InvalidValueError: If one is out of its range.
        """
        self.eta_knob = number("eta_knob", eta_knob, at_least=0, at_most=1)
        self.max_power_w = number("max_power_w", max_power_w, above=0)

    def choose(self, sweep: Sequence[SweepPoint]) -> SweepPoint:
        """Return the point of least cost."""
        return min(_checked(sweep), key=lambda point: (self._cost(point), point.time_s, -point.power_limit_w))

    def _cost(self, point: SweepPoint) -> float:
        return zeus_cost(point.energy_j, point.time_s, eta_knob=self.eta_knob, max_power_w=self.max_power_w)


class MaxSlowdown:
    """The lowest limit that is at most some factor slower than the highest."""

    def __init__(self, factor: float) -> None:
        """Set the factor, at least 1.

        Raises:
            InvalidValueError: If it is less.
        """
        self.factor = number("slowdown factor", factor, at_least=1)

    def choose(self, sweep: Sequence[SweepPoint]) -> SweepPoint:
        """Return the point of the lowest limit that is fast enough."""
        longest_s = self.factor * max(_checked(sweep), key=lambda point: point.power_limit_w).time_s
        return min((point for point in sweep if point.time_s <= longest_s), key=lambda point: point.power_limit_w)


def parse_selector(objective: str, *, eta_knob: float, max_power_w: float) -> Selector:
    """Return the selector that an objective names.

    Args:
        objective: "cost", "energy", "time", or "slowdown:" and the largest factor allowed, such as slowdown:1.1.
        eta_knob: Weight of energy in the cost, 0 to 1.
        max_power_w: Rated power in W over all GPUs; only the cost needs it.

    Raises:
        InvalidValueError: If it names none.
    """
    name, _, argument = objective.strip().lower().partition(":")
    if name == "slowdown":
        try:
            return MaxSlowdown(float(argument))
        except ValueError:
            raise InvalidValueError(_ALLOWED.format(objective)) from None
    if argument or name not in ("cost", "energy", "time"):
        raise InvalidValueError(_ALLOWED.format(objective))
    if name == "cost":
        return ZeusCost(eta_knob, max_power_w)
    return Energy() if name == "energy" else Time()


def checked_objective(objective: str) -> str:
    """Return an objective that names a selector.

    Raises:
        InvalidValueError: If it names none.
    """
    parse_selector(objective, eta_knob=0.5, max_power_w=1.0)
    return objective


def sweep_of(rows: Iterable[Profile]) -> list[SweepPoint]:
    """Return a sweep over training rows of one batch size: what one sample takes at each limit; the last row counts."""
    points = {}
    for row in rows:
        if row.phase is Phase.TRAIN and row.power_limit_w and (point := _point(row.power_limit_w, row)):
            points[row.power_limit_w] = point
    return sorted(points.values(), key=lambda point: -point.power_limit_w)


def _point(power_limit_w: float, row: Profile) -> SweepPoint | None:
    """Return what one sample takes; None where a row tells no such thing, or what can't be."""
    if not row.throughput_samples_per_s:
        return None
    try:
        time_s = 1 / row.throughput_samples_per_s
        return SweepPoint(power_limit_w, energy_j=row.average_power_w / row.throughput_samples_per_s, time_s=time_s)
    except InvalidValueError:
        return None


def best_known_limit_w(
    rows: Iterable[Profile],
    *,
    batch_size: int,
    accelerator: str,
    accelerator_count: int,
    eta_knob: float,
    max_power_w: float,
    objective: str = "cost",
) -> float | None:
    """Return the best power limit in W that earlier trials have profiled; None if they compared fewer than two.

    Args:
        rows: Profile rows of a job, oldest first: of several for one limit the last counts.
        batch_size: Samples of the trial to come.
        accelerator: Model of its GPUs.
        accelerator_count: How many of them.
        eta_knob: Weight of energy in the cost, 0 to 1.
        max_power_w: Rated power in W over all GPUs; only the cost needs it.
        objective: What the best limit is, see :func:`parse_selector`.

    Raises:
        InvalidValueError: If an argument is out of its range.
    """
    alike = (batch_size, accelerator, accelerator_count)
    sweep = sweep_of(
        row
        for row in rows
        if (row.batch_size, row.accelerator, row.accelerator_count) == alike and not row.energy_estimated
    )
    selector = parse_selector(objective, eta_knob=eta_knob, max_power_w=max_power_w)
    return selector.choose(sweep).power_limit_w if len(sweep) > 1 else None


_ALLOWED = (
    "power_objective must be cost, energy, time or slowdown:FACTOR with a factor of at least 1, such as "
    "slowdown:1.1; not {!r}"
)


def _checked(sweep: Sequence[SweepPoint]) -> Sequence[SweepPoint]:
    if not sweep:
        raise InvalidValueError("an empty sweep has no best power limit: measure at least one")
    return sweep
