"""Costs that no longer fit what was believed are signalled as drift when they are reported."""

import dataclasses

import pytest

from tests.state_store.driving import NOT_REACHED
from zeus_kfp.zeus_core import JobSpec, TrialState

SPEC = JobSpec("job", (16,), 16, target_metric=0.9, period_s=7 * 86_400.0, eta_knob=1.0)
STEADY = (100.0, 104.0, 96.0, 101.0, 99.0)


def spend(store, clock, *energies_j, accelerator="A40"):
    for energy_j in energies_j:
        clock.move(days=7)
        run = f"run-{clock.now:%Y-%m-%d}"
        assert store.open_recurrence(SPEC, run).granted
        store.suggest("job", run, 1)
        outcome = dataclasses.replace(
            NOT_REACHED, state=TrialState.REACHED, energy_j=energy_j, accelerator=accelerator, time_s=1.0
        )
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
