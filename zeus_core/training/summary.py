"""What came of a training process so far, as it tells its supervisor."""

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.profile import Profile
from zeus_kfp.zeus_core.training.files import write_atomically
from zeus_kfp.zeus_core.validation import integer, number, text


class Ending(StrEnum):
    """How far a training process got."""

    RUNNING = "running"
    ENDED = "ended"
    DIVERGED = "diverged"
    NO_ENTRY_POINT = "no_entry_point"
    """The user's function can't be found or called; nothing was trained."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a training process tells.

    Attributes:
        ending: How far it got.
        reason: Why it ended, for people.
        epochs: Epochs trained to their end.
        metric: Last metric; None without any.
        energy_j: Energy in J of this attempt's epochs; None if it can't be known.
        time_s: Time in s of this attempt's epochs.
        energy_source: Name of the meter; "" if there is none.
        energy_estimated: Whether the energy is an estimate.
        accelerator: Model of the GPU, or of the CPU.
        accelerator_count: How many of them.
        max_power_w: Their rated power in W, summed; 0 if unknown.
        profiles: Average power and throughput by phase and power limit.
        second_energy_j: The same energy in J by the meter that checks the first one; None if there is none.
        second_energy_source: Name of that meter; "" if there is none.
        power_limiter: How power limits are set: "nvml", "zeusd" or "observe only"; "" without any GPU.
        power_limit_found_w: Limit in W of each GPU before training; None if unknown or different.
        power_limit_w: Limit in W that was chosen, after profiling or by earlier trials; None if none was (yet).
        least_epochs: Epochs that it very likely needed at least, where it stopped as hopeless; else None.
    """

    ending: Ending
    reason: str = ""
    epochs: int = 0
    metric: float | None = None
    energy_j: float | None = None
    time_s: float = 0.0
    energy_source: str = ""
    energy_estimated: bool = False
    accelerator: str = ""
    accelerator_count: int = 0
    max_power_w: float = 0.0
    profiles: tuple[Profile, ...] = ()
    second_energy_j: float | None = None
    second_energy_source: str = ""
    power_limiter: str = ""
    power_limit_found_w: float | None = None
    power_limit_w: float | None = None
    least_epochs: float | None = None

    def __post_init__(self) -> None:
        """Check every value.

        Raises:
            InvalidValueError: If one is out of its range.
        """
        text("reason", self.reason, at_most=4000, allow_empty=True)
        text("energy_source", self.energy_source, allow_empty=True)
        text("second_energy_source", self.second_energy_source, allow_empty=True)
        text("power_limiter", self.power_limiter, allow_empty=True)
        text("accelerator", self.accelerator, allow_empty=True)
        integer("epochs", self.epochs, at_least=0)
        integer("accelerator_count", self.accelerator_count, at_least=0)
        number("time_s", self.time_s, at_least=0)
        number("max_power_w", self.max_power_w, at_least=0)
        at_least_zero = ("energy_j", "second_energy_j", "power_limit_found_w", "power_limit_w", "least_epochs")
        for name, lowest in (("metric", None), *((name, 0) for name in at_least_zero)):
            if getattr(self, name) is not None:
                number(name, getattr(self, name), at_least=lowest)

    def write(self, path: str | Path) -> None:
        """Write the summary as JSON, whole or not at all."""
        write_atomically(path, json.dumps(dataclasses.asdict(self), allow_nan=False))

    @classmethod
    def read(cls, path: str | Path) -> Self | None:
        """Return the summary in a file, None if there is no such file.

        Raises:
            InvalidValueError: If the file holds anything else.
        """
        try:
            values = json.loads(Path(path).read_text(encoding="utf-8"))
            ending, profiles = Ending(values["ending"]), _profiles(values["profiles"])
            return cls(**values | {"ending": ending, "profiles": profiles})
        except FileNotFoundError:
            return None
        except (OSError, TypeError, ValueError, KeyError, RecursionError) as error:
            raise InvalidValueError(f"{path} holds no summary of a training process: {error}") from None


def _profiles(rows: Iterable[dict[str, Any]]) -> tuple[Profile, ...]:
    return tuple(Profile(**row) for row in rows)
