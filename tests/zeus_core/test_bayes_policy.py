import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zeus_kfp.zeus_core.errors import NoBatchSizeLeftError
from zeus_kfp.zeus_core.job import JobSpec, LearningRateRule
from zeus_kfp.zeus_core.learnt import Learnt, Observation, forget_costs, observe, rebuild
from zeus_kfp.zeus_core.policies import InFlight, policy_named
from zeus_kfp.zeus_core.policies.bayes.decision import outlook
from zeus_kfp.zeus_core.policies.bayes.model import cost_belief
from zeus_kfp.zeus_core.trial import Purpose, TrialState

SIZES = (8, 16, 32, 64, 128)
JOB = JobSpec("job", SIZES, 32, target_metric=0.5)
BAYES = policy_named("bayes")
REACHED, NOT_REACHED, OOM, FAILED = TrialState.REACHED, TrialState.NOT_REACHED, TrialState.OOM, TrialState.FAILED


def seen(size: int, state: TrialState, epochs: float | None = None, epoch_cost: float = 10.0) -> Observation:
    cost = None if epochs is None else max(epochs, 1) * epoch_cost
    return Observation(size, Purpose.SAMPLING, state, cost, cost, epochs, epoch_cost if epochs is not None else None)


def suggested(learnt: Learnt, job: JobSpec = JOB, *flying: int):
    in_flight = [InFlight(size, Purpose.SAMPLING) for size in flying]
    return BAYES.suggest(job, learnt, in_flight, np.random.default_rng(0))


def log_cost(learnt: Learnt, job: JobSpec = JOB) -> tuple[np.ndarray, np.ndarray]:
    believed = cost_belief(job, learnt, job.batch_sizes).log_cost
    return believed.mean, np.sqrt(believed.variance)


def test_the_default_comes_first_without_a_threshold() -> None:
    first = suggested(Learnt())
    assert (first.batch_size, first.cost_threshold, first.purpose) == (32, None, Purpose.SAMPLING)
    assert first.why == "nothing is known yet: the default batch size 32 comes first"


def test_trials_at_the_same_time_look_in_different_places() -> None:
    chosen = [suggested(Learnt()).batch_size]
    for _ in range(2):
        chosen.append(suggested(Learnt(), JOB, *chosen).batch_size)
    assert len(set(chosen)) > 1


@pytest.mark.parametrize(("flying", "waits"), [(64, {64, 128}), (16, {16, 8})])
def test_what_lies_beyond_a_trial_in_flight_waits_for_its_result(flying: int, waits: set[int]) -> None:
    learnt = rebuild(JOB, [seen(32, REACHED, 20)])
    believed = cost_belief(JOB, learnt, SIZES)
    promise = outlook(believed, math.inf, [2], 50.0)
    beyond = [SIZES.index(size) for size in waits]
    others = [index for index in range(5) if index not in (2, *beyond)]
    assert promise.choice(others) in beyond
    assert suggested(learnt, JOB, flying, *(SIZES[index] for index in others)).batch_size == 32


def test_what_was_tried_is_known_and_its_neighbours_are_guessed() -> None:
    learnt = rebuild(JOB, [seen(32, REACHED, 20), seen(64, REACHED, 25, 6.0)])
    mean, deviation = log_cost(learnt)
    assert math.exp(mean[2]) == pytest.approx(200, rel=0.05)
    assert math.exp(mean[3]) == pytest.approx(150, rel=0.05)
    assert mean[4] < mean[0]
    assert deviation[2] < deviation[1] < deviation[0]


def test_a_trial_that_was_given_up_raises_what_its_size_and_neighbours_are_thought_to_cost() -> None:
    before = rebuild(JOB, [seen(32, REACHED, 20)])
    after = observe(JOB, before, seen(64, NOT_REACHED, 40))
    assert np.all(log_cost(after)[0][3:] > log_cost(before)[0][3:] + 0.3)


def test_costs_alone_teach_as_much_where_epochs_are_not_known() -> None:
    told = [Observation(size, Purpose.SAMPLING, REACHED, cost, cost) for size, cost in ((32, 200.0), (64, 150.0))]
    mean, _ = log_cost(rebuild(JOB, told))
    assert math.exp(mean[2]) == pytest.approx(200, rel=0.05)
    assert math.exp(mean[3]) == pytest.approx(150, rel=0.05)


def test_on_another_accelerator_epochs_stay_and_costs_are_open() -> None:
    learnt = rebuild(JOB, [seen(size, REACHED, epochs) for size, epochs in ((32, 20), (64, 21), (128, 60))] * 3)
    moved = forget_costs(learnt)
    assert moved.min_recurrence_cost is None and not moved.arm(32).count
    once = observe(JOB, moved, seen(32, REACHED, 20, 99.0))
    mean, deviation = log_cost(once)
    assert math.exp(mean[2]) == pytest.approx(20 * 99, rel=0.05)
    assert deviation[4] < log_cost(rebuild(JOB, [seen(32, REACHED, 20, 99.0)]))[1][4]


def test_a_cheap_size_is_found_and_kept() -> None:
    truth = {8: 900.0, 16: 500.0, 32: 300.0, 64: 200.0, 128: 320.0}
    learnt, chosen = Learnt(), []
    for _ in range(30):
        size = suggested(learnt).batch_size
        chosen.append(size)
        learnt = observe(JOB, learnt, seen(size, REACHED, truth[size] / 10))
    assert chosen[0] == 32 and set(chosen[-20:]) == {64}
    assert len(chosen) - chosen.count(64) <= 6


def test_nothing_is_explored_once_no_recurrence_is_left() -> None:
    ending = replace(JOB, num_recurrences=2)
    learnt = rebuild(ending, [seen(32, REACHED, 20)])
    assert suggested(learnt, ending).batch_size == 32
    assert suggested(learnt).batch_size != 32


def test_a_size_that_never_reaches_is_not_tried_for_ever() -> None:
    learnt, chosen = observe(JOB, Learnt(), seen(32, REACHED, 90)), []
    for _ in range(40):
        size = suggested(learnt).batch_size
        chosen.append(size)
        learnt = observe(JOB, learnt, seen(size, *((REACHED, 90) if size == 32 else (NOT_REACHED, 100))))
    assert chosen[-20:] == [32] * 20


def test_a_trial_that_will_be_given_up_teaches_nothing() -> None:
    believed = cost_belief(JOB, rebuild(JOB, [seen(32, REACHED, 20), seen(64, REACHED, 20)]), SIZES)
    hopeless = replace(believed, trials=believed.trials + 1e12, failures=np.array([0, 0, 0, 0, 1e12]))
    usual, less = (outlook(one, math.inf, [2, 3], 50.0).gain for one in (believed, hopeless))
    assert usual[4] > 0 and less[4] < 1e-6 * usual[4]


def test_while_nothing_reaches_other_sizes_are_tried() -> None:
    learnt, chosen = Learnt(), []
    for _ in range(10):
        size = suggested(learnt).batch_size
        chosen.append(size)
        learnt = observe(JOB, learnt, seen(size, NOT_REACHED, 100))
    assert set(chosen) == set(SIZES)
    assert "nothing has reached the target yet" in suggested(learnt).why


def test_one_lucky_recurrence_does_not_end_all_that_come_after() -> None:
    learnt = rebuild(JOB, [seen(32, REACHED, epochs) for epochs in (20, 21, 19, 20, 4)])
    assert learnt.min_recurrence_cost == 40
    assert suggested(learnt).cost_threshold > 2 * 150


@pytest.mark.parametrize("beta", [1.5, 3.0])
def test_the_threshold_is_beta_times_the_cheapest_recurrence_where_runs_are_alike(beta: float) -> None:
    job = replace(JOB, beta_knob=beta)
    learnt = rebuild(job, [seen(32, REACHED, 20)] * 200)
    assert suggested(learnt, job).cost_threshold == pytest.approx(beta * 200, rel=0.02)
    assert suggested(learnt, replace(job, beta_knob=math.inf)).cost_threshold is None


def test_the_threshold_leaves_room_for_a_run_that_is_as_unlucky_as_runs_usually_are() -> None:
    learnt = rebuild(JOB, [seen(32, REACHED, epochs) for epochs in (16, 25)] * 100)
    assert suggested(learnt).cost_threshold == pytest.approx(JOB.beta_knob * 250, rel=0.05)


def test_sizes_out_of_memory_are_left_out_from_the_first_trial_on() -> None:
    learnt = rebuild(JOB, [seen(32, OOM)])
    assert suggested(learnt).batch_size == 16
    assert [arm.status for arm in BAYES.posterior(JOB, learnt)][2:] == ["ruled out: out of memory at 32"] * 3
    with pytest.raises(NoBatchSizeLeftError, match="smaller batch sizes"):
        suggested(rebuild(JOB, [seen(8, OOM)]))


def test_a_size_that_keeps_failing_is_passed_over() -> None:
    learnt = rebuild(JOB, [seen(32, REACHED, 20), *[seen(64, FAILED)] * 3])
    assert suggested(learnt).batch_size != 64
    assert BAYES.posterior(JOB, learnt)[3].status == "ruled out: failed 3 times in a row"


def test_the_posterior_is_empty_at_first_and_covers_every_size_after_one_trial() -> None:
    assert all(arm.mean_cost is None and arm.status == "untried" for arm in BAYES.posterior(JOB, Learnt()))
    arms = BAYES.posterior(JOB, rebuild(JOB, [seen(32, REACHED, 20)]))
    assert [arm.batch_size for arm in arms] == list(SIZES)
    assert arms[2].mean_cost == pytest.approx(200, rel=0.1)
    assert arms[0].standard_deviation > arms[1].standard_deviation > arms[2].standard_deviation


def test_one_size_alone_is_handed_out_for_ever() -> None:
    job = JobSpec("job", (32,), 32, target_metric=0.5, learning_rate_rule=LearningRateRule.LINEAR)
    learnt = rebuild(job, [seen(32, REACHED, 20), seen(32, NOT_REACHED, 40)])
    assert (suggested(learnt, job).batch_size, suggested(learnt, job).learning_rate_factor) == (32, 1.0)


@pytest.mark.parametrize("sizes", [(32,), (16, 32)])
def test_a_job_that_has_become_dearer_reaches_its_target_again_though_one_size_is_left(sizes) -> None:
    """10 epochs once, 25 since: twice the cheapest recurrence never allows that."""
    job = JobSpec("job", sizes, sizes[-1], target_metric=0.5)
    learnt, reached = rebuild(job, [seen(32, REACHED, 10)]), 0
    for _ in range(20):
        plan = suggested(learnt, job)
        allowed = (plan.cost_threshold or math.inf) / 10
        reached += allowed >= 25
        ended = seen(plan.batch_size, REACHED, 25) if allowed >= 25 else seen(plan.batch_size, NOT_REACHED, allowed)
        learnt = observe(job, learnt, ended)
    assert reached >= 10


def test_what_is_left_after_out_of_memory_is_not_held_to_what_the_lost_size_cost() -> None:
    job = JobSpec("job", (16, 128), 128, target_metric=0.5)
    learnt = replace(rebuild(job, [seen(128, OOM)]), min_recurrence_cost=10.0, best_batch_size=128)
    assert (suggested(learnt, job).batch_size, suggested(learnt, job).cost_threshold) == (16, None)


OBSERVATIONS = st.lists(
    st.builds(
        seen,
        st.sampled_from(SIZES),
        st.sampled_from([REACHED, NOT_REACHED, FAILED]),
        st.integers(1, 100).map(float),
        st.sampled_from([1.0, 3.0, 10.0]),
    ),
    max_size=12,
)


@given(
    observations=OBSERVATIONS,
    scale=st.sampled_from([1e-6, 7.0, 1e9]),
    flying=st.lists(st.sampled_from(SIZES), max_size=3),
)
@settings(max_examples=100, deadline=None)
def test_the_unit_of_cost_changes_nothing(observations, scale, flying) -> None:
    def scaled(one: Observation) -> Observation:
        return replace(
            one,
            cost=one.cost * scale,
            recurrence_cost=one.recurrence_cost * scale,
            epoch_cost=one.epoch_cost * scale,
        )

    one = suggested(rebuild(JOB, observations), JOB, *flying)
    other = suggested(rebuild(JOB, [scaled(one) for one in observations]), JOB, *flying)
    assert one.batch_size == other.batch_size
    if one.cost_threshold is not None:
        assert other.cost_threshold == pytest.approx(one.cost_threshold * scale)


@given(
    sizes=st.lists(st.integers(1, 100_000), min_size=1, max_size=30, unique=True).map(sorted),
    data=st.data(),
    max_epochs=st.sampled_from([1, 30, 10**9]),
)
@settings(max_examples=80, deadline=None)
def test_any_history_gives_a_size_that_fits_and_draws_nothing(sizes, data, max_epochs) -> None:
    job = JobSpec("job", tuple(sizes), data.draw(st.sampled_from(sizes)), target_metric=0.5, max_epochs=max_epochs)
    states = st.sampled_from([REACHED, REACHED, NOT_REACHED, FAILED, OOM])
    learnt = Learnt()
    for _ in range(data.draw(st.integers(0, 15))):
        size, state = data.draw(st.sampled_from(sizes)), data.draw(states)
        cost = data.draw(st.sampled_from([1e-9, 5.0, 6.0, 1e99]))
        epochs = data.draw(st.sampled_from([None, 0.0, 1.0, 50.0]))
        learnt = observe(job, learnt, Observation(size, Purpose.SAMPLING, state, cost, cost, epochs))
    rng = np.random.default_rng(1)
    before = rng.bit_generator.state
    limit = min((size for size, arm in learnt.arms.items() if arm.out_of_memory), default=math.inf)
    if limit <= sizes[0]:
        with pytest.raises(NoBatchSizeLeftError):
            BAYES.suggest(job, learnt, (), rng)
        return
    suggestion = BAYES.suggest(job, learnt, (), rng)
    assert suggestion.batch_size in sizes and suggestion.batch_size < limit
    assert suggestion.cost_threshold is None or 0 < suggestion.cost_threshold < math.inf
    assert rng.bit_generator.state == before
    for arm in BAYES.posterior(job, learnt):
        assert arm.mean_cost is None or (math.isfinite(arm.mean_cost) and math.isfinite(arm.standard_deviation))


def test_a_size_in_flight_for_the_first_time_gets_no_second_trial_even_where_it_is_predicted_to_be_best() -> None:
    learnt = rebuild(JOB, [seen(32, REACHED, 30), seen(64, REACHED, 12)])
    first = suggested(learnt)
    assert (first.batch_size, "predicted to cost least" in first.why) == (128, True)
    second = suggested(learnt, JOB, 128)
    assert (second.batch_size, "known to cost least" in second.why) == (64, True)
    # Once it is known, it may be used as often as it pays.
    assert suggested(observe(JOB, learnt, seen(128, REACHED, 8)), JOB, 128).batch_size == 128


def test_one_unlucky_trial_is_doubted_more_than_many() -> None:
    usual = [seen(32, REACHED, 20)] * 20
    once, often = (rebuild(JOB, [*usual, *[seen(64, REACHED, 30)] * count]) for count in (1, 10))
    (_, after_one), (_, after_ten) = log_cost(once), log_cost(often)
    at = SIZES.index(64)
    # The pooled noise alone would say that one trial is known to it, and ten to a third of it.
    noise = math.sqrt(3 * 0.1**2 / (3 + 19))
    assert after_one[at] > 1.5 * noise and after_ten[at] < noise
