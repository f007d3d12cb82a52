"""Tell early that a trial will take too many epochs, by the learning curves of earlier trials of its job.

Let N be the epochs to the target and e(m) those after which the best metric so far is at least m. How the two go
together differs from job to job. Where a slow batch size or run takes longer for everything, N grows with e(m); where
the metric jumps at epochs that a schedule sets, as when the learning rate drops, a late start costs nothing. So it is
learnt, as the elasticity b of a regression over the n nearest trials:

    ln N = a + b (ln e(m) - z) + noise,      z = mean ln e(m),   b ~ normal(1/2, 1/2²) before any trial is seen

With S_zz, S_zy the sums of squares and products of ln e(m) and ln N about their means, and the noise's variance s² from
the squares R that the fit leaves over, pooled with w trials at s0 = 0.12,

    s² = (w s0² + R) / (w + n - 2),      b = (2 + S_zy / s²) / p,   p = 4 + S_zz / s²

A trial whose best metric is still below m after e epochs has e(m) > e. Had it e(m) = exp z, it would take, very likely,

    least = exp(mean ln N - CONFIDENCE sqrt(s² (1 + 1/n) + t² o))

epochs at least, o being the octaves from its batch size to the nearest that is known, and t what ln N may differ by an
octave beyond what e(m) tells; and after e epochs, by the least elasticity that is likely, b - CONFIDENCE / sqrt p,

    least (e / exp z)^elasticity   if e > exp z,      least e / exp z   if not

Both of it err to the low side; so does an elasticity that chance in e(m) hides, and e(m) taken at the next point where
a curve is known at few. What a curve says before `LEAST_SHARE` of its epochs is not extrapolated from, and what fewer
than `LEAST_CURVES` trials say not at all.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.validation import MAX_INTEGER, integer, number

Curve = tuple[tuple[float, float], ...]
"""How a trial reached its target: (epochs, best metric so far), both strictly monotone, at most `MOST_POINTS`."""


class Milestone(NamedTuple):
    """A metric on the way to the target, and how long a trial takes that has not reached it.

    Attributes:
        metric: The metric.
        epochs: When earlier trials reached it, as a geometric mean.
        least_epochs: What a trial very likely takes at least in all that reaches it no earlier.
        elasticity: By what power of its own epochs over theirs this grows for one that reaches it later, 0 to 1.
    """

    metric: float
    epochs: float
    least_epochs: float
    elasticity: float

    def least_after(self, epochs: float) -> float:
        """Return what a trial very likely takes at least that has not reached the metric after some epochs."""
        late = epochs / self.epochs
        return self.least_epochs * (late**self.elasticity if late > 1 else late)

    def hopeless_after(self, allowed: float) -> float:
        """Return after how many epochs a trial without the metric very likely takes more than are allowed."""
        late = allowed / self.least_epochs
        if late <= 1:
            return self.epochs * late
        # With an elasticity next to 0, no epoch is late enough.
        return self.epochs * math.exp(min(math.log(late) / max(self.elasticity, 1e-9), 300.0))


Reference = tuple[Milestone, ...]
"""Milestones on the way to the target, the easiest first; empty where earlier trials tell nothing."""

MOST_POINTS = 16
LEAST_CURVES = 3
"""Trials before which an elasticity can't be told from chance."""
MOST_CURVES = 8
CONFIDENCE = 2.0
"""Standard deviations; a normal variable lies so far below its mean once in 44 times."""
LEAST_SHARE = 0.2
"""Share of the epochs before which a curve is not extrapolated from."""
LEAST_EPOCHS = 3
"""Epochs that a trial trains before it may be hopeless."""

_DEVIATION, _WEIGHT = 0.12, 3.0
"""s0 and w: the noise before any trial is seen, and how many trials that is worth."""
_ELASTICITY, _ELASTICITY_DEVIATION = 0.5, 0.5
"""Before any trial is seen: from 0, a schedule that waits for nobody, to 1, where all takes longer in proportion."""
_DEVIATION_OF_AN_OCTAVE = 0.1
"""t"""


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
    """Return what earlier trials tell of a trial's way to the target; empty if that is nothing.

    Args:
        curves: Batch size and curve of each.
        batch_size: The trial's.
        higher_is_better: Whether the metric grows as the model gets better.
    """
    nearest = sorted((abs(math.log2(size / batch_size)), size, curve) for size, curve in curves if curve)[:MOST_CURVES]
    if len(nearest) < LEAST_CURVES:
        return ()
    octaves, _, leading = nearest[0]
    sign, ways = 1 if higher_is_better else -1, [curve for _, _, curve in nearest]
    metrics = [metric for epochs, metric in leading[:-1] if epochs >= LEAST_SHARE * leading[-1][0]]
    return tuple(_milestone(ways, octaves, metric, sign) for metric in metrics)


def least_epochs(reference: Reference, epochs: float, best_metric: float, *, higher_is_better: bool) -> float:
    """Return the epochs that a trial very likely takes at least; 0 if nothing tells.

    Args:
        reference: Of its job and batch size.
        epochs: Those that it has trained.
        best_metric: The best metric after them.
        higher_is_better: Whether the metric grows as the model gets better.
    """
    ahead = milestones_ahead(reference, best_metric, higher_is_better=higher_is_better)
    return max((milestone.least_after(epochs) for milestone in ahead), default=0.0)


def milestones_ahead(reference: Reference, best_metric: float, *, higher_is_better: bool) -> list[Milestone]:
    """Return the milestones that a trial has not reached yet."""
    sign = 1 if higher_is_better else -1
    return [milestone for milestone in reference if sign * best_metric < sign * milestone.metric]


def checked_reference(name: str, value: Any) -> Reference:
    """Return a reference as it came through JSON.

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


def _milestone(curves: Sequence[Curve], octaves: float, metric: float, sign: int) -> Milestone:
    """Return the milestone at a metric for a trial whose batch size lies some octaves from the nearest of the curves'.

    Args:
        curves: At least `LEAST_CURVES`.
        octaves: 0 or more.
        metric: The metric.
        sign: 1 if it grows as the model gets better, else -1.
    """
    early = [math.log(_epochs_to(curve, metric, sign)) for curve in curves]
    whole = [math.log(curve[-1][0]) for curve in curves]
    n, mean_early, mean_whole = len(curves), sum(early) / len(curves), sum(whole) / len(curves)
    squares = sum((z - mean_early) ** 2 for z in early)
    products = sum((z - mean_early) * (y - mean_whole) for z, y in zip(early, whole, strict=True))
    left = sum((y - mean_whole) ** 2 for y in whole) - (products**2 / squares if squares else 0.0)
    noise = (_WEIGHT * _DEVIATION**2 + max(left, 0.0)) / (_WEIGHT + n - 2)
    precision = _ELASTICITY_DEVIATION**-2 + squares / noise
    elasticity = (_ELASTICITY * _ELASTICITY_DEVIATION**-2 + products / noise) / precision
    doubt = math.sqrt(noise * (1 + 1 / n) + _DEVIATION_OF_AN_OCTAVE**2 * octaves)
    return Milestone(
        metric,
        math.exp(mean_early),
        math.exp(mean_whole - CONFIDENCE * doubt),
        min(max(elasticity - CONFIDENCE / math.sqrt(precision), 0.0), 1.0),
    )


def _epochs_to(curve: Curve, metric: float, sign: int) -> float:
    """Return the epochs after which a curve is known to have come to a metric, all of them if it is not."""
    at = bisect_left(curve, sign * metric, key=lambda point: sign * point[1])
    return curve[min(at, len(curve) - 1)][0]


def _checked_point(name: str, point: Any) -> tuple[float, float]:
    if not isinstance(point, list | tuple) or len(point) != 2:
        raise InvalidValueError(f"{name} must hold [epochs, metric] pairs, not {point!r}")
    epochs, metric = point
    return integer(f"epochs of {name}", epochs, at_least=1, at_most=MAX_INTEGER), number(f"metric of {name}", metric)


def _checked_milestone(name: str, milestone: Any) -> Milestone:
    if not isinstance(milestone, list | tuple) or len(milestone) != len(Milestone._fields):
        raise InvalidValueError(f"{name} must hold [{', '.join(Milestone._fields)}] milestones, not {milestone!r}")
    metric, *several = (number(f"a milestone of {name}", value) for value in milestone)
    epochs, least, elasticity = several
    return Milestone(
        metric,
        number(f"epochs of {name}", epochs, above=0),
        number(f"least_epochs of {name}", least, above=0),
        number(f"elasticity of {name}", elasticity, at_least=0, at_most=1),
    )
