"""A recurrence counts as alive by the step that it is at: a trial for its own cap, any other step for its."""

import dataclasses
from datetime import timedelta

import pytest

from tests.state_store.driving import NOT_REACHED
from zeus_kfp.zeus_core import JobSpec, TrialState

SPEC = JobSpec("job", (8, 16), 16, target_metric=0.9, max_trial_time_s=3600.0, max_step_time_s=36_000.0)
REACHED = dataclasses.replace(NOT_REACHED, state=TrialState.REACHED, metric=0.95)
STEP, TRIAL, MOMENT = timedelta(hours=10, minutes=10), timedelta(hours=1, minutes=10), timedelta(seconds=1)


def preprocess(store):
    store.open_recurrence(SPEC, "run")


def train(store):
    preprocess(store)
    store.suggest("job", "run", 1)


def miss(store):
    train(store)
    store.report("job", "run", 1, NOT_REACHED)


def reach(store):
    train(store)
    store.report("job", "run", 1, REACHED)


def is_alive(store):
    return not store.open_recurrence(SPEC, "other").granted


@pytest.mark.parametrize(("do", "lease"), [(preprocess, STEP), (train, TRIAL), (miss, TRIAL), (reach, STEP)])
def test_a_recurrence_is_taken_for_dead_once_its_step_has_taken_too_long(store, clock, do, lease):
    do(store)
    clock.now += lease - MOMENT
    assert is_alive(store)
    clock.now += MOMENT
    assert not is_alive(store)
    assert store.recurrence("job", "run").state == "expired"


def test_a_trial_after_long_preprocessing_has_all_its_time(store, clock):
    preprocess(store)
    clock.now += STEP - MOMENT
    store.suggest("job", "run", 1)
    clock.now += TRIAL - MOMENT
    assert is_alive(store)


def test_each_turn_of_a_stage_is_a_sign_of_life(store, clock):
    reach(store)
    for stage in ("index", "evaluate", "deploy"):
        clock.now += STEP - MOMENT
        store.take_stage_turn("job", "run", stage, 2)
    clock.now += STEP - MOMENT
    assert is_alive(store)
    clock.now += MOMENT
    assert not is_alive(store)


def test_a_longer_step_may_be_asked_for_without_consent(store, clock):
    preprocess(store)
    longer = dataclasses.replace(SPEC, max_step_time_s=200_000.0)
    assert not store.open_recurrence(longer, "second").granted
    assert store.job("job").spec.max_step_time_s == 200_000.0
