"""The picture of what each batch size is believed to cost."""

import dataclasses

import pytest

from zeus_kfp.components.close_recurrence.plots_posterior import posterior_picture
from zeus_kfp.zeus_core.learnt import Observation, rebuild
from zeus_kfp.zeus_core.policies import policy_named
from zeus_kfp.zeus_core.trial import Purpose, TrialState

REACHED, NOT_REACHED = TrialState.REACHED, TrialState.NOT_REACHED
HISTORY = [[(32, REACHED, 9, 1400, Purpose.SAMPLING)], [(64, REACHED, 10, 1000, Purpose.SAMPLING)]]
BAND = "opacity: 0.18"


def believed(build, policy, history=HISTORY):
    """Return a history with what its policy believes of it."""
    data = build(history, policy=policy)
    seen = [
        Observation(t.batch_size, t.purpose, t.state, t.cost, t.cost, num_epochs=t.num_epochs)
        for t in data.trials
        if t.cost is not None
    ]
    learnt = rebuild(data.job.spec, seen)
    return dataclasses.replace(data, arms=policy_named(policy).posterior(data.job.spec, learnt))


def test_a_policy_that_models_batch_sizes_shows_its_curve_with_its_doubt(build):
    picture = posterior_picture(believed(build, "bayes"))
    assert BAND in picture.svg and "the band one standard deviation about it" in picture.caption


def test_one_that_believes_only_what_it_tried_shows_no_curve(build):
    picture = posterior_picture(believed(build, "zeus"))
    assert BAND not in picture.svg and "band" not in picture.caption


@pytest.mark.parametrize(
    "history",
    [
        [[(32, REACHED, 9, 1400, Purpose.SAMPLING)]],
        [[(8, NOT_REACHED, 9, 1400, Purpose.SAMPLING)]],
        [[(32, REACHED, 9, 1e-9, Purpose.SAMPLING), (1024, REACHED, 9, 1e12, Purpose.SAMPLING)]],
    ],
)
def test_any_history_with_a_cost_can_be_drawn(build, history):
    assert posterior_picture(believed(build, "bayes", history)).svg.startswith("<svg")


def test_no_cost_is_no_picture(build):
    assert posterior_picture(believed(build, "bayes", [[(32, TrialState.FAILED, 0, None, Purpose.SAMPLING)]])) is None
