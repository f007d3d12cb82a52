import math
from dataclasses import replace

import numpy as np
import pytest

from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.learnt import Learnt, Observation, memory_limit, observe, rebuild
from zeus_kfp.zeus_core.policies import policy_named
from zeus_kfp.zeus_core.trial import Purpose, TrialState

JOB = JobSpec("job", (8, 16, 32), 16, target_metric=0.9)
OOM = TrialState.OOM


def reached(size: int = 16, cost: float = 100.0, accelerator: str = "A") -> Observation:
    return Observation(size, Purpose.SAMPLING, TrialState.REACHED, cost, cost, num_epochs=10, accelerator=accelerator)


def ended(state: TrialState, size: int, accelerator: str) -> Observation:
    return Observation(size, Purpose.SAMPLING, state, accelerator=accelerator)


@pytest.mark.parametrize(
    ("models", "moved_to", "counted"),
    [
        ("AAAA", "A", 4),
        ("AAB", "A", 3),
        ("AABB", "AB", 1),
        ("AABBB", "AB", 2),
        ("ABABAB", "A", 6),
        ("ABCABC", "A", 6),
        ("AABBAA", "AB", 3),
        ("ABBCCAA", "ABC", 3),
        ("A B", "A", 3),
        ("  AA", "A", 4),
    ],
)
def test_costs_are_forgotten_once_two_trials_in_a_row_ran_on_a_new_accelerator(models, moved_to, counted) -> None:
    learnt = rebuild(JOB, [reached(accelerator=model.strip()) for model in models])
    assert "".join(learnt.accelerators) == moved_to
    assert learnt.arm(16).count == counted
    assert learnt.arm(16).evidence.log_epochs.count == len(models), "epochs are the same on any accelerator"


def test_trials_without_a_cost_move_nothing() -> None:
    failed = Observation(16, Purpose.SAMPLING, TrialState.FAILED, accelerator="B")
    learnt = rebuild(JOB, [reached(accelerator="A"), failed, failed, failed])
    assert (learnt.accelerators, learnt.newcomer, learnt.arm(16).count) == (("A",), "", 1)


def test_the_cheapest_recurrence_and_the_walk_start_anew_where_costs_do() -> None:
    walked = replace(reached(cost=50.0, accelerator="A"), purpose=Purpose.EXPLORATION)
    learnt = rebuild(JOB, [walked, reached(cost=900.0, accelerator="B"), reached(cost=800.0, accelerator="B")])
    assert (learnt.min_recurrence_cost, learnt.best_batch_size) == (800.0, 16)
    assert learnt.arm(16).explorations == () and learnt.arm(16).mean_cost == 800.0
    assert learnt.arm(16).evidence.earlier_epoch_cost == pytest.approx(90.0)
    assert math.isclose(learnt.arm(16).evidence.epoch_cost or 0.0, 80.0)


@pytest.mark.parametrize(
    ("told", "limit"),
    [
        ([reached(accelerator="A"), ended(OOM, 32, "A")], 32),
        ([ended(OOM, 32, "A"), reached(accelerator="A"), reached(accelerator="B")], 32),
        ([ended(OOM, 32, "A"), reached(accelerator="A"), reached(accelerator="B"), reached(accelerator="B")], None),
        ([ended(OOM, 32, "A"), reached(accelerator="B"), reached(accelerator="B")], None),
        ([reached(32, accelerator="A"), ended(OOM, 32, "B")], None),
        ([reached(32, accelerator="A"), ended(OOM, 32, "B"), ended(OOM, 32, "B")], 32),
        ([reached(accelerator="A"), reached(accelerator="B"), ended(OOM, 32, "B"), reached(accelerator="B")], 32),
    ],
    ids=["there", "once elsewhere", "moved", "nothing else known", "fitted before", "twice", "on the new one"],
)
def test_what_did_not_fit_is_forgotten_with_the_costs_and_learnt_anew_on_the_new_accelerator(told, limit) -> None:
    assert memory_limit(rebuild(JOB, told)) == limit


@pytest.mark.parametrize("policy", ["bayes", "zeus"])
@pytest.mark.parametrize(("before", "after"), [(16, 64), (64, 16)], ids=["larger", "smaller"])
def test_a_job_that_moves_to_another_memory_uses_it_to_the_full(policy, before, after) -> None:
    job = JobSpec("job", (8, 16, 32, 64), 16, target_metric=0.9)
    learnt, rng, chosen = Learnt(), np.random.default_rng(0), []
    for trial in range(60):
        model, fits_up_to = ("A", before) if trial < 30 else ("B", after)
        suggested = policy_named(policy).suggest(job, learnt, [], rng)
        size, purpose = suggested.batch_size, suggested.purpose
        cost = 100.0 * math.sqrt(16 / size)
        seen = Observation(size, purpose, TrialState.REACHED, cost, cost, num_epochs=10, accelerator=model)
        if size > fits_up_to:
            seen = Observation(size, purpose, OOM, accelerator=model)
        learnt = observe(job, learnt, seen)
        chosen.append(size)
    assert set(chosen[25:30]) == {before} and set(chosen[-10:]) == {after}
    assert sum(size > after for size in chosen[30:]) <= 3
    assert memory_limit(learnt) == (None if after == 64 else 32)
