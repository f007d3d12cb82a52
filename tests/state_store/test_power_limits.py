"""The power limit that a trial profiled is handed to later trials of its batch size, on the same GPU model."""

import dataclasses
import hashlib
import json

import pytest

from zeus_kfp.state_store import StateStore
from zeus_kfp.state_store.trials import _digest
from zeus_kfp.zeus_core import JobSpec, Profile, TrialOutcome, TrialState
from zeus_kfp.zeus_core.errors import InvalidValueError, UnknownTrialError

SPEC = JobSpec("job", (16,), 16, target_metric=0.9)
DONE = TrialOutcome(
    TrialState.REACHED,
    epochs=1,
    metric=0.95,
    energy_j=100.0,
    time_s=10.0,
    energy_source="nvml",
    max_power_w=300.0,
    power_limiter="nvml",
    power_limit_found_w=300.0,
    power_limits_found_w={"GPU-a": 300.0, "GPU-b": 280.0},
    node="node-7",
    second_energy_j=95.0,
    second_energy_source="nvml-polling",
    power_limit_w=200.0,
)
# Power (W) and throughput by limit: the least energy at 150 W, the least time at 300 W, the least cost at 200 W.
SWEEP = {300.0: (290.0, 1000.0), 200.0: (195.0, 960.0), 150.0: (149.0, 760.0)}


def sweep(accelerator="V100", count=1, size=16):
    return [Profile(size, "train", limit, *values, accelerator, count) for limit, values in SWEEP.items()]


def recur(store, run, profiles, spec=SPEC, **options):
    store.open_recurrence(spec, run, **options)
    plan = store.suggest("job", run, 1)
    store.report("job", run, 1, DONE, profiles)
    store.close_recurrence("job", run)
    return plan.power_limit_w, plan.power_limit_accelerator


@pytest.mark.parametrize(
    ("knobs", "limit_w"),
    [
        ({}, 200.0),
        ({"eta_knob": 1.0}, 150.0),
        ({"power_objective": "energy"}, 150.0),
        ({"power_objective": "time"}, 300.0),
        ({"power_objective": "slowdown:1.1"}, 200.0),
        ({"power_objective": "slowdown:1.5"}, 150.0),
    ],
)
def test_the_best_limit_of_a_sweep_is_handed_to_the_next_trial(store, knobs, limit_w):
    spec = dataclasses.replace(SPEC, **knobs)
    assert recur(store, "first", sweep(), spec) == (None, "")
    assert recur(store, "second", [], spec) == (limit_w, "V100")


def test_a_later_row_at_one_limit_keeps_the_sweep(store):
    recur(store, "first", sweep())
    # Whole epochs, in which the loader makes the GPU wait: no reason to doubt the limit.
    recur(store, "second", [Profile(16, "train", 200.0, 190.0, 700.0, "V100", 1)])
    assert recur(store, "third", []) == (200.0, "V100")


@pytest.mark.parametrize(
    "profiles", [[], [Profile(16, "train", None, 9.0, 100.0)], [Profile(16, "train", 200.0, 9.0, 100.0, "V100", 1)]]
)
def test_without_a_sweep_no_limit_is_known(store, profiles):
    recur(store, "first", profiles)
    assert recur(store, "second", []) == (None, "")


def test_a_sweep_that_was_cut_short_leaves_the_limit_to_be_found(store):
    store.open_recurrence(SPEC, "first")
    store.suggest("job", "first", 1)
    unsettled = dataclasses.replace(DONE, power_limit_w=None)
    store.report("job", "first", 1, unsettled, sweep()[:2])
    store.close_recurrence("job", "first")
    assert recur(store, "second", sweep()) == (None, "")
    assert recur(store, "third", []) == (200.0, "V100")


def test_another_gpu_model_is_profiled_and_known_by_its_own_name(store):
    recur(store, "first", sweep("V100"))
    recur(store, "second", [dataclasses.replace(p, average_power_w=p.power_limit_w) for p in sweep("A40")])
    assert recur(store, "third", [])[1] == "A40"


def test_an_estimated_sweep_is_no_sweep(store):
    recur(store, "first", [dataclasses.replace(profile, energy_estimated=True) for profile in sweep()])
    assert recur(store, "second", []) == (None, "")


def test_another_objective_chooses_anew_from_what_was_measured(store):
    recur(store, "first", sweep())
    other = dataclasses.replace(SPEC, power_objective="time")
    assert recur(store, "second", [], other, on_knob_change="accept") == (300.0, "V100")


def test_what_a_trial_found_and_set_is_kept(store):
    recur(store, "first", sweep())
    (trial,) = store.trials("job")
    assert (trial.power_limiter, trial.power_limit_found_w, trial.power_limit_w) == ("nvml", 300.0, 200.0)
    assert (trial.node, trial.power_limits_found_w) == ("node-7", {"GPU-a": 300.0, "GPU-b": 280.0})
    assert (trial.second_energy_j, trial.second_energy_source) == (95.0, "nvml-polling")


def test_a_report_from_before_limits_were_told_by_gpu_is_still_the_same(store):
    old = dataclasses.replace(DONE, power_limits_found_w={}, second_energy_j=None, second_energy_source="")
    told = {key: value for key, value in json.loads(old.to_json()).items() if value not in ({}, None, "")}
    assert _digest(TrialOutcome.from_json(json.dumps(told)), []) == _digest(old, [])
    payload = dataclasses.asdict(old)
    for name in ("power_limits_found_w", "second_energy_j", "second_energy_source", "curve", "least_epochs"):
        del payload[name]
    kept = hashlib.sha256(json.dumps([payload, []], sort_keys=True).encode()).hexdigest()
    assert _digest(old, []) == kept


@pytest.mark.parametrize("objective", ["", "cheapest", "slowdown", "slowdown:0.5", "slowdown:x", "time:1", 3, None])
def test_an_objective_that_is_none_is_refused(objective):
    with pytest.raises(InvalidValueError, match="power_objective must"):
        dataclasses.replace(SPEC, power_objective=objective)


def test_limits_are_learnt_without_reading_a_long_history(store_url):
    with StateStore(store_url) as store:
        recur(store, "first", sweep())
        for number in range(60):
            single = [Profile(16, "train", 200.0, 195.0, 960.0, "V100", 1)]
            recur(store, f"run-{number}", [*single, Profile(16, "eval", 200.0, 90.0, 2000.0, "V100", 1)])
        assert recur(store, "last", []) == (200.0, "V100")


def test_where_a_lost_pod_was_completes_the_row_of_a_trial_without_a_report(store):
    store.open_recurrence(SPEC, "run")
    store.suggest("job", "run", 1)
    store.note_lost_pod("job", "run", 1, "node-7", {"GPU-a": 250.0})
    store.close_recurrence("job", "run")
    trial = store.note_lost_pod("job", "run", 1, "node-7", {"GPU-b": 240})
    assert (trial.state, trial.node) == (TrialState.EXPIRED, "node-7")
    assert trial.power_limits_found_w == {"GPU-a": 250.0, "GPU-b": 240.0}
    assert store.trials("job") == (trial,)
    assert store.learnt("job") == store.learnt_from_rows("job")


def test_a_report_is_not_overwritten_by_where_its_pod_was(store):
    recur(store, "first", sweep())
    before = store.trials("job")
    store.note_lost_pod("job", "first", 1, "node-9", {"GPU-c": 100.0})
    assert store.trials("job") == before


@pytest.mark.parametrize(
    ("slot", "limits_w", "error"),
    [(2, {}, UnknownTrialError), (0, {}, InvalidValueError), (1, {"GPU-a": -1}, InvalidValueError)],
)
def test_a_lost_pod_that_cannot_be_is_refused(store, slot, limits_w, error):
    recur(store, "first", sweep())
    with pytest.raises(error):
        store.note_lost_pod("job", "first", slot, "node-7", limits_w)
