"""The meter of a process whose machine another process measures."""


class FollowingMeter:
    """Knows nothing: another process of the group measures all GPUs of the machine, so that they count once."""

    name = "another process"
    estimated = False
    accelerator = ""
    accelerator_count = 1
    max_power_w = 0.0
    power_limit_w: float | None = None
    shortest_window_s = 0.0
    settling_s = 0.0

    def energy_j(self) -> float | None:
        """Return None."""
        return None

    def close(self) -> None:
        """Do nothing; there is nothing to give back."""
