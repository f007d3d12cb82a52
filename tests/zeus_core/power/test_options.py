import pytest

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.power.options import ProfilingOptions


def test_without_any_word_the_defaults_stand():
    assert ProfilingOptions.from_environment({"ZEUS_KFP_POWER_STEP_W": " "}) == ProfilingOptions(10, 40, 25.0)


def test_every_option_can_be_set():
    environ = {
        "ZEUS_KFP_POWER_WARMUP_STEPS": "0",
        "ZEUS_KFP_POWER_PROFILE_STEPS": " 8 ",
        "ZEUS_KFP_POWER_STEP_W": "50",
        "ZEUS_KFP_POWER_LOWEST_W": "120.5",
        "ZEUS_KFP_POWER_HIGHEST_W": "300",
        "ZEUS_KFP_POWER_OBJECTIVE": "slowdown:1.2",
    }
    assert ProfilingOptions.from_environment(environ) == ProfilingOptions(0, 8, 50.0, 120.5, 300.0, "slowdown:1.2")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WARMUP_STEPS", "-1"),
        ("WARMUP_STEPS", "ten"),
        ("WARMUP_STEPS", "1.5"),
        ("PROFILE_STEPS", "0"),
        ("STEP_W", "0"),
        ("STEP_W", "nan"),
        ("STEP_W", "inf"),
        ("LOWEST_W", "-5"),
        ("HIGHEST_W", "0"),
        ("OBJECTIVE", "speed"),
        ("OBJECTIVE", "größe"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_its_variable(name, value):
    with pytest.raises(InvalidValueError, match=f"ZEUS_KFP_POWER_{name}='{value}'"):
        ProfilingOptions.from_environment({f"ZEUS_KFP_POWER_{name}": value})


def test_a_range_must_not_be_upside_down():
    with pytest.raises(InvalidValueError, match="lowest_w 300 must not be above highest_w 200"):
        ProfilingOptions(lowest_w=300.0, highest_w=200.0)
