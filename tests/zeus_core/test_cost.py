import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zeus_kfp.zeus_core.cost import zeus_cost
from zeus_kfp.zeus_core.errors import InvalidValueError


@pytest.mark.parametrize(("eta_knob", "cost"), [(0, 5000.0), (1, 3000.0), (0.5, 4000.0), (0.25, 4500.0)])
def test_the_cost_weighs_energy_against_time_at_full_power(eta_knob: float, cost: float) -> None:
    assert zeus_cost(3000.0, 20.0, eta_knob=eta_knob, max_power_w=250.0) == cost


@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, "1", None, True])
@pytest.mark.parametrize("name", ["energy_j", "time_s", "max_power_w"])
def test_energy_time_and_power_must_be_positive_and_finite(name: str, value: object) -> None:
    arguments = {"energy_j": 1.0, "time_s": 1.0, "max_power_w": 1.0, name: value}
    with pytest.raises(InvalidValueError, match=f"{name} must be"):
        zeus_cost(arguments["energy_j"], arguments["time_s"], eta_knob=0.5, max_power_w=arguments["max_power_w"])


@pytest.mark.parametrize("eta_knob", [-0.1, 1.1, math.nan])
def test_eta_must_lie_between_0_and_1(eta_knob: float) -> None:
    with pytest.raises(InvalidValueError, match="eta_knob must be"):
        zeus_cost(1.0, 1.0, eta_knob=eta_knob, max_power_w=1.0)


@pytest.mark.parametrize("name", ["energy_j", "time_s", "max_power_w"])
def test_more_than_any_training_takes_is_refused(name: str) -> None:
    arguments = {"energy_j": 1.0, "time_s": 1.0, "max_power_w": 1.0, name: 1e300}
    with pytest.raises(InvalidValueError, match=f"{name} must be at most"):
        zeus_cost(arguments["energy_j"], arguments["time_s"], eta_knob=0.5, max_power_w=arguments["max_power_w"])


def test_energy_alone_needs_no_rated_power() -> None:
    assert zeus_cost(3.0, 20.0, eta_knob=1.0, max_power_w=0.0) == 3.0


POSITIVE = st.floats(1e-3, 1e9)


@given(POSITIVE, POSITIVE, st.floats(0, 1), POSITIVE)
@settings(deadline=None)
def test_the_cost_lies_between_energy_alone_and_time_alone(
    energy_j: float, time_s: float, eta_knob: float, max_power_w: float
) -> None:
    low, high = sorted((energy_j, max_power_w * time_s))
    cost = zeus_cost(energy_j, time_s, eta_knob=eta_knob, max_power_w=max_power_w)
    assert low * (1 - 1e-9) <= cost <= high * (1 + 1e-9)
