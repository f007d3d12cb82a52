"""How recorded runs came to the target, and when a trial that follows one of them is stopped as hopeless."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from zeus_kfp.zeus_core.learning_curve import LEAST_EPOCHS, Curve, Reference, milestones_ahead
from zeus_kfp.zeus_core.simulation.traces import TrainRow


def is_higher_better(rows: Iterable[TrainRow]) -> bool:
    """Return whether runs take longer to higher metrics."""
    grows = [
        math.copysign(1, late[1] - early[1])
        for run in _runs(rows).values()
        for early, late in pairwise(sorted(run.items()))
        if late[1] != early[1]
    ]
    return sum(grows) >= 0


def recorded_curve(epochs: Mapping[float, float], target_metric: float, *, higher_is_better: bool) -> Curve:
    """Return how a run came as far as it did on its way to the target.

    Args:
        epochs: Epochs to each metric that was recorded; infinity where it was never reached.
        target_metric: The metric to reach.
        higher_is_better: Whether the metric grows as the model gets better.
    """
    sign = 1 if higher_is_better else -1
    best: dict[float, float] = {}
    for metric in sorted(epochs, key=lambda one: sign * one):
        if sign * metric <= sign * target_metric and math.isfinite(epochs[metric]):
            best[epochs[metric]] = metric
    return tuple(best.items())


def curves_of(
    rows: Sequence[TrainRow], target_metric: float, *, higher_is_better: bool
) -> dict[int, tuple[Curve, ...]]:
    """Return, by batch size, the curve of each run that has a row for the target, in the order of these rows."""
    runs = _runs(rows)
    curves: dict[int, list[Curve]] = {}
    for row in rows:
        if row.target_metric == target_metric:
            run = runs[row.batch_size, row.run]
            curve = recorded_curve(run, target_metric, higher_is_better=higher_is_better)
            curves.setdefault(row.batch_size, []).append(curve)
    return {size: tuple(several) for size, several in curves.items()}


def stretched(curve: Curve, factor: float) -> Curve:
    """Return the curve of a run that takes ``factor`` times the epochs, rounded up to whole ones."""
    best = {float(math.ceil(epochs * factor)): metric for epochs, metric in curve}
    return tuple(best.items())


def hopeless_after(
    reference: Reference, curve: Curve, allowed: float, *, higher_is_better: bool
) -> tuple[float, float] | None:
    """Return the epochs after which a trial is stopped as hopeless, and those that it then seems to need at least.

    Args:
        reference: What earlier trials tell of its way to the target.
        curve: How its best metric will grow.
        allowed: Epochs that it may take in all.
        higher_is_better: Whether the metric grows as the model gets better.

    Returns:
        None if it is not stopped before it reaches the target or has taken all that it may.
    """
    worst = -math.inf if higher_is_better else math.inf
    for (since, metric), (until, _) in pairwise([(0.0, worst), *curve, (math.inf, worst)]):
        ahead = milestones_ahead(reference, metric, higher_is_better=higher_is_better)
        if not ahead:
            return None
        after = math.floor(min(milestone.hopeless_after(allowed) for milestone in ahead))
        epochs = max(since, LEAST_EPOCHS, after + 1.0)
        if epochs < min(until, allowed):
            return epochs, max(milestone.least_after(epochs) for milestone in ahead)
    return None


def _runs(rows: Iterable[TrainRow]) -> dict[tuple[int, str], dict[float, float]]:
    runs: dict[tuple[int, str], dict[float, float]] = {}
    for row in rows:
        runs.setdefault((row.batch_size, row.run), {})[row.target_metric] = row.target_epoch
    return runs
