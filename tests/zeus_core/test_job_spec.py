import math
from dataclasses import fields, replace

import pytest

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.job import MAX_BATCH_SIZES, JobSpec, LearningRateRule

JOB = JobSpec("digits", (8, 16, 32), 16, target_metric=0.9)


def test_a_job_needs_only_four_knobs() -> None:
    assert (JOB.eta_knob, JOB.beta_knob, JOB.num_pruning_rounds, JOB.num_explorations) == (0.5, 2.0, 2, 2)
    assert JOB.higher_is_better


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((), "must hold at least one size"),
        ((0, 16), "a batch size must be at least 1, not 0"),
        ((-8, 16), "a batch size must be at least 1, not -8"),
        ((8.0, 16), r"a batch size must be an integer, not 8.0 \(float\)"),
        ((True, 16), "a batch size must be an integer, not True"),
        (("8", 16), "a batch size must be an integer, not '8'"),
        ((8, 16, 16), r"must not repeat a size: \[16\]"),
        ((16, 8), r"must be ascending, not \[16, 8\]: give \[8, 16\]"),
        ((16, 2**31), "must be at most 2147483647"),
        ("16", r"must be a list of integers such as \[8, 16, 32\], not '16'"),
        (16, r"must be a list of integers such as \[8, 16, 32\], not 16"),
        (None, r"must be a list of integers such as \[8, 16, 32\], not None"),
        (tuple(range(1, MAX_BATCH_SIZES + 2)), "may hold 256 sizes at most, not 257"),
    ],
)
def test_batch_sizes_that_are_no_ascending_positive_integers_are_refused(sizes: object, message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        replace(JOB, batch_sizes=sizes)


def test_a_default_that_is_not_among_the_sizes_is_refused() -> None:
    with pytest.raises(InvalidValueError, match=r"24 is not among batch_sizes \[8, 16, 32\]: add it"):
        replace(JOB, default_batch_size=24)


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        *[("eta_knob", value) for value in (-0.01, 1.01, math.nan, "0.5", None, True)],
        *[("beta_knob", value) for value in (1, 1.0, 0.5, -2, math.nan, None)],
        *[("target_metric", value) for value in (math.nan, math.inf, -math.inf, "0.9", None, True)],
        *[("max_epochs", value) for value in (0, -1, 10.0, True)],
        *[("max_retries", value) for value in (0, 1001, 5.0)],
        *[("max_power_w", value) for value in (-1, math.nan, math.inf)],
        *[("max_trial_time_s", value) for value in (0, -1, math.inf)],
        *[("num_recurrences", value) for value in (-1, 1.5)],
        *[("max_concurrent_recurrences", value) for value in (0, 1001)],
        *[("num_pruning_rounds", value) for value in (-1, 101)],
        *[("num_explorations", value) for value in (0, 101)],
        *[("window_size", value) for value in (-1, 10_001, 2.0)],
        *[("prior_precision", value) for value in (-1, math.inf)],
        *[("prior_mean", value) for value in (math.nan, math.inf)],
        *[("seed", value) for value in (-1, 2**53, 1.0)],
        *[("default_batch_size", value) for value in (16.0, "16", 0)],
        *[("job_id", value) for value in ("", "x" * 256, "a\0", 5, None)],
        *[("policy", value) for value in ("", "x" * 65)],
        *[("higher_is_better", value) for value in (1, "yes", None)],
        *[("learning_rate_rule", value) for value in ("cubic", None, 1)],
    ],
)
def test_a_knob_out_of_its_range_is_refused_by_name(knob: str, value: object) -> None:
    with pytest.raises(InvalidValueError, match=knob):
        replace(JOB, **{knob: value})


@pytest.mark.parametrize(
    ("knob", "value"),
    [("eta_knob", 0), ("eta_knob", 1), ("beta_knob", math.inf), ("beta_knob", 1.001), ("seed", 2**53 - 1)],
)
def test_the_ends_of_a_range_are_allowed(knob: str, value: float) -> None:
    assert getattr(replace(JOB, **{knob: value}), knob) == value


def test_knobs_come_to_their_own_types() -> None:
    job = JobSpec("digits", [8, 16], 8, target_metric=1, eta_knob=1, learning_rate_rule="linear")
    assert job.batch_sizes == (8, 16)
    assert (type(job.target_metric), type(job.eta_knob)) == (float, float)
    assert job.learning_rate_rule is LearningRateRule.LINEAR


def test_what_kfp_made_floats_of_are_integers_again() -> None:
    job = JobSpec.from_parameters(job_id="digits", batch_sizes=[8.0, 16.0], default_batch_size=8, target_metric=0.9)
    assert job.batch_sizes == (8, 16)
    with pytest.raises(InvalidValueError, match="a batch size must be an integer, not 8.5"):
        JobSpec.from_parameters(job_id="j", batch_sizes=[8.5], default_batch_size=8, target_metric=0.9)


def test_differences_name_each_changed_knob_with_both_values() -> None:
    other = replace(JOB, eta_knob=0.25, batch_sizes=(8, 16))
    assert JOB.differences(other) == {"eta_knob": (0.5, 0.25), "batch_sizes": ((8, 16, 32), (8, 16))}
    assert JOB.differences(JOB) == {}


def test_every_field_is_documented() -> None:
    assert all(f"\n        {field.name}: " in JobSpec.__doc__ for field in fields(JobSpec))


@pytest.mark.parametrize(("rule", "factor"), [("none", 1.0), ("linear", 4.0), ("square_root", 2.0)])
def test_a_rule_scales_the_learning_rate(rule: str, factor: float) -> None:
    assert LearningRateRule(rule).factor(64, 16) == factor
    assert LearningRateRule(rule).factor(16, 16) == 1.0
