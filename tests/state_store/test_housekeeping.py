"""What may be pruned is listed: nothing that is still needed, and nothing is deleted."""

import dataclasses

import pytest

from tests.state_store.driving import NOT_REACHED
from zeus_kfp.state_store.records import PrunableKind
from zeus_kfp.zeus_core import JobSpec, TrialState
from zeus_kfp.zeus_core.errors import UnknownJobError

SPEC = JobSpec("job", (8, 16), 16, target_metric=0.9, max_concurrent_recurrences=3, max_retries=3)


def begin(store, run_id, *outcomes, **options):
    store.open_recurrence(SPEC, run_id, **options)
    for slot, (state, uri) in enumerate(outcomes, start=1):
        store.suggest("job", run_id, slot)
        store.report("job", run_id, slot, dataclasses.replace(NOT_REACHED, state=state, model_uri=uri))


def recur(store, run_id, *outcomes, **options):
    begin(store, run_id, *outcomes, **options)
    store.close_recurrence("job", run_id)


def listed(store):
    return [(p.kind, p.uri or p.data_epoch, p.recurrence_number, p.run_id) for p in store.prunable("job")]


def test_models_but_the_latest_winners_are_listed(store):
    recur(store, "a", (TrialState.NOT_REACHED, "s3://a/1"), (TrialState.REACHED, "s3://a/2"))
    recur(store, "b", (TrialState.REACHED, "s3://b/1"))
    recur(store, "c", (TrialState.NOT_REACHED, "s3://c/1"), (TrialState.FAILED, ""))
    assert [(kind.value, *rest) for kind, *rest in listed(store)] == [
        ("model", "s3://a/1", 1, "a"), ("model", "s3://a/2", 1, "a"), ("model", "s3://c/1", 3, "c")
    ]  # fmt: skip
    assert len(store.trials("job")) == 5


def test_what_an_open_recurrence_uses_is_kept(store):
    begin(store, "open", (TrialState.NOT_REACHED, "s3://open/1"), data_version="v1")
    recur(store, "later", (TrialState.REACHED, "s3://later/1"), data_version="v2")
    assert listed(store) == []
    store.close_recurrence("job", "open")
    assert listed(store) == [(PrunableKind.DATA, "v1-0", 1, "open"), (PrunableKind.MODEL, "s3://open/1", 1, "open")]


def test_data_that_was_superseded_is_listed_with_its_last_use(store):
    for run, version in {"a": "v1", "b": "v1", "c": "v2", "d": "v3"}.items():
        recur(store, run, (TrialState.FAILED, ""), data_version=version)
    assert listed(store) == [(PrunableKind.DATA, "v1-0", 2, "b"), (PrunableKind.DATA, "v2-0", 3, "c")]


def test_the_run_is_told_in_whose_folder_each_thing_lies(store):
    recur(store, "died", data_version="v1")
    recur(store, "made", (TrialState.REACHED, "s3://made/1"), data_version="v1")
    recur(store, "used", (TrialState.REACHED, "s3://used/1"), data_version="v1")
    recur(store, "in vain", data_version="v2")
    recur(store, "latest", (TrialState.REACHED, "s3://latest/1"), data_version="v3")
    found = {p.uri or p.data_epoch: (p.made_by, p.run_id) for p in store.prunable("job")}
    assert found == {
        "v1-0": ("made", "used"),
        "v2-0": ("", "in vain"),
        "s3://made/1": ("made", "made"),
        "s3://used/1": ("used", "used"),
    }


def test_a_job_that_is_young_or_unknown_has_nothing_to_prune(store):
    with pytest.raises(UnknownJobError, match="'job'"):
        store.prunable("job")
    recur(store, "a", (TrialState.REACHED, "s3://a/1"))
    assert store.prunable("job") == ()
