"""How many trials of a job may run at once, by what is known of it."""

from zeus_kfp.zeus_core import JobSpec, TrialState
from zeus_kfp.zeus_core.learnt import Learnt, Observation, forget_costs, observe
from zeus_kfp.zeus_core.pacing import trials_at_once
from zeus_kfp.zeus_core.trial import Purpose

JOB = JobSpec("job", (8, 16, 32), 16, target_metric=0.9)


def after(*states):
    learnt = Learnt()
    for size, state in zip((16, 32, 8) * 3, states, strict=False):
        cost = 100.0 if state in (TrialState.REACHED, TrialState.NOT_REACHED) else None
        seen = Observation(size, Purpose.SAMPLING, state, cost=cost, recurrence_cost=cost, num_epochs=cost and 4)
        learnt = observe(JOB, learnt, seen)
    return learnt


def test_another_for_every_two_results():
    reached = [trials_at_once(after(*[TrialState.REACHED] * count)) for count in range(7)]
    given_up = [trials_at_once(after(*[TrialState.NOT_REACHED] * count)) for count in range(7)]
    assert reached == given_up == [1, 1, 2, 2, 3, 3, 4]


def test_what_tells_nothing_of_cost_is_no_result():
    assert trials_at_once(after(TrialState.FAILED, TrialState.FAILED, TrialState.EXPIRED, TrialState.OOM)) == 1


def test_what_is_known_on_another_accelerator_counts():
    assert trials_at_once(forget_costs(after(*[TrialState.REACHED] * 4))) == 3
