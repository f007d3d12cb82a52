"""Zeus's cost of a trial: energy and time in one number.

    cost(E, T) = eta * E + (1 - eta) * max_power * T                                        [1, eq. 2]

with E in J summed over the GPUs used, T in s, and max_power in W the rated power of those GPUs, so that both
terms are in J. A reward is the negated cost.

References:
    [1] You, Chung, Chowdhury. "Zeus: Understanding and Optimizing GPU Energy Consumption of DNN Training",
        NSDI 2023.
"""

from zeus_kfp.zeus_core.validation import MAX_ENERGY_J, MAX_POWER_W, MAX_TIME_S, number


def zeus_cost(energy_j: float, time_s: float, *, eta_knob: float, max_power_w: float) -> float:
    """Return the cost in J of having spent ``energy_j`` (J) and ``time_s`` (s).

    Args:
        energy_j: Energy in J over all GPUs used, above 0.
        time_s: Time in s, above 0.
        eta_knob: Weight of energy, 0 to 1.
        max_power_w: Rated power in W over all GPUs used, above 0; any where eta_knob is 1, since time is free then.

    Raises:
        InvalidValueError: If any of them is out of its range.
    """
    energy = number("energy_j", energy_j, above=0, at_most=MAX_ENERGY_J)
    time = number("time_s", time_s, above=0, at_most=MAX_TIME_S)
    eta = number("eta_knob", eta_knob, at_least=0, at_most=1)
    power = number("max_power_w", max_power_w, at_least=0, above=0 if eta < 1 else None, at_most=MAX_POWER_W)
    return number("cost", eta * energy + (1 - eta) * power * time, above=0)
