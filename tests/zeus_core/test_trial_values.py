import json
import math
from dataclasses import asdict, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.trial import (
    MAX_OUTCOME_CHARACTERS,
    Purpose,
    TrialOutcome,
    TrialPlan,
    TrialState,
    finite_or_none,
)

PLAN = TrialPlan(
    job_id="digits",
    run_id="run-1",
    slot=1,
    number=7,
    batch_size=32,
    purpose=Purpose.EXPLORATION,
    why="exploring downwards from 64: 32 is next (round 1 of 2)",
    learning_rate_factor=0.5,
    target_metric=0.9,
    higher_is_better=True,
    max_epochs=10,
    eta_knob=0.5,
    max_power_w=250.0,
    cost_threshold=None,
    max_trial_time_s=60.0,
)
REACHED = TrialOutcome(TrialState.REACHED, "target", 3, 0.91, 1200.0, 10.0)


def test_a_plan_survives_its_json() -> None:
    plan = replace(PLAN, cost_threshold=1e6, power_limit_w=125.0)
    back = TrialPlan.from_json(plan.to_json())
    assert back == plan
    assert isinstance(back.purpose, Purpose)


@pytest.mark.parametrize(
    ("higher_is_better", "metric", "reached"),
    [(True, 0.9, True), (True, 0.89, False), (False, 0.9, True), (False, 0.91, False)],
)
def test_the_target_is_reached_at_equality_and_beyond(higher_is_better: bool, metric: float, reached: bool) -> None:
    assert replace(PLAN, higher_is_better=higher_is_better).is_reached(metric) is reached


def test_an_outcome_survives_its_json() -> None:
    outcome = replace(REACHED, error='Traceback …\n"quoted" 名前', exit_code=-9, model_uri="s3://b/m")
    assert TrialOutcome.from_json(outcome.to_json()) == outcome


def test_the_longest_outcome_fits_a_kfp_parameter() -> None:
    longest = replace(REACHED, reason="r" * 1000, error="e" * 4000, model_uri="u" * 2000)
    assert len(longest.to_json()) <= MAX_OUTCOME_CHARACTERS


@pytest.mark.parametrize("document", ["", "reached", "null", "[]", "3", "{", '{"state": "reached"', None, b"\xff"])
@pytest.mark.parametrize("parse", [TrialOutcome.from_json, TrialPlan.from_json])
def test_what_is_no_json_object_is_refused(parse, document: object) -> None:
    with pytest.raises(InvalidValueError, match="must be a JSON object"):
        parse(document)


def test_missing_and_unknown_fields_are_named() -> None:
    with pytest.raises(InvalidValueError, match=r"unknown fields \['stat'\] and lacks \['state'\]"):
        TrialOutcome.from_json('{"stat": "reached"}')
    short = {key: value for key, value in asdict(PLAN).items() if key != "slot"}
    with pytest.raises(InvalidValueError, match=r"lacks \['slot'\]"):
        TrialPlan.from_json(json.dumps(short))


@pytest.mark.parametrize(
    ("limits_w", "why"),
    [
        ({"GPU-a": 0}, r"power_limits_found_w\['GPU-a'\] must be above 0"),
        ({"GPU-a": "250"}, r"power_limits_found_w\['GPU-a'\] must be"),
        ({"GPU-a": float("nan")}, r"power_limits_found_w\['GPU-a'\] must be"),
        ({"": 250}, "GPU in power_limits_found_w must not be empty"),
        ([250], "must give the limit in W of at most 32 GPUs by UUID"),
        ({f"GPU-{index}": 250 for index in range(33)}, "must give the limit in W of at most 32 GPUs by UUID"),
    ],
)
def test_limits_found_that_are_none_are_refused(limits_w: object, why: str) -> None:
    with pytest.raises(InvalidValueError, match=why):
        TrialOutcome(TrialState.FAILED, power_limits_found_w=limits_w)


@pytest.mark.parametrize("state", ["issued", "expired", "done", "", None, 3])
def test_only_what_a_training_can_end_with_is_reported(state: object) -> None:
    with pytest.raises(InvalidValueError, match="must be one of reached, not_reached, oom, failed"):
        TrialOutcome(state)


@pytest.mark.parametrize("state", [TrialState.REACHED, TrialState.NOT_REACHED])
@pytest.mark.parametrize("name", ["energy_j", "time_s"])
@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, None, "3"])
def test_a_trial_that_counts_needs_positive_finite_energy_and_time(state: TrialState, name: str, value: object) -> None:
    with pytest.raises(InvalidValueError, match=f"{name} must be"):
        replace(REACHED, **{"state": state, name: value})


@pytest.mark.parametrize("state", [TrialState.OOM, TrialState.FAILED])
def test_a_trial_that_died_may_have_spent_nothing_that_is_known(state: TrialState) -> None:
    assert TrialOutcome(state).energy_j is None
    with pytest.raises(InvalidValueError, match="energy_j must be above 0"):
        TrialOutcome(state, energy_j=-1.0)
    with pytest.raises(InvalidValueError, match="time_s must be at least 0"):
        TrialOutcome(state, time_s=-1.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("metric", math.nan),
        ("metric", math.inf),
        ("metric", "0.9"),
        ("epochs", -1),
        ("epochs", 1.0),
        ("attempts", 0),
        ("accelerator_count", -1),
        ("exit_code", 1.5),
        ("max_power_w", -1.0),
        ("reason", "x" * 1001),
        ("error", "x" * 4001),
        ("model_uri", None),
        ("node", "a\0"),
    ],
)
def test_a_field_out_of_its_range_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(InvalidValueError, match=name):
        replace(REACHED, **{name: value})


@given(st.text(max_size=200))
@settings(deadline=None)
def test_no_text_whatever_breaks_the_parser_otherwise_than_clearly(document: str) -> None:
    with pytest.raises(InvalidValueError):
        TrialOutcome.from_json(document)


@pytest.mark.parametrize(("value", "stored"), [(1.5, 1.5), (math.inf, None), (-math.inf, None)])
def test_infinities_are_stored_as_nothing(value: float, stored: float | None) -> None:
    assert finite_or_none(value) == stored
