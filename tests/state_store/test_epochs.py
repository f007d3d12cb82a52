"""How often preprocessing and the builder's own stages run."""

import dataclasses

import pytest

from tests.state_store.test_gating import recur
from zeus_kfp.zeus_core import JobSpec, TrialOutcome, TrialState
from zeus_kfp.zeus_core.errors import InvalidValueError, UnknownRecurrenceError
from zeus_kfp.zeus_core.job import ONCE

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


def test_data_that_a_recurrence_came_to_make_again_and_did_not_starts_the_next_run_too(store, clock):
    weekly = dataclasses.replace(SPEC, period_s=7 * 86_400.0)
    lose_data(store, "first", weekly)
    for day in range(3):
        clock.move(days=day)
        opened = store.open_recurrence(weekly, f"died {day}")
        assert opened.data_epoch == "-1" and "gone from storage and is made again" in opened.why
        store.close_recurrence("job", f"died {day}")
    clock.move(days=3)
    assert recur(store, "made", weekly).data_epoch == "-1"
    assert not store.open_recurrence(weekly, "early").granted


def test_why_data_is_preprocessed_again_is_said(store):
    spec = dataclasses.replace(SPEC, preprocess_every=1)
    assert recur(store, "first", spec).why == "recurrence 1 of job job"
    assert "preprocess_every 1" in recur(store, "second", spec).why


def turn(store, run, stage, every, *, done=True, **options):
    """Return whether it was a stage's turn in a recurrence that ends with it done, or not."""
    store.open_recurrence(SPEC, run, **options)
    is_turn = store.take_stage_turn("job", run, stage, every)
    if is_turn and done:
        store.finish_stage_turn("job", run, stage)
    store.close_recurrence("job", run)
    return is_turn


def turns(store, stage, every, runs, **options):
    return [turn(store, run, stage, every, **options) for run in runs]


@pytest.mark.parametrize(
    ("every", "expected"), [(1, "11111"), (2, "10101"), (3, "10010"), (0, "10000"), (ONCE, "10000")]
)
def test_a_stage_has_its_turn_every_so_many_recurrences(store, every, expected):
    assert turns(store, "evaluate", every, "abcde") == [c == "1" for c in expected]
    assert [store.take_stage_turn("job", run, "evaluate", every) for run in "abcde"] == [c == "1" for c in expected]


def test_a_turn_that_was_missed_is_made_up_by_the_next_recurrence(store):
    assert turns(store, "deploy", 3, "a") == [True]
    for run in "bcd":  # the turn of the fourth is not asked for, since it had no winner
        recur(store, run, SPEC)
    assert turns(store, "deploy", 3, "efg") == [True, False, False]


def test_a_stage_may_come_as_seldom_as_can_be_said(store):
    assert turns(store, "deploy", 10**40, "abc") == [True, False, False]


@pytest.mark.parametrize("every", [2, 0, ONCE])
def test_a_turn_whose_stage_was_not_done_is_given_again(store, every):
    assert turns(store, "deploy", every, "ab", done=False) == [True, True]
    assert turns(store, "deploy", every, "cd") == [True, False]


def test_a_turn_of_a_recurrence_that_died_is_given_again_and_one_under_way_is_not(store, clock):
    for run in "ab":
        store.open_recurrence(SPEC, run)
    assert store.take_stage_turn("job", "a", "index", 0)
    assert not store.take_stage_turn("job", "b", "index", 0)
    clock.move(days=2)
    assert store.open_recurrence(SPEC, "c").granted and store.recurrence("job", "a").state == "expired"
    assert store.take_stage_turn("job", "c", "index", 0)


def test_a_stage_once_for_the_data_has_a_turn_when_the_data_changes_and_one_once_per_job_has_none(store):
    for version, index, setup in (("v1", True, True), ("v1", False, False), ("v2", True, False), ("v2", False, False)):
        run = f"{version}-{index}"
        assert turn(store, f"{run}-index", "index", 0, data_version=version) is index
        assert turn(store, f"{run}-setup", "setup", ONCE, data_version=version) is setup


def test_a_stage_that_had_no_turn_is_not_done(store):
    recur(store, "run", SPEC)
    with pytest.raises(InvalidValueError, match="not the turn of stage 'deploy'"):
        store.finish_stage_turn("job", "run", "deploy")


def test_data_that_is_preprocessed_once_per_job_outlives_new_versions_and_is_made_again_only_when_gone(store):
    once = dataclasses.replace(SPEC, preprocess_every=ONCE)
    epochs = [recur(store, f"run-{v}", once, data_version=v).data_epoch for v in ("v1", "v2", "v3")]
    assert epochs == ["-0", "-0", "-0"]
    lose_data(store, "lost", once)
    assert recur(store, "again", once, data_version="v4").data_epoch == "-1"


def waits(store, *runs):
    return [store.why_must_wait("job", run, slow_start=False) for run in runs]


def test_overlapping_recurrences_make_their_data_one_after_the_other(store):
    for run in "abc":
        store.open_recurrence(SPEC, run)
    a, b, c = waits(store, *"abc")
    assert (a, "recurrence 1 of run a preprocesses the same data (-0)" in b, "run a" in c) == ("", True, True)
    store.suggest("job", "a", 1)
    assert waits(store, *"abc") == ["", "", ""]


def test_whoever_waits_for_data_goes_on_once_its_maker_failed_or_died(store, clock):
    spec = dataclasses.replace(SPEC, max_step_time_s=3600.0)
    for run in "abc":
        store.open_recurrence(spec, run)
    store.close_recurrence("job", "a")
    assert [bool(why) for why in waits(store, *"bc")] == [False, True]
    clock.move(minutes=69)
    assert [bool(why) for why in waits(store, "c")] == [True]
    clock.move(minutes=2)
    assert [bool(why) for why in waits(store, "c")] == [False]
    assert store.open_recurrence(spec, "d").granted and store.recurrence("job", "c").state == "open"


def test_nobody_waits_for_other_data_or_for_data_that_is_there(store):
    store.open_recurrence(SPEC, "a", data_version="v1")
    store.open_recurrence(SPEC, "b", data_version="v2")
    assert waits(store, "b") == [""]
    recur(store, "c", SPEC)
    assert waits(store, "b", "c") == ["", ""]


def test_stages_do_not_share_turns_and_overlapping_recurrences_take_one(store):
    for run in "ab":
        store.open_recurrence(SPEC, run)
    assert store.take_stage_turn("job", "b", "deploy", 2)
    assert not store.take_stage_turn("job", "a", "deploy", 2)
    assert store.take_stage_turn("job", "a", "evaluate", 2)


@pytest.mark.parametrize(("stage", "every"), [("", 1), (3, 1), ("x" * 256, 1), ("deploy", -2), ("deploy", 1.0)])
def test_a_stage_or_frequency_that_makes_no_sense_is_refused(store, stage, every):
    recur(store, "run", SPEC)
    with pytest.raises(InvalidValueError, match="stage|every"):
        store.take_stage_turn("job", "run", stage, every)


def test_a_run_without_a_recurrence_has_no_turn(store):
    recur(store, "run", SPEC)
    with pytest.raises(UnknownRecurrenceError, match="'other'"):
        store.take_stage_turn("job", "other", "deploy", 1)


def make_data(store, clock, run, version, **took):
    store.open_recurrence(SPEC, run, data_version=version)
    clock.move(**took)
    store.suggest("job", run, 1)
    store.report("job", run, 1, GONE)
    store.close_recurrence("job", run)


def test_nobody_waits_for_data_longer_than_twice_what_it_took_before(store, clock):
    make_data(store, clock, "v1", "v1", hours=1)
    make_data(store, clock, "v2", "v2", hours=2)
    for run in "abc":
        store.open_recurrence(SPEC, run, data_version="v3")
    (why,) = waits(store, "b")
    assert "this one waits for it, until 2026-01-01 07:10 UTC at most" in why
    clock.move(hours=4, minutes=9)
    assert [bool(why) for why in waits(store, "b", "c")] == [True, True]
    clock.move(minutes=2)
    assert waits(store, "b") == [""] and "run b" in waits(store, "c")[0]
    store.suggest("job", "b", 1)
    assert waits(store, "c") == [""]


def test_nobody_waits_by_the_time_that_data_took_which_others_had_made(store, clock):
    """The first of the hundred recurrences that are looked at, and all after it, may have had theirs from before."""
    make_data(store, clock, "slow", "v1", hours=2)
    for number in range(101):
        recur(store, f"cached {number}", SPEC)
    for run in "ab":
        store.open_recurrence(SPEC, run, data_version="v2")
    clock.move(hours=23)
    assert "run a preprocesses" in waits(store, "b")[0]


def test_a_wait_for_data_is_not_taken_for_the_time_that_making_it_took(store, clock):
    make_data(store, clock, "v1", "v1", hours=1)
    store.open_recurrence(SPEC, "dead", data_version="v2")
    make_data(store, clock, "waited", "v2", hours=20)
    for run in "ab":
        store.open_recurrence(SPEC, run, data_version="v3")
    assert "until 2026-01-01 23:10 UTC" in waits(store, "b")[0]


def test_before_the_first_data_is_made_its_maker_has_all_its_lease(store, clock):
    for run in "ab":
        store.open_recurrence(SPEC, run)
    clock.move(hours=23)
    assert "until 2026-01-02 00:10 UTC" in waits(store, "b")[0]
