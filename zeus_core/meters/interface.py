"""What every meter is: a running total of energy, and what it stands for."""

from typing import Protocol


class Meter(Protocol):
    """A running total of energy; the difference of two readings is what was spent between them.

    Once open, a meter never raises: a reading that can't be had is None, never 0.

    Attributes:
        name: How it measures: "nvml", "nvml-polling", "nvml-utilisation", "rapl", "estimate" or "replay".
        estimated: Whether its energy is an estimate, not a measurement.
        accelerator: Model of the GPU, or of the CPU where there is none.
        accelerator_count: How many GPUs it sums over; without a GPU, how many CPU cores this process may use.
        max_power_w: Rated power in W summed over them; 0 if unknown.
        power_limit_w: Power limit in W of each GPU when the meter was opened; None without a GPU, or where
            the GPUs differ.
        shortest_window_s: Time in s between two readings below which their difference can't be trusted.
        settling_s: Time in s after a change of the power limit until readings show the new power alone.
    """

    name: str
    estimated: bool
    accelerator: str
    accelerator_count: int
    max_power_w: float
    power_limit_w: float | None
    shortest_window_s: float
    settling_s: float

    def energy_j(self) -> float | None:
        """Return the energy in J since some fixed moment, or None if it can't be known now."""
        ...

    def close(self) -> None:
        """Give back what the meter holds; a second call does nothing."""
        ...
