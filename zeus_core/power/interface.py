"""What sets the power limit of the GPUs, or says why it can't."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from zeus_kfp.zeus_core.meters.nvml_devices import Gpu
from zeus_kfp.zeus_core.power.note import WayBack


@dataclass(frozen=True, slots=True)
class LimitRange:
    """Power limits in W that every GPU of a trial takes.

    Attributes:
        lowest_w: Lowest of them.
        highest_w: Highest of them; never above the limit found, which may be the machine's own cap.
    """

    lowest_w: float
    highest_w: float

    def clamped(self, power_limit_w: float) -> float:
        """Return the allowed limit that is closest to ``power_limit_w``."""
        return min(max(power_limit_w, self.lowest_w), self.highest_w)

    def sweep(self, step_w: float) -> tuple[float, ...]:
        """Return the limits to try, highest first: the highest, one step less, and so on down to the lowest."""
        count = int((self.highest_w - self.lowest_w) / step_w + 1e-9) + 1
        return tuple(self.highest_w - index * step_w for index in range(count))


class PowerLimiter(Protocol):
    """Sets one power limit on all GPUs of a trial, and puts back what it found.

    Attributes:
        name: How it sets them: "nvml", "zeusd" or "observe only"; "" without any GPU.
        why_not: Why it can't, in one line; "" if it can.
        allowed: What may be asked for; None if nothing can be set.
        found_w: Limit in W of each GPU before any change; None if unknown or different.
    """

    name: str
    why_not: str
    allowed: LimitRange | None
    found_w: float | None

    @property
    def is_over(self) -> bool:
        """Whether what was found is put back, so that no limit is set any more."""
        ...

    def set(self, power_limit_w: float) -> float | None:
        """Set a limit on every GPU and return the one that stands, in W; None if none is known."""
        ...

    def standing_w(self) -> float | None:
        """Return the limit in W that all GPUs have now, and change nothing; None if unknown or different."""
        ...

    def restore(self) -> None:
        """Put back what was found; later calls of :meth:`set` change nothing. A second call does nothing."""
        ...

    def close(self) -> None:
        """Restore, and give back what the limiter holds."""
        ...


class Setter(Protocol):
    """A way to set the power limit of a GPU.

    Attributes:
        name: What it is called.
    """

    name: str

    def set_limit(self, gpu: Gpu, power_limit_w: float) -> None:
        """Ask for a limit in W on one GPU.

        Raises:
            LimitRefusedError: If it is refused.
        """
        ...

    def way_back(self, gpu: Gpu) -> WayBack | None:
        """Return how the limit of a GPU can be set from another machine; None if it can't."""
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...


class ObserveOnly:
    """Leaves every limit as it is."""

    name = "observe only"
    allowed: LimitRange | None = None
    is_over = False

    def __init__(self, why_not: str = "", found_w: float | None = None) -> None:
        """Keep why nothing can be set, and the limit that stands."""
        self.why_not = why_not
        self.found_w = found_w

    def set(self, power_limit_w: float) -> float | None:
        """Change nothing."""
        return self.found_w

    def standing_w(self) -> float | None:
        """Return the limit in W that was found."""
        return self.found_w

    def restore(self) -> None:
        """Do nothing; nothing was changed."""

    def close(self) -> None:
        """Do nothing; there is nothing to give back."""


class NoGpu(ObserveOnly):
    """Stands where there is no GPU whose limit could be set."""

    name = ""


def common_range(allowed_w: Sequence[tuple[float, float] | None], highest_w: float) -> LimitRange | None:
    """Return what all GPUs take, up to ``highest_w``; None if that is nothing or can't be known."""
    known = [limits for limits in allowed_w if limits is not None]
    if not known or len(known) < len(allowed_w):
        return None
    lowest_w, highest_w = max(low for low, _ in known), min(highest_w, *(high for _, high in known))
    return LimitRange(lowest_w, highest_w) if lowest_w <= highest_w else None
