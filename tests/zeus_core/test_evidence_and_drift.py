import json
import math
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zeus_kfp.zeus_core.drift import Result, contradicts
from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.evidence import Evidence, Moments, noise_variance
from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.learnt import Learnt, Observation, observe, rebuild
from zeus_kfp.zeus_core.trial import Purpose, TrialState

JOB = JobSpec("job", (8, 16, 32), 16, target_metric=0.5)
REACHED, NOT_REACHED = TrialState.REACHED, TrialState.NOT_REACHED


def seen(size: int, epochs: float | None, state: TrialState = REACHED, epoch_cost: float = 10.0) -> Observation:
    cost = (epochs or 20) * epoch_cost
    return Observation(size, Purpose.SAMPLING, state, cost, cost, epochs)


STEADY = [seen(16, epochs) for epochs in (20.0, 21.0, 19.0, 20.0, 20.0)]


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=50))
@settings(max_examples=50, deadline=None)
def test_moments_are_the_mean_and_the_sum_of_squared_deviations(values: list[float]) -> None:
    moments = Moments()
    for value in values:
        moments = moments.with_value(value)
    assert moments.count == len(values)
    assert moments.mean == pytest.approx(statistics.fmean(values), abs=1e-9)
    expected = len(values) * statistics.pvariance(values)
    assert moments.sum_squared_deviations == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_noise_is_pooled_over_sizes_and_starts_at_its_prior() -> None:
    assert noise_variance([]) == pytest.approx(0.01)
    assert noise_variance([Moments(101, 3.0, 4.0), Moments(101, 9.0, 4.0)]) == pytest.approx(0.04, rel=0.02)


def test_a_trial_that_reached_leaves_its_logarithms_and_its_epoch_cost() -> None:
    evidence = Evidence().with_trial(True, 200.0, 20.0, 9.0)
    assert evidence.log_epochs == Moments(1, math.log(20))
    assert evidence.log_cost == Moments(1, math.log(200))
    assert (evidence.epoch_cost, evidence.reached_count) == (9.0, 1)
    assert Evidence().with_trial(True, 200.0, 20.0).epoch_cost == 10.0
    assert Evidence().with_trial(True, 200.0).epoch_cost is None


def test_trials_that_were_given_up_leave_their_highest_bounds() -> None:
    evidence = Evidence().with_trial(False, 50.0, 5.0).with_trial(False, 30.0, 3.0).with_trial(False, 80.0)
    assert (evidence.unreached_count, evidence.unreached_cost, evidence.unreached_epochs) == (3, 80.0, 5.0)
    assert evidence.reached_count == 0


@pytest.mark.parametrize(
    "more",
    [[], [seen(16, 60.0)], [seen(16, 60.0), seen(16, None)], [seen(16, 30.0, NOT_REACHED)]],
    ids=["plain", "held", "two held", "given up"],
)
def test_evidence_survives_a_trip_through_json(more: list[Observation]) -> None:
    evidence = rebuild(JOB, [*STEADY, *more]).arm(16).evidence
    assert Evidence.from_values(json.loads(json.dumps(evidence.to_values()))) == evidence


def test_evidence_that_an_earlier_release_kept_is_read() -> None:
    kept = {**Evidence().to_values(), "held": [600.0, None]}
    assert Evidence.from_values(kept).held == ((600.0, None),)
    assert Evidence().to_values()["held"] is None


@pytest.mark.parametrize("epochs", [-1.0, math.nan, math.inf, "3"])
def test_epochs_that_can_not_be_are_refused(epochs) -> None:
    with pytest.raises(InvalidValueError, match="num_epochs"):
        observe(JOB, Learnt(), Observation(8, Purpose.SAMPLING, REACHED, 1.0, 1.0, num_epochs=epochs))


@pytest.mark.parametrize("epoch_cost", [0.0, -1.0, math.nan, 1e101])
def test_an_epoch_cost_that_can_not_be_is_refused(epoch_cost) -> None:
    with pytest.raises(InvalidValueError, match="epoch_cost"):
        observe(JOB, Learnt(), Observation(8, Purpose.SAMPLING, REACHED, 1.0, 1.0, 2.0, epoch_cost))


def test_another_accelerator_leaves_epochs_and_a_hint_of_the_epoch_cost() -> None:
    moved = Evidence().with_trial(True, 200.0, 20.0).with_trial(False, 500.0, 50.0).on_another_accelerator()
    assert (moved.log_epochs.count, moved.log_cost.count, moved.reached_count) == (1, 0, 1)
    assert (moved.epoch_cost, moved.earlier_epoch_cost) == (None, 10.0)
    assert (moved.unreached_cost, moved.unreached_epochs, moved.unreached_count) == (None, 50.0, 1)
    assert moved.on_another_accelerator().earlier_epoch_cost == 10.0


@pytest.mark.parametrize(
    ("later", "counted"),
    [
        ([60.0], (1, 5)),
        ([60.0, 58.0], (1, 5)),
        ([60.0, 20.0, 60.0], (1, 8)),
        ([60.0, 60.0, 20.0, 60.0], (1, 9)),
        ([24.0, 24.0, 24.0], (1, 8)),
        ([60.0, 58.0, 61.0], (0, 3)),
        ([5.0, 5.0, 5.0], (0, 3)),
    ],
)
def test_three_contradictions_in_a_row_forget_the_epochs_of_every_size(
    later: list[float], counted: tuple[int, int]
) -> None:
    learnt = rebuild(JOB, [seen(8, 15.0), *STEADY, *[seen(16, epochs) for epochs in later]])
    assert tuple(learnt.arm(size).evidence.log_epochs.count for size in (8, 16)) == counted
    assert learnt.arm(8).evidence.epoch_cost == 10.0
    assert learnt.arm(8).count == 1


def test_giving_up_far_above_what_was_usual_contradicts_it_but_giving_up_early_does_not() -> None:
    late, early = ([seen(16, epochs, NOT_REACHED)] * 3 for epochs in (40.0, 10.0))
    assert rebuild(JOB, [*STEADY, *late]).arm(16).evidence.reached_count == 0
    assert rebuild(JOB, [*STEADY, *early]).arm(16).evidence.reached_count == 5


def test_costs_alone_can_contradict_too() -> None:
    costs = (200.0, 210.0, 190.0, 200.0, 200.0, 600.0, 620.0, 610.0)
    told = [Observation(16, Purpose.SAMPLING, REACHED, cost, cost) for cost in costs]
    assert rebuild(JOB, told).arm(16).evidence.log_cost.count == 3


def test_too_few_trials_are_never_contradicted() -> None:
    evidence = Evidence()
    for _ in range(4):
        evidence = evidence.with_trial(True, 200.0, 20.0)
    assert not contradicts({16: evidence}, Result(16, True, 9000.0, 900.0))
    assert contradicts({16: evidence.with_trial(True, 200.0, 20.0)}, Result(16, True, 9000.0, 900.0))


def test_contradictions_are_held_back_until_a_later_trial_tells() -> None:
    twice = rebuild(JOB, [*STEADY, seen(16, 60.0), seen(16, 50.0)])
    held, count = twice.arm(16).evidence.held, twice.arm(16).evidence.log_epochs.count
    assert (held, count) == (((600.0, 60.0), (500.0, 50.0)), 5)
    chance = observe(JOB, twice, seen(16, 20.0)).arm(16).evidence
    assert (chance.held, chance.log_epochs.count, chance.log_cost.count) == ((), 8, 8)
