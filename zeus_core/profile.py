"""Average power and throughput of a batch size in a phase, at a power limit."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.validation import MAX_INTEGER, MAX_POWER_W, integer, number, text, truth


class Phase(StrEnum):
    """What the training process was doing."""

    TRAIN = "train"
    EVAL = "eval"


@dataclass(frozen=True, slots=True)
class Profile:
    """One measured row.

    Attributes:
        batch_size: Samples (global).
        phase: Training or evaluation.
        power_limit_w: Limit per GPU in W while measured; None where there is none (CPU).
        average_power_w: Average power in W over all GPUs used.
        throughput_samples_per_s: Samples per second.
        accelerator: Model of the GPU, or of the CPU.
        accelerator_count: How many of them.
        energy_estimated: Whether the power was estimated, not measured.
    """

    batch_size: int
    phase: Phase
    power_limit_w: float | None
    average_power_w: float
    throughput_samples_per_s: float
    accelerator: str = ""
    accelerator_count: int = 0
    energy_estimated: bool = False

    def __post_init__(self) -> None:
        """Check every value."""
        put = object.__setattr__
        put(self, "batch_size", integer("batch_size", self.batch_size, at_least=1, at_most=MAX_INTEGER))
        if self.phase not in [phase.value for phase in Phase]:
            raise InvalidValueError(f"phase must be train or eval, not {self.phase!r}")
        put(self, "phase", Phase(self.phase))
        if self.power_limit_w is not None:
            put(self, "power_limit_w", number("power_limit_w", self.power_limit_w, above=0, at_most=MAX_POWER_W))
        for name in ("average_power_w", "throughput_samples_per_s"):
            put(self, name, number(name, getattr(self, name), at_least=0))
        text("accelerator", self.accelerator, allow_empty=True)
        count = integer("accelerator_count", self.accelerator_count, at_least=0, at_most=MAX_INTEGER)
        put(self, "accelerator_count", count)
        put(self, "energy_estimated", truth("energy_estimated", self.energy_estimated))


def write_profiles(path: str | Path, profiles: Iterable[Profile]) -> None:
    """Write profiles as a JSON list."""
    Path(path).write_text(json.dumps([asdict(profile) for profile in profiles], allow_nan=False), encoding="utf-8")


def read_profiles(path: str | Path) -> tuple[Profile, ...]:
    """Return the profiles that :func:`write_profiles` wrote; none if there is no such file.

    Raises:
        InvalidValueError: If the file holds anything else.
    """
    try:
        rows = json.loads(Path(path).read_text(encoding="utf-8"))
        return tuple(Profile(**row) for row in rows)
    except FileNotFoundError:
        return ()
    except (TypeError, ValueError) as error:
        raise InvalidValueError(f"{path} must hold a JSON list of profiles: {error}") from error
