"""The metric, energy and time of every epoch, one JSON line each."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.validation import integer, integral, number


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """One epoch that was trained to its end.

    Attributes:
        epoch: Its number, from 1.
        metric: The validation metric after it.
        energy_j: Energy in J that it took, evaluation included; None if it can't be known.
        time_s: Time in s that it took; None if not known.
        cost: Cost in J; None if the energy, the time or the rated power is not known.
    """

    epoch: int
    metric: float
    energy_j: float | None = None
    time_s: float | None = None
    cost: float | None = None

    def __post_init__(self) -> None:
        """Check every value.

        Raises:
            InvalidValueError: If one is out of its range.
        """
        object.__setattr__(self, "epoch", integer("epoch", integral("epoch", self.epoch), at_least=0))
        object.__setattr__(self, "metric", number("metric", self.metric))
        for name in ("energy_j", "time_s", "cost"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, number(name, value, at_least=0))

    def append_to(self, path: str | Path) -> None:
        """Add the record to a file as one line."""
        with open(path, "a", encoding="utf-8") as stream:
            stream.write(self.to_line())

    def to_line(self) -> str:
        """Return the record as a line of JSON with its end."""
        return json.dumps(dataclasses.asdict(self), allow_nan=False) + "\n"

    @classmethod
    def from_line(cls, line: str) -> Self:
        """Return the record of a line; unknown keys are ignored, so that any program may write such lines.

        Raises:
            InvalidValueError: If the line is no JSON object with an epoch and a finite metric.
        """
        try:
            values = json.loads(line)
            known = {field.name: values[field.name] for field in dataclasses.fields(cls) if field.name in values}
            return cls(**known)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidValueError(
                f'a line of the history must be like {{"epoch": 1, "metric": 0.9}}, not {line[:120]!r}: {error}'
            ) from None
