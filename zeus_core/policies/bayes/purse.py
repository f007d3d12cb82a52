"""What exploring may cost: never much more than the user's own batch size would have.

A job that is left alone pays ``usual`` a recurrence, what its default batch size b0 is expected to cost. What was spent
above that at the n_b trials of each other size b that reached the target, and at the u_b trials given up, is

    spent = sum over b != b0 of n_b (c_b - usual)  +  sum over b of u_b a_b

with c_b the geometric mean of their costs and a_b the most that one was given up at. A size that is expected to cost
more than the default, and is not the cheapest, is tried only while

    spent + now_b - usual <= max(PURSE, SHARE n) usual

after n trials that reached the target, as in conservative bandits [1]: savings fill the purse again, so that it binds
only where the default is hard to beat; and it grows, so that a size which a few dear trials have put out of reach is
not so for ever. The trials in flight count as they are expected to end.

Nor is such a size tried while it lies further than an octave, or the next size, beyond all that were tried: the belief
is trusted that far away where it promises savings, not where it asks for a sacrifice.

References:
    [1] Wu, Shariff, Lattimore, Szepesvari, "Conservative Bandits", ICML 2016.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from zeus_kfp.zeus_core.evidence import Evidence
from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.learnt import Learnt
from zeus_kfp.zeus_core.policies.bayes.gaussian import Array

PURSE = 1.0
"""Recurrences at the default batch size that exploring may cost in all.

To be at most 15 % above the default after 10 recurrences, and 3 % after 50, are both one and a half of its recurrences.
One of them is spent on purpose; half is left for trials that turn out dearer than expected.
"""
SHARE = 0.02
"""Share of the recurrences whose cost at the default it may be, where that is more: after the first fifty."""


def beyond_purse(
    job: JobSpec, learnt: Learnt, sizes: Sequence[int], flying: Sequence[int], now: Array, usual: float, most: float
) -> list[int]:
    """Return the positions of the sizes that exploring can't afford at present.

    Args:
        job: Gives the default batch size.
        learnt: What its finished trials taught.
        sizes: Batch sizes that may be used, n of them.
        flying: Positions of those whose trials are in flight.
        now: Expected cost in J of a recurrence at each size, shape (n,).
        usual: Expected cost in J of a recurrence at the default batch size.
        most: Cost in J at which a trial is given up at present.
    """
    evidence = [learnt.arm(size).evidence for size in sizes]
    spent = sum(
        _spent(one, usual, most, size == job.default_batch_size) for one, size in zip(evidence, sizes, strict=True)
    )
    spent += sum(max(float(now[index]) - usual, 0.0) for index in flying)
    may_be_spent = max(PURSE, SHARE * sum(one.log_cost.count for one in evidence)) * usual
    above = now - usual
    is_refused = (spent + above > may_be_spent) | _is_leap(job, sizes, evidence, flying)
    return [int(index) for index in np.flatnonzero((above > 0) & is_refused)]


def _is_leap(
    job: JobSpec, sizes: Sequence[int], evidence: Sequence[Evidence], flying: Sequence[int]
) -> NDArray[np.bool_]:
    """Return which sizes, n of them, lie more than an octave and more than one size beyond those tried."""
    tried = [index for index, one in enumerate(evidence) if one.reached_count or one.unreached_count]
    known = [*tried, *flying] or [sizes.index(job.default_batch_size)]
    first, last = min(known), max(known)
    position, size = np.arange(len(sizes)), np.array(sizes)
    is_below = (position < first - 1) & (size < sizes[first] / 2)
    return is_below | ((position > last + 1) & (size > sizes[last] * 2))


def _spent(evidence: Evidence, usual: float, most: float, is_default: bool) -> float:
    """Return what the trials of one size have cost in J above the default."""
    costs = evidence.log_cost
    # A trial whose threshold allowed no epoch may be told with a penalty far above anything that it spent.
    given_up = evidence.unreached_count * min(evidence.unreached_cost or 0.0, most)
    return given_up if is_default or not costs.count else given_up + costs.count * (math.exp(costs.mean) - usual)
