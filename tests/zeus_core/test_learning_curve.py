import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.learning_curve import (
    CONFIDENCE,
    MOST_CURVES,
    MOST_POINTS,
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


@pytest.mark.parametrize("value", [None, "x", [[1, 2]], [[0.5, -1.0, 0.1]], [[0.5, 1.0, -0.1]], [[math.inf, 1, 1]]])
def test_what_is_no_reference_is_refused(value) -> None:
    with pytest.raises(InvalidValueError):
        checked_reference("reference", value)


def test_one_curve_tells_of_its_own_size_with_the_noise_of_two_trials() -> None:
    (milestone,) = reference_of([(32, STEADY)], 32, higher_is_better=True)
    metric, mean, deviation = milestone
    assert (metric, mean) == (0.5, pytest.approx(math.log(2)))
    assert deviation == pytest.approx(math.sqrt(2) * 0.12), "the first tenth is not extrapolated from"


def test_another_size_is_believed_less_the_farther_away_it_is() -> None:
    deviations = [reference_of([(size, STEADY)], 32, higher_is_better=True)[0][2] for size in (32, 16, 64, 8, 2048)]
    assert deviations[1] == deviations[2] == pytest.approx(math.sqrt(2 * 0.12**2 + 0.2**2))
    assert deviations == sorted(deviations)


def test_between_two_sizes_the_nearer_weighs_more() -> None:
    early, late = ((2, 0.5), (10, 0.9)), ((8, 0.5), (10, 0.9))
    means = [
        reference_of([(8, early), (128, late)], size, higher_is_better=True)[0][1] for size in (8, 16, 32, 64, 128)
    ]
    assert means == sorted(means, reverse=True)
    assert means[2] == pytest.approx((math.log(5) + math.log(1.25)) / 2)


def test_only_the_nearest_curves_count() -> None:
    near = [(size, STEADY) for size in (16, 32, 64) for _ in range(3)][:MOST_CURVES]
    far = [(2**20, ((9, 0.5), (10, 0.9)))] * 5
    assert reference_of([*far, *near], 32, higher_is_better=True) == reference_of(near, 32, higher_is_better=True)


def test_nothing_is_told_without_a_curve_or_by_one_of_a_single_epoch() -> None:
    assert reference_of([], 32, higher_is_better=True) == ()
    assert reference_of([(32, ()), (16, ((1, 0.9),))], 32, higher_is_better=True) == ()


@pytest.mark.parametrize(
    ("best", "higher_is_better", "factor"),
    [
        (0.3, True, 2.0),
        (0.5, True, 1.25),
        (0.8, True, 0.0),
        (0.9, False, 1.25),
        (0.4, False, 2.0 * 0),
        (2.0, False, 2.0),
    ],
)
def test_every_milestone_that_is_not_reached_counts(best: float, higher_is_better: bool, factor: float) -> None:
    milestones = ((0.5, math.log(2), 0.0), (0.8, math.log(1.25), 0.0))
    if not higher_is_better:
        milestones = ((1.0, math.log(2), 0.0), (0.8, math.log(1.25), 0.0))
    assert least_epochs(milestones, 10, best, higher_is_better=higher_is_better) == pytest.approx(10 * factor)


def test_doubt_is_to_the_trials_favour() -> None:
    told = least_epochs(((0.5, math.log(4), 0.3),), 10, 0.1, higher_is_better=True)
    assert told == pytest.approx(40 * math.exp(-0.3 * CONFIDENCE))


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
    curves = [(size, tuple((epochs, sign * metric) for epochs, metric in way)) for size in sizes]
    reference = reference_of(curves, 32, higher_is_better=sign > 0)
    for epochs in range(1, way[-1][0]):
        seen = [metric for after, metric in way if after <= epochs]
        best = sign * max(seen, default=0.0)
        assert least_epochs(reference, epochs, best, higher_is_better=sign > 0) < way[-1][0]
