import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.learning_curve import (
    CONFIDENCE,
    LEAST_CURVES,
    MOST_CURVES,
    MOST_POINTS,
    Milestone,
    checked_curve,
    checked_reference,
    curve_of,
    least_epochs,
    reference_of,
)

STEADY = ((1, 0.1), (5, 0.5), (10, 0.9))


@pytest.mark.parametrize(
    ("metrics", "higher_is_better", "curve"),
    [
        ([0.2, 0.5, 0.9, 0.99], True, ((1, 0.2), (2, 0.5), (3, 0.9))),
        ([0.5, 0.2, 0.4, 0.7, 0.9], True, ((1, 0.5), (4, 0.7), (5, 0.9))),
        ([3.0, 2.0, 2.5, 0.9], False, ((1, 3.0), (2, 2.0), (4, 0.9))),
        ([0.95], True, ((1, 0.95),)),
        ([0.1, 0.2], True, ()),
        ([], True, ()),
    ],
)
def test_a_curve_is_the_best_so_far_up_to_the_target(metrics, higher_is_better: bool, curve) -> None:
    assert curve_of(enumerate(metrics, 1), 0.9, higher_is_better=higher_is_better) == curve


@given(
    st.lists(st.floats(0, 0.89), max_size=300),
    st.sampled_from([1, 3]),
)
def test_a_long_curve_is_thinned_and_kept_as_it_is_by_json(metrics: list[float], every: int) -> None:
    points = [(every * count, metric) for count, metric in enumerate([*metrics, 0.9], 1)]
    curve = curve_of(points, 0.9, higher_is_better=True)
    assert curve[-1] == points[-1] and set(curve) <= set(points) and len(curve) <= MOST_POINTS
    assert checked_curve("curve", json.loads(json.dumps(curve))) == curve


@pytest.mark.parametrize(
    "value",
    [
        None,
        "[[1, 0.5]]",
        {"1": 0.5},
        [[1]],
        [1, 2],
        [[0, 0.5]],
        [[1.5, 0.5]],
        [[True, 0.5]],
        [[1, math.nan]],
        [[1, "0.5"]],
        [[2, 0.5], [1, 0.6]],
        [[1, 0.5], [1, 0.6]],
        [[1, 0.5], [2, 0.5]],
        [[1, 0.5], [2, 0.6], [3, 0.4]],
        [[count, float(count)] for count in range(1, MOST_POINTS + 2)],
        [[2**31, 0.5]],
    ],
    ids=str,
)
def test_what_is_no_curve_is_refused(value) -> None:
    with pytest.raises(InvalidValueError, match="curve"):
        checked_curve("curve", value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        "x",
        [[1, 2]],
        [[0.5, 1.1, 0.1]],
        [[math.nan, 5, 9, 0.5]],
        [[0.5, 0, 9, 0.5]],
        [[0.5, 5, -9, 0.5]],
        [[0.5, 5, math.inf, 0.5]],
        [[0.5, 5, 9, -0.1]],
        [[0.5, 5, 9, 1.1]],
        [[0.5, 5, 9, 0.5]] * (MOST_POINTS + 1),
    ],
    ids=str,
)
def test_what_is_no_reference_is_refused(value) -> None:
    with pytest.raises(InvalidValueError):
        checked_reference("reference", value)


def milestone_of(*ways: tuple[float, float], size: int = 32, seen: int = 32) -> Milestone:
    """Return the only milestone of trials at one size that came half way and to the target after so many epochs."""
    curves = [(seen, ((half, 0.5), (whole, 0.9))) for half, whole in ways]
    (milestone,) = reference_of(curves, size, higher_is_better=True)
    return milestone


def test_trials_that_agree_tell_what_one_like_them_takes_and_nothing_of_a_slower_one() -> None:
    milestone = milestone_of(*[(5, 10)] * 3)
    assert (milestone.metric, milestone.epochs) == (0.5, pytest.approx(5))
    noise = 0.12 * math.sqrt(3 / 4 * (1 + 1 / 3))
    assert milestone.least_epochs == pytest.approx(10 * math.exp(-CONFIDENCE * noise))
    assert milestone.elasticity == 0


@pytest.mark.parametrize(
    ("ways", "least", "most"),
    [
        ([(5, 10), (10, 20), (20, 40), (40, 80)], 0.8, 1.0),
        ([(8, 31), (12, 31), (20, 31), (30, 31)], 0.0, 0.05),
        ([(5, 10), (10, 20), (11, 21)], 0.3, 0.7),
        ([(10, 40), (12, 20), (20, 25), (24, 60)], 0.0, 0.1),
        ([(20, 80), (21, 40), (22, 30)], 0.0, 0.1),
        ([(2, 10), (3, 40), (4, 90)], 0.5, 1.0),
    ],
    ids=["in proportion", "on schedule", "little seen", "all over the place", "the other way round", "ever slower"],
)
def test_how_much_a_late_start_costs_is_learnt(ways, least: float, most: float) -> None:
    assert least <= milestone_of(*ways).elasticity <= most


def test_a_size_is_told_of_less_the_farther_away_it_is() -> None:
    ways = [(5, 10), (10, 20), (20, 40)]
    told = [milestone_of(*ways, size=size).least_epochs for size in (32, 16, 64, 8, 2048)]
    assert told[1] == told[2] < told[0] and told == sorted(told, reverse=True)


def test_only_the_nearest_curves_count() -> None:
    near = [(size, STEADY) for size in (16, 32, 64) for _ in range(3)][:MOST_CURVES]
    far = [(2**20, ((9, 0.5), (10, 0.9)))] * 5
    assert reference_of([*far, *near], 32, higher_is_better=True) == reference_of(near, 32, higher_is_better=True)


def test_the_first_fifth_of_a_curve_is_no_milestone() -> None:
    reference = reference_of([(32, STEADY)] * LEAST_CURVES, 32, higher_is_better=True)
    assert [milestone.metric for milestone in reference] == [0.5]


@pytest.mark.parametrize("curves", [[], [STEADY] * (LEAST_CURVES - 1), [STEADY, STEADY, ()], [((1, 0.9),)] * 3])
def test_nothing_is_told_by_too_few_curves_or_by_such_of_a_single_epoch(curves) -> None:
    assert reference_of([(32, curve) for curve in curves], 32, higher_is_better=True) == ()


@pytest.mark.parametrize(
    ("best", "higher_is_better", "least"),
    [(0.3, True, 20.0), (0.5, True, 12.5), (0.8, True, 0.0), (0.9, False, 12.5), (0.8, False, 0.0), (2.0, False, 20.0)],
)
def test_every_milestone_that_is_not_reached_counts(best: float, higher_is_better: bool, least: float) -> None:
    first = 0.5 if higher_is_better else 1.0
    reference = (Milestone(first, 10.0, 20.0, 0.5), Milestone(0.8, 10.0, 12.5, 0.5))
    assert least_epochs(reference, 10, best, higher_is_better=higher_is_better) == pytest.approx(least)


@pytest.mark.parametrize(
    ("elasticity", "epochs", "least"),
    [(1.0, 20.0, 60.0), (0.5, 40.0, 60.0), (0.0, 1e6, 30.0), (0.5, 5.0, 15.0), (0.0, 5.0, 15.0), (1.0, 10.0, 30.0)],
)
def test_a_late_trial_takes_longer_by_the_elasticity_and_an_early_one_is_not_judged(elasticity, epochs, least) -> None:
    assert Milestone(0.5, 10.0, 30.0, elasticity).least_after(epochs) == pytest.approx(least)


@given(st.floats(1, 100), st.floats(1, 1e4), st.floats(0, 1), st.floats(1, 1e6))
def test_when_a_trial_becomes_hopeless_is_the_inverse_of_what_it_takes(epochs, least, elasticity, allowed) -> None:
    milestone = Milestone(0.5, epochs, least, elasticity)
    after = milestone.hopeless_after(allowed)
    assert milestone.least_after(after * 1.001) >= allowed or after > 1e12
    assert milestone.least_after(after * 0.999) <= allowed


@given(
    curves=st.lists(
        st.lists(st.floats(0.01, 0.89), min_size=1, max_size=40, unique=True).map(
            lambda metrics: curve_of(enumerate([*metrics, 0.9], 1), 0.9, higher_is_better=True)
        ),
        min_size=1,
        max_size=6,
    ),
    sizes=st.lists(st.sampled_from([8, 16, 64]), min_size=6, max_size=6),
    sign=st.sampled_from([1, -1]),
)
def test_a_trial_that_goes_as_the_only_ones_before_is_never_thought_to_take_longer(curves, sizes, sign) -> None:
    way = curves[0]
    same = [(size, tuple((epochs, sign * metric) for epochs, metric in way)) for size in sizes]
    reference = reference_of(same, 32, higher_is_better=sign > 0)
    for epochs in range(1, way[-1][0]):
        seen = [metric for after, metric in way if after <= epochs]
        best = sign * max(seen, default=0.0)
        assert least_epochs(reference, epochs, best, higher_is_better=sign > 0) < way[-1][0]
