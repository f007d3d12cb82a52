"""The pruning walk that comes before Thompson sampling, replayed from its results.

A round starts at the default batch size and goes down while trials reach the target; at the first that does not
it turns and goes up from the next larger size, again until the first that does not. The sizes that reached are
the candidates of the next round, which starts at the cheapest of them [1, section 4.3]. After the last round the
survivors go into the sampling stage.

The walk keeps no state: it is replayed from what each size's trials gave, the k-th result of a size being that
of round k. So it survives any crash, and a result that comes late or twice can't put it out of step.

It differs from the published walk on purpose in this: where neither the default nor the next larger size reached
the target, the published walk ends with nothing left, for ever. Ours goes on to the smaller sizes, downwards,
then to the larger ones, upwards, until one reaches; only when none of them did is it exhausted. A size that keeps
failing by itself is passed over like one that did not reach.

References:
    [1] You, Chung, Chowdhury. "Zeus: Understanding and Optimizing GPU Energy Consumption of DNN Training",
        NSDI 2023.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Exploration:
    """One result of the pruning walk: its cost in J and whether the target was reached."""

    cost: float
    reached: bool


@dataclass(frozen=True, slots=True)
class Step:
    """The trial that the walk needs next.

    Attributes:
        batch_size: Samples.
        round_number: The round, from 1.
        start: The batch size at which that round starts.
    """

    batch_size: int
    round_number: int
    start: int


@dataclass(frozen=True, slots=True)
class Walk:
    """Where the walk stands.

    Attributes:
        step: What it needs next; None if it is over or exhausted.
        candidates: Sizes of the round it is in, ascending; the survivors once it is over.
        not_reached: Sizes that it dropped since they did not reach the target, with the round.
        exhausted: Whether a round ended in which no size reached the target.
    """

    step: Step | None
    candidates: tuple[int, ...]
    not_reached: Mapping[int, int] = field(default_factory=dict)
    exhausted: bool = False


def replay(
    sizes: Sequence[int],
    default: int,
    num_rounds: int,
    results: Mapping[int, Sequence[Exploration]],
    passed_over: Collection[int] = (),
) -> Walk:
    """Return where the walk stands after ``results``.

    Args:
        sizes: Batch sizes that may be used, ascending, at least one.
        default: Where the first round starts; if it may not be used, the largest of ``sizes`` below it.
        num_rounds: Rounds to walk, 0 or more.
        results: Results of the walk by batch size, each in order; a size without any may be absent.
        passed_over: Sizes that count as not having reached the target until they have a result.
    """
    candidates, start = tuple(sizes), nearest_below(sizes, default)
    not_reached: dict[int, int] = {}
    for index in range(num_rounds):
        one = _Round(index, results, passed_over, not_reached)
        pending = one.go(candidates, start)
        if pending is not None:
            return Walk(Step(pending, index + 1, start), candidates, not_reached)
        if not one.costs:
            return Walk(None, candidates, not_reached, exhausted=True)
        start = min(one.costs, key=one.costs.__getitem__)
        candidates = tuple(sorted(one.costs))
    return Walk(None, candidates, not_reached)


def nearest_below(sizes: Sequence[int], wanted: int) -> int:
    """Return the largest of the ascending ``sizes`` that is not above ``wanted``, or else the smallest."""
    if wanted in sizes:
        return wanted
    return max((size for size in sizes if size <= wanted), default=sizes[0])


@dataclass(slots=True)
class _Round:
    """A round while it is replayed; ``costs`` are those of the sizes that reached, in the order tried."""

    index: int
    results: Mapping[int, Sequence[Exploration]]
    passed_over: Collection[int]
    not_reached: dict[int, int]
    costs: dict[int, float] = field(default_factory=dict)

    def go(self, candidates: Sequence[int], start: int) -> int | None:
        """Return the size whose result is needed next; None once the round has ended."""
        position = candidates.index(start)
        down, up = candidates[position::-1], candidates[position + 1 :]
        for leg in (down, up):
            pending = self._follow(leg, turns_at_once=True)
            if pending is not None:
                return pending
        for leg in (down, up):
            pending = None if self.costs else self._follow(leg, turns_at_once=False)
            if pending is not None:
                return pending
        return None

    def _follow(self, leg: Sequence[int], *, turns_at_once: bool) -> int | None:
        """Go along a leg, and return the size whose result is needed next, if any.

        A leg ends at the first size that did not reach the target; one that does not turn at once only does so
        after some size has reached it.
        """
        index = self.index
        for size in leg:
            have = self.results.get(size, ())
            if index < len(have):
                if have[index].reached:
                    self.costs[size] = have[index].cost
                    continue
            elif size not in self.passed_over:
                return size
            self.not_reached[size] = index + 1
            if turns_at_once or self.costs:
                return None
        return None
