from collections import defaultdict
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zeus_kfp.zeus_core.pruning import Exploration, Step, Walk, nearest_below, replay

SIZES = (8, 16, 32, 64, 128)
COSTS = {8: 130.0, 16: 90.0, 32: 100.0, 64: 80.0, 128: 120.0}

Tries = list[int]


def walked(
    reaches: Callable[[int], bool], num_rounds: int = 1, default: int = 32, passed_over: tuple[int, ...] = ()
) -> tuple[Tries, Walk]:
    """Walk to the end; return the sizes tried, in order, and where the walk stands then."""
    tries: Tries = []
    results: dict[int, list[Exploration]] = defaultdict(list)
    while (walk := replay(SIZES, default, num_rounds, results, passed_over)).step:
        size = walk.step.batch_size
        tries.append(size)
        results[size].append(Exploration(COSTS[size], reaches(size)))
    return tries, walk


@pytest.mark.parametrize(
    ("reaching", "tries"),
    [
        ({8, 16, 32, 64, 128}, [32, 16, 8, 64, 128]),
        ({16, 32, 64}, [32, 16, 8, 64, 128]),
        ({32}, [32, 16, 64]),
        ({64, 128}, [32, 64, 128]),
        ({8, 32, 128}, [32, 16, 64]),
    ],
)
def test_a_round_goes_down_then_up_each_until_a_size_fails(reaching: set[int], tries: Tries) -> None:
    tried, walk = walked(reaching.__contains__)
    assert tried == tries
    assert walk.candidates == tuple(sorted(reaching & set(tries)))
    assert set(walk.not_reached) == set(tries) - reaching
    assert not walk.exhausted


def test_the_next_round_starts_at_the_cheapest_that_reached_and_keeps_to_those() -> None:
    tried, walk = walked({16, 32, 64}.__contains__, num_rounds=2)
    assert tried == [32, 16, 8, 64, 128, 64, 32, 16]
    assert walk.candidates == (16, 32, 64)


def test_the_walk_turns_where_a_size_fails_only_in_the_second_round() -> None:
    results = {
        32: [Exploration(100, True), Exploration(100, False)],
        16: [Exploration(90, True)],
        64: [Exploration(80, True), Exploration(80, True)],
        8: [Exploration(1, False)],
        128: [Exploration(1, False)],
    }
    walk = replay(SIZES, 32, 2, results)
    assert walk == Walk(None, (64,), {8: 1, 128: 1, 32: 2})


@pytest.mark.parametrize(
    ("reaching", "tries"),
    [
        ({16}, [32, 64, 16, 8]),
        ({16, 8}, [32, 64, 16, 8]),
        ({8}, [32, 64, 16, 8]),
        ({128}, [32, 64, 16, 8, 128]),
    ],
)
def test_where_the_default_and_the_next_fail_the_others_are_tried(reaching: set[int], tries: Tries) -> None:
    tried, walk = walked(reaching.__contains__)
    assert tried == tries
    assert walk.candidates == tuple(sorted(reaching))
    assert not walk.exhausted


def test_once_a_size_reached_after_all_the_walk_turns_at_the_next_that_fails() -> None:
    tried, walk = walked({32, 8}.__contains__, default=64)
    assert tried == [64, 128, 32, 16]
    assert walk.candidates == (32,)


def test_the_walk_is_exhausted_only_when_every_size_was_tried() -> None:
    tried, walk = walked(lambda size: False)
    assert sorted(tried) == list(SIZES)
    assert walk.exhausted


@pytest.mark.parametrize(("passed_over", "tries"), [((16,), [32, 64, 128]), ((32,), [64, 128]), ((32, 64), [16, 8])])
def test_a_size_passed_over_counts_as_one_that_failed(passed_over: tuple[int, ...], tries: Tries) -> None:
    assert walked(lambda size: True, passed_over=passed_over)[0] == tries


def test_a_result_counts_for_more_than_being_passed_over() -> None:
    walk = replay(SIZES, 32, 1, {32: [Exploration(1.0, True)]}, passed_over=[32])
    assert walk.step == Step(16, 1, 32)


def test_without_rounds_every_size_is_left() -> None:
    assert replay(SIZES, 32, 0, {}) == Walk(None, SIZES)


@pytest.mark.parametrize(("wanted", "size"), [(32, 32), (31, 16), (1000, 128), (1, 8)])
def test_the_nearest_below_is_the_largest_that_is_not_above(wanted: int, size: int) -> None:
    assert nearest_below(SIZES, wanted) == size


@given(st.lists(st.booleans(), min_size=60, max_size=60), st.sampled_from(SIZES), st.integers(0, 4))
@settings(deadline=None)
def test_every_walk_ends_and_asks_each_size_at_most_once_a_round(
    answers: list[bool], default: int, num_rounds: int
) -> None:
    remaining = iter(answers)
    tried, walk = walked(lambda size: next(remaining), num_rounds, default)
    assert all(tried.count(size) <= num_rounds for size in SIZES)
    assert walk.exhausted or walk.candidates


@given(st.permutations(SIZES), st.sampled_from(SIZES))
@settings(deadline=None)
def test_results_in_another_order_leave_the_walk_at_the_same_place(order: list[int], default: int) -> None:
    results = {size: [Exploration(COSTS[size], size != 128)] for size in order}
    in_order = {size: results[size] for size in SIZES}
    assert replay(SIZES, default, 2, results) == replay(SIZES, default, 2, in_order)
