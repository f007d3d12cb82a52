"""How often preprocessing and the builder's own stages run."""

import dataclasses

import pytest

from tests.state_store.test_gating import recur
from zeus_kfp.zeus_core import JobSpec, TrialOutcome, TrialState
from zeus_kfp.zeus_core.errors import InvalidValueError, UnknownRecurrenceError

SPEC = JobSpec("job", (8, 16), 16, target_metric=0.9, max_concurrent_recurrences=3)
GONE = TrialOutcome(TrialState.FAILED, reason="gone", data_missing=True)


def lose_data(store, run_id, spec):
    store.open_recurrence(spec, run_id)
    store.suggest("job", run_id, 1)
    store.report("job", run_id, 1, GONE)
    store.close_recurrence("job", run_id)


@pytest.mark.parametrize(
    ("every", "generations"), [(0, [0, 0, 0, 0, 0, 0]), (1, [0, 1, 2, 3, 4, 5]), (3, [0, 0, 0, 1, 1, 1])]
)
def test_data_is_preprocessed_every_so_many_recurrences(store, every, generations):
    spec = dataclasses.replace(SPEC, preprocess_every=every)
    assert [recur(store, f"run-{n}", spec).data_epoch for n in range(6)] == [f"-{g}" for g in generations]


def test_overlapping_recurrences_share_the_data_of_their_epoch(store):
    spec = dataclasses.replace(SPEC, preprocess_every=2)
    epochs = [store.open_recurrence(spec, f"run-{n}").data_epoch for n in range(3)]
    assert epochs == ["-0", "-0", "-1"]
    assert store.open_recurrence(spec, "run-0").data_epoch == "-0"


def test_a_new_version_of_the_data_begins_the_count_anew(store):
    spec = dataclasses.replace(SPEC, preprocess_every=2)
    versions = ["v1", "v2", "", "v2", "v2"]
    epochs = [recur(store, f"run-{n}", spec, data_version=v).data_epoch for n, v in enumerate(versions)]
    assert epochs == ["v1-0", "v2-1", "v2-1", "v2-2", "v2-2"]


def test_a_version_that_comes_back_finds_its_data_unless_data_is_to_be_fresh(store):
    epochs = [recur(store, f"run-{n}", data_version=v, spec=SPEC).data_epoch for n, v in enumerate(["a", "b", "a"])]
    assert epochs == ["a-0", "b-0", "a-0"]
    every = dataclasses.replace(SPEC, preprocess_every=10)
    assert recur(store, "fresh", every, data_version="b").data_epoch == "b-1"


@pytest.mark.parametrize("every", [0, 5])
def test_data_gone_from_storage_is_made_again_once_and_the_recurrence_says_so(store, every):
    spec = dataclasses.replace(SPEC, preprocess_every=every)
    lose_data(store, "first", spec)
    opened = recur(store, "second", spec)
    assert opened.data_epoch == "-1" and "gone from storage and is made again" in opened.why
    assert store.recurrence("job", "second").why == opened.why
    third = recur(store, "third", spec)
    assert third.data_epoch == "-1" and "gone" not in third.why


def test_why_data_is_preprocessed_again_is_said(store):
    spec = dataclasses.replace(SPEC, preprocess_every=1)
    assert recur(store, "first", spec).why == "recurrence 1 of job job"
    assert "preprocess_every 1" in recur(store, "second", spec).why


def turns(store, stage, every, runs, **options):
    taken = []
    for run in runs:
        recur(store, run, SPEC, **options)
        taken.append(store.take_stage_turn("job", run, stage, every))
    return taken


@pytest.mark.parametrize(("every", "expected"), [(1, "11111"), (2, "10101"), (3, "10010"), (0, "10000")])
def test_a_stage_has_its_turn_every_so_many_recurrences(store, every, expected):
    assert turns(store, "evaluate", every, "abcde") == [c == "1" for c in expected]
    assert [store.take_stage_turn("job", run, "evaluate", every) for run in "abcde"] == [c == "1" for c in expected]


def test_a_turn_that_was_missed_is_made_up_by_the_next_recurrence(store):
    assert turns(store, "deploy", 3, "a") == [True]
    for run in "bcd":  # the turn of the fourth is not asked for, since it had no winner
        recur(store, run, SPEC)
    assert turns(store, "deploy", 3, "efg") == [True, False, False]


def test_a_stage_once_for_the_data_has_a_turn_when_the_data_changes(store):
    assert turns(store, "index", 0, "ab", data_version="v1") == [True, False]
    assert turns(store, "index", 0, "cd", data_version="v2") == [True, False]


def test_stages_do_not_share_turns_and_overlapping_recurrences_take_one(store):
    for run in "ab":
        store.open_recurrence(SPEC, run)
    assert store.take_stage_turn("job", "b", "deploy", 2)
    assert not store.take_stage_turn("job", "a", "deploy", 2)
    assert store.take_stage_turn("job", "a", "evaluate", 2)


@pytest.mark.parametrize(("stage", "every"), [("", 1), (3, 1), ("x" * 256, 1), ("deploy", -1), ("deploy", 1.0)])
def test_a_stage_or_frequency_that_makes_no_sense_is_refused(store, stage, every):
    recur(store, "run", SPEC)
    with pytest.raises(InvalidValueError, match="stage|every"):
        store.take_stage_turn("job", "run", stage, every)


def test_a_run_without_a_recurrence_has_no_turn(store):
    recur(store, "run", SPEC)
    with pytest.raises(UnknownRecurrenceError, match="'other'"):
        store.take_stage_turn("job", "other", "deploy", 1)
