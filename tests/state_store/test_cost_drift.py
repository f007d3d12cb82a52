"""Costs that no longer fit what was believed are signalled as drift when they are reported."""

import dataclasses

import pytest

from tests.state_store.driving import NOT_REACHED
from zeus_kfp.zeus_core import JobSpec, TrialState

SPEC = JobSpec("job", (16,), 16, target_metric=0.9, period_s=7 * 86_400.0, eta_knob=1.0)
STEADY = (100.0, 104.0, 96.0, 101.0, 99.0)


def spend(store, clock, *energies_j, **outcome):
    train(store, clock, *({"energy_j": energy_j} | outcome for energy_j in energies_j))


def train(store, clock, *outcomes):
    """Report trials of one recurrence each, a week apart, that reached the target but for what is given."""
    for given in outcomes:
        clock.move(days=7)
        run = f"run-{clock.now:%Y-%m-%d}"
        assert store.open_recurrence(SPEC, run).granted
        store.suggest("job", run, 1)
        usual = {"state": TrialState.REACHED, "accelerator": "A40", "time_s": 1.0}
        outcome = dataclasses.replace(NOT_REACHED, **usual | given)
        for _ in range(2):
            store.report("job", run, 1, outcome)
        store.close_recurrence("job", run)


def test_costs_that_rose_start_the_next_recurrence_before_its_period(store, clock):
    spend(store, clock, *STEADY, 150.0, 151.0)
    assert store.drifts("job") == ()
    spend(store, clock, 149.0)
    (drift,) = store.drifts("job")
    assert (drift.reason, drift.recurrence_number) == ("the cost at batch size 16 has risen", None)
    assert drift.value == pytest.approx(1.5)
    clock.move(hours=1)
    opened = store.open_recurrence(SPEC, "early")
    assert opened.granted and "the cost at batch size 16 has risen" in opened.why


def test_the_same_drift_is_signalled_once_and_later_costs_are_compared_with_the_new_level(store, clock):
    spend(store, clock, *STEADY, *[150.0, 152.0, 149.0] * 4)
    assert [d.reason for d in store.drifts("job")] == ["the cost at batch size 16 has risen"]
    spend(store, clock, 250.0, 250.0, 250.0)
    assert [d.value > 1.4 for d in store.drifts("job")] == [True, True]


@pytest.mark.parametrize("costs", [STEADY + (150.0, 151.0, 100.0), (100.0, 150.0, 151.0, 149.0), STEADY * 4])
def test_costs_that_vary_as_before_or_are_few_are_no_drift(store, clock, costs):
    spend(store, clock, *costs)
    assert store.drifts("job") == ()


def test_costs_on_another_accelerator_are_not_compared(store, clock):
    spend(store, clock, *STEADY)
    spend(store, clock, 150.0, 151.0, 149.0, accelerator="H200")
    assert store.drifts("job") == ()


MISSED = {"state": TrialState.NOT_REACHED, "epochs": 100}


def measured(*metrics, **outcome):
    return [{"energy_j": 100.0, "metric": metric} | outcome for metric in metrics]


def test_metrics_that_fell_are_drift_though_costs_did_not(store, clock):
    train(store, clock, *measured(0.91, 0.92, 0.90, 0.91, 0.93), *measured(0.7, 0.71, 0.69, **MISSED))
    (drift,) = store.drifts("job")
    assert (drift.reason, drift.value) == ("the metric at batch size 16 has fallen", pytest.approx(0.7))
    assert "has fallen" in store.open_recurrence(SPEC, "early").why


@pytest.mark.parametrize("scale", [1.0, -1.0, 1000.0])
def test_metrics_of_any_sign_and_size_are_compared(store, clock, scale):
    train(store, clock, *measured(*(scale * m for m in (0.91, 0.92, 0.90, 0.91, 0.93, 0.7, 0.71, 0.69))))
    (drift,) = store.drifts("job")
    assert drift.reason == f"the metric at batch size 16 has {'fallen' if scale > 0 else 'risen'}"


def test_the_metric_of_a_trial_that_was_stopped_early_is_no_sign_of_drift(store, clock):
    stopped = {"state": TrialState.NOT_REACHED, "epochs": 3}
    train(store, clock, *measured(0.91, 0.92, 0.90, 0.91, 0.93), *measured(0.1, 0.1, 0.1, **stopped))
    assert store.drifts("job") == ()
