"""Tell early that a trial will take too many epochs, by the learning curves of earlier trials of its job.

Let N be the epochs to the target and e(m) those after which the best metric so far is at least m. From trial to trial,
and between neighbouring batch sizes, N varies by factors, while the share of the epochs e(m) / N hardly varies. So let

    x(m) = ln(N / e(m)) ~ normal(mean, deviation²)

A trial whose best metric is still below m after e epochs has e(m) > e, and thus takes, very likely, at least

    e exp(mean - CONFIDENCE deviation)                              for each m that it has not reached.

x drifts with the batch size: along u = log2(batch size) it is taken for a Brownian motion, whose variance grows by t²
an octave, and each earlier trial for an observation of it, with a variance s² that is pooled over the sizes that have
more than one. Mean and deviation are those of the next observation: from the farthest of the `MOST_CURVES` nearest
trials on either side, precisions p are moved towards the trial's size and added up,

    p  <-  1 / (1 / p + t² octaves)   from one size to the next,      p  <-  p + n / s²   at a size with n trials

so that deviation² = 1 / p + s². Where a curve is known at few points only, e(m) is taken at the next of them, so that x
errs to the low side. What a curve says before `LEAST_SHARE` of its epochs is not extrapolated from.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple, Self

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.validation import MAX_INTEGER, integer, number

Curve = tuple[tuple[float, float], ...]
"""How a trial reached its target: (epochs, best metric so far), both strictly monotone, at most `MOST_POINTS`."""

Reference = tuple[tuple[float, float, float], ...]
"""Milestones on the way to the target: (metric, mean of x, standard deviation of x), the easiest first."""

MOST_POINTS = 16
MOST_CURVES = 8
CONFIDENCE = 2.0
"""Standard deviations; a normal variable lies so far below its mean once in 44 times."""
LEAST_SHARE = 0.2
"""Share of the epochs before which a curve is not extrapolated from: by at most a factor of five."""
LEAST_EPOCHS = 3
"""Epochs that a trial trains before it may be hopeless."""

_DEVIATION, _WEIGHT = 0.12, 3.0
"""s before any trial is seen, and how many trials that is worth."""
_DEVIATION_OF_AN_OCTAVE = 0.2
"""t: what x changed by from one octave to the next in the recorded jobs that it changed most in."""


def curve_of(points: Iterable[tuple[float, float]], target_metric: float, *, higher_is_better: bool) -> Curve:
    """Return the curve of a trial up to the epoch that reached the target, thinned; empty if none did.

    Args:
        points: Epochs trained and the metric after them, in order; an epoch may be missing.
        target_metric: The metric to reach.
        higher_is_better: Whether the metric grows as the model gets better.
    """
    sign = 1 if higher_is_better else -1
    best: list[tuple[float, float]] = []
    for epochs, metric in points:
        if not best or sign * metric > sign * best[-1][1]:
            best.append((epochs, metric))
            if sign * metric >= sign * target_metric:
                return _thinned(best)
    return ()


def checked_curve(name: str, value: Any) -> Curve:
    """Return a curve as it came from outside, as tuples.

    Raises:
        InvalidValueError: If it is no such list, too long, or not strictly monotone.
    """
    if not isinstance(value, list | tuple) or len(value) > MOST_POINTS:
        raise InvalidValueError(f"{name} must be a list of at most {MOST_POINTS} [epochs, metric] pairs, not {value!r}")
    curve = tuple(_checked_point(name, point) for point in value)
    epochs, metrics = [point[0] for point in curve], [point[1] for point in curve]
    rising = sorted(set(metrics))
    if epochs != sorted(set(epochs)) or metrics not in (rising, rising[::-1]):
        raise InvalidValueError(
            f"{name} must hold ascending epochs and ever better metrics, the best so far after each, not {value!r}"
        )
    return curve


def reference_of(curves: Iterable[tuple[int, Curve]], batch_size: int, *, higher_is_better: bool) -> Reference:
    """Return what earlier trials tell of a trial's way to the target; empty if there are none.

    Args:
        curves: Batch size and curve of each.
        batch_size: The trial's.
        higher_is_better: Whether the metric grows as the model gets better.
    """
    nearest = sorted((abs(math.log2(size / batch_size)), size, curve) for size, curve in curves if curve)[:MOST_CURVES]
    if not nearest:
        return ()
    sign, leading = 1 if higher_is_better else -1, nearest[0][-1]
    milestones = [metric for epochs, metric in leading[:-1] if epochs >= LEAST_SHARE * leading[-1][0]]
    return tuple((metric, *_next_factor(nearest, batch_size, metric, sign)) for metric in milestones)


def least_epochs(reference: Reference, epochs: float, best_metric: float, *, higher_is_better: bool) -> float:
    """Return the epochs that a trial very likely takes at least; 0 if nothing tells.

    Args:
        reference: Of its job and batch size.
        epochs: Those that it has trained.
        best_metric: The best metric after them.
        higher_is_better: Whether the metric grows as the model gets better.
    """
    sign = 1 if higher_is_better else -1
    factors = [
        least_factor(mean, deviation) for metric, mean, deviation in reference if sign * best_metric < sign * metric
    ]
    return epochs * max(factors, default=0.0)


def least_factor(mean: float, deviation: float) -> float:
    """Return N / e(m) as low as is likely."""
    return math.exp(mean - CONFIDENCE * deviation)


def checked_reference(name: str, value: Any) -> Reference:
    """Return a reference as it came through JSON, as tuples.

    Raises:
        InvalidValueError: If it is no such list.
    """
    if not isinstance(value, list | tuple) or len(value) > MOST_POINTS:
        raise InvalidValueError(f"{name} must be a list of at most {MOST_POINTS} milestones, not {value!r}")
    return tuple(_checked_milestone(name, one) for one in value)


def _thinned(best: Sequence[tuple[float, float]]) -> Curve:
    """Return at most `MOST_POINTS` of the points, spread over the epochs, the last among them."""
    if len(best) <= MOST_POINTS:
        return tuple(best)
    last = best[-1][0]
    kept = {math.ceil(MOST_POINTS * epochs / last): (epochs, metric) for epochs, metric in best}
    return tuple(kept[part] for part in sorted(kept))


def _next_factor(
    nearest: Sequence[tuple[float, int, Curve]], batch_size: int, metric: float, sign: int
) -> tuple[float, float]:
    """Return mean and standard deviation of x(metric) for the next trial."""
    factors: dict[int, list[float]] = {}
    for _, size, curve in nearest:
        factors.setdefault(size, []).append(_log_factor(curve, metric, sign))
    sizes = {size: _Seen.of(math.log2(size / batch_size), factors[size]) for size in sorted(factors)}
    freedom = len(nearest) - len(sizes)
    noise = (_WEIGHT * _DEVIATION**2 + sum(one.squares for one in sizes.values())) / (_WEIGHT + freedom)
    below = _arriving([one for size, one in sizes.items() if size <= batch_size], noise)
    above = _arriving([one for size, one in reversed(sizes.items()) if size > batch_size], noise)
    precision = below.precision + above.precision
    mean = (below.precision * below.mean + above.precision * above.mean) / precision
    return mean, math.sqrt(1 / precision + noise)


class _Seen(NamedTuple):
    """What the trials of one batch size say of x: octaves away, their number, mean, squared deviations."""

    octaves: float
    trials: int
    mean: float
    squares: float

    @classmethod
    def of(cls, octaves: float, values: Sequence[float]) -> Self:
        mean = sum(values) / len(values)
        return cls(abs(octaves), len(values), mean, sum((value - mean) ** 2 for value in values))


class _Estimate(NamedTuple):
    mean: float = 0.0
    precision: float = 0.0


def _arriving(sizes: Sequence[_Seen], noise: float) -> _Estimate:
    """Return what the trials on one side say of x, the farthest given first."""
    mean, precision = _Estimate()
    for seen, nearer in zip_longest(sizes, sizes[1:]):
        own = seen.trials / noise
        mean = (precision * mean + own * seen.mean) / (precision + own)
        octaves = seen.octaves - (nearer.octaves if nearer else 0.0)
        precision = 1 / (1 / (precision + own) + _DEVIATION_OF_AN_OCTAVE**2 * octaves)
    return _Estimate(mean, precision)


def _log_factor(curve: Curve, metric: float, sign: int) -> float:
    """Return ln of the epochs to the target over those to a metric."""
    last, wanted = curve[-1][0], sign * metric
    for epochs, best in curve:
        if sign * best >= wanted:
            return math.log(last / epochs)
    return 0.0


def _checked_point(name: str, point: Any) -> tuple[float, float]:
    if not isinstance(point, list | tuple) or len(point) != 2:
        raise InvalidValueError(f"{name} must hold [epochs, metric] pairs, not {point!r}")
    epochs, metric = point
    return integer(f"epochs of {name}", epochs, at_least=1, at_most=MAX_INTEGER), number(f"metric of {name}", metric)


def _checked_milestone(name: str, milestone: Any) -> tuple[float, float, float]:
    if not isinstance(milestone, list | tuple) or len(milestone) != 3:
        raise InvalidValueError(f"{name} must hold [metric, mean, deviation] milestones, not {milestone!r}")
    metric, mean, deviation = (number(f"a milestone of {name}", value) for value in milestone)
    return metric, number("its mean", mean, at_least=0, at_most=25), number("its deviation", deviation, at_least=0)
