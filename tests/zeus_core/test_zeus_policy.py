import math
from dataclasses import replace

import numpy as np
import pytest

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.job import JobSpec, LearningRateRule
from zeus_kfp.zeus_core.learnt import Learnt, Observation, rebuild
from zeus_kfp.zeus_core.policies import ArmPosterior, InFlight, Policy, ZeusPolicy, policy_named
from zeus_kfp.zeus_core.trial import Purpose, Suggestion, TrialState

JOB = JobSpec("job", (8, 16, 32, 64), 32, target_metric=0.9)
FLAT = replace(JOB, num_pruning_rounds=0)
REACHED, NOT_REACHED, FAILED = TrialState.REACHED, TrialState.NOT_REACHED, TrialState.FAILED
EXPLORATION, CONCURRENT, SAMPLING = Purpose.EXPLORATION, Purpose.CONCURRENT, Purpose.SAMPLING

# Size, state and cost of the steps of a whole walk: 16 and 32 survive.
WALK = [
    (32, REACHED, 100.0),
    (16, REACHED, 90.0),
    (8, NOT_REACHED, 180.0),
    (64, NOT_REACHED, 180.0),
    (16, REACHED, 94.0),
    (32, REACHED, 104.0),
]


def told(job: JobSpec, trials: list, purpose: Purpose = EXPLORATION) -> Learnt:
    return rebuild(job, [Observation(size, purpose, state, cost, cost) for size, state, cost in trials])


def asked(job: JobSpec, learnt: Learnt, *in_flight: InFlight, seed: int = 1) -> Suggestion:
    return ZeusPolicy().suggest(job, learnt, in_flight, np.random.default_rng(seed))


@pytest.mark.parametrize(
    ("steps", "size", "why"),
    [
        (0, 32, "exploring from the default batch size 32 (round 1 of 2)"),
        (1, 16, "exploring downwards from 32: 16 is next (round 1 of 2)"),
        (3, 64, "exploring upwards from 32: 64 is next (round 1 of 2)"),
        (4, 16, "exploring from 16, the cheapest of the round before (round 2 of 2)"),
        (5, 32, "exploring upwards from 16: 32 is next (round 2 of 2)"),
    ],
)
def test_the_walk_says_which_size_it_needs_and_why(steps: int, size: int, why: str) -> None:
    suggestion = asked(JOB, told(JOB, WALK[:steps]))
    assert (suggestion.batch_size, suggestion.purpose, suggestion.why) == (size, EXPLORATION, why)


def test_nothing_is_drawn_while_the_walk_lasts() -> None:
    rng = np.random.default_rng(3)
    ZeusPolicy().suggest(JOB, Learnt(), (), rng)
    ZeusPolicy().suggest(JOB, told(JOB, WALK[:1]), [InFlight(16, EXPLORATION)], rng)
    assert rng.bit_generator.state == np.random.default_rng(3).bit_generator.state


def test_after_the_walk_only_its_survivors_are_sampled() -> None:
    learnt, rng = told(JOB, WALK), np.random.default_rng(3)
    suggestions = [ZeusPolicy().suggest(JOB, learnt, (), rng) for _ in range(300)]
    assert {suggestion.purpose for suggestion in suggestions} == {SAMPLING}
    sizes = [suggestion.batch_size for suggestion in suggestions]
    # Both beliefs have a deviation of sqrt(2) and lie 10 apart.
    assert set(sizes) <= {16, 32}
    assert sizes.count(16) >= 290
    assert suggestions[0].why.startswith("lowest of one draw for each of 2 batch sizes: 16, expected to cost 92")


def test_the_same_question_gets_the_same_answer() -> None:
    learnt = told(JOB, WALK)
    assert asked(JOB, learnt, seed=5) == asked(JOB, learnt, seed=5)


@pytest.mark.parametrize(
    ("steps", "best"), [(0, 32), (1, 32), (2, 16)], ids=["default at first", "the only one", "cheapest"]
)
def test_while_a_step_of_the_walk_is_out_the_best_known_size_is_handed_out(steps: int, best: int) -> None:
    suggestion = asked(JOB, told(JOB, WALK[:steps]), InFlight(8, EXPLORATION))
    assert (suggestion.batch_size, suggestion.purpose) == (best, CONCURRENT)
    assert "another trial explores 8" in suggestion.why


def test_a_concurrent_trial_in_flight_does_not_hold_the_walk_up() -> None:
    suggestion = asked(JOB, told(JOB, WALK[:1]), InFlight(32, CONCURRENT))
    assert (suggestion.batch_size, suggestion.purpose) == (16, EXPLORATION)


def test_trials_in_flight_do_not_change_what_is_sampled() -> None:
    learnt = told(JOB, WALK)
    alone = [asked(JOB, learnt, seed=seed) for seed in range(20)]
    assert alone == [asked(JOB, learnt, *[InFlight(16, SAMPLING)] * 3, seed=seed) for seed in range(20)]


def test_without_a_walk_every_size_is_observed_often_enough_first() -> None:
    learnt, handed_out = Learnt(), []
    trials = []
    for seed in range(8):
        size = asked(FLAT, learnt, seed=seed).batch_size
        handed_out.append(size)
        trials.append((size, REACHED, 100.0 + seed))
        learnt = told(FLAT, trials, SAMPLING)
    assert sorted(handed_out) == [8, 8, 16, 16, 32, 32, 64, 64]
    assert "draw" in asked(FLAT, learnt).why


@pytest.mark.parametrize(("cheapest", "beta", "threshold"), [(100.0, 2.0, 200.0), (100.0, math.inf, None)])
def test_the_threshold_is_beta_times_the_cheapest_recurrence(cheapest, beta, threshold) -> None:
    job = replace(JOB, beta_knob=beta)
    assert asked(job, Learnt()).cost_threshold is None
    assert asked(job, told(job, [(32, REACHED, cheapest)])).cost_threshold == threshold


@pytest.mark.parametrize(("rule", "factor"), [("none", 1.0), ("linear", 0.5), ("square_root", math.sqrt(0.5))])
def test_the_learning_rate_follows_the_batch_size_by_the_jobs_rule(rule: str, factor: float) -> None:
    job = replace(JOB, learning_rate_rule=LearningRateRule(rule))
    suggestion = asked(job, told(job, WALK[:1]))
    assert (suggestion.batch_size, suggestion.learning_rate_factor) == (16, factor)


def test_beliefs_during_the_walk() -> None:
    rows = ZeusPolicy().posterior(JOB, told(JOB, WALK[:3]))
    assert rows == (
        ArmPosterior(8, 180.0, None, 1, "ruled out: did not reach the target in round 1"),
        ArmPosterior(16, 90.0, None, 1, "exploring"),
        ArmPosterior(32, 100.0, None, 1, "exploring"),
        ArmPosterior(64, None, None, 0, "untried"),
    )


def test_beliefs_after_the_walk() -> None:
    # 32 fails at once: 8 and 16 are never tried, 64 is all that is left.
    trials = [(32, NOT_REACHED, 100.0), (64, REACHED, 90.0), (64, REACHED, 94.0)]
    rows = ZeusPolicy().posterior(JOB, told(JOB, trials))
    beyond = "ruled out: beyond a size that did not reach the target"
    assert [row.status for row in rows] == [
        beyond,
        beyond,
        "ruled out: did not reach the target in round 1",
        "sampled",
    ]
    assert (rows[3].mean_cost, rows[3].standard_deviation) == (92.0, pytest.approx(math.sqrt(2)))


@pytest.mark.parametrize(
    ("trials", "status"),
    [
        ([(16, TrialState.OOM, None)], "ruled out: out of memory at 16"),
        ([(32, FAILED, None)] * 3, "ruled out: failed 3 times in a row"),
        ([(32, FAILED, None)] * 2, "untried"),
    ],
)
def test_a_belief_says_why_a_size_is_ruled_out(trials: list, status: str) -> None:
    assert ZeusPolicy().posterior(JOB, told(JOB, trials))[2] == ArmPosterior(32, None, None, 0, status)


def test_beliefs_can_be_read_even_when_nothing_is_left() -> None:
    rows = ZeusPolicy().posterior(JOB, told(JOB, [(8, TrialState.OOM, None)]))
    assert {row.status for row in rows} == {"ruled out: out of memory at 8"}


def test_a_policy_is_found_by_its_name() -> None:
    policy: Policy = policy_named("zeus")
    assert policy.name == "zeus"
    with pytest.raises(InvalidValueError, match="policy must be one of bayes, zeus, not 'zues'"):
        policy_named("zues")
