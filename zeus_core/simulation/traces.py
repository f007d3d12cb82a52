"""Recorded traces: what training at each batch size took, as two CSV files.

The train trace has a row for each recorded run and target metric, with the epochs that the run took to reach it
(empty or nan where it never did):

    dataset,network,batch_size,optimizer,learning_rate,run,target_metric,target_epoch

The power trace has a row for each batch size and power limit, with the time and average power of an epoch:

    dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power
"""

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from zeus_kfp.zeus_core.errors import InvalidValueError

TRAIN_COLUMNS = ("dataset", "network", "batch_size", "optimizer", "run", "target_metric", "target_epoch")
POWER_COLUMNS = ("dataset", "network", "batch_size", "optimizer", "power_limit", "time_per_epoch", "average_power")


@dataclass(frozen=True, slots=True)
class TrainingTask:
    """What is trained: the key of both traces."""

    dataset: str
    network: str
    optimizer: str

    def __str__(self) -> str:
        """Return it as one word, for messages."""
        return f"{self.dataset}/{self.network}/{self.optimizer}"


@dataclass(frozen=True, slots=True)
class TrainRow:
    """How many epochs a recorded run took to a target metric.

    Attributes:
        task: What was trained.
        batch_size: Samples.
        run: Name of the run.
        target_metric: The validation metric to reach.
        target_epoch: Epochs until it did; infinity if it never did.
    """

    task: TrainingTask
    batch_size: int
    run: str
    target_metric: float
    target_epoch: float


@dataclass(frozen=True, slots=True)
class PowerRow:
    """What an epoch took at a power limit.

    Attributes:
        task: What was trained.
        batch_size: Samples.
        power_limit_w: Power limit in W.
        time_s: Time of an epoch in s.
        average_power_w: Average power in W over that time.
    """

    task: TrainingTask
    batch_size: int
    power_limit_w: float
    time_s: float
    average_power_w: float


def read_train_trace(path: str | Path) -> list[TrainRow]:
    """Return the rows of a train trace, in their order.

    Raises:
        InvalidValueError: If the file can't be read, lacks a column, or holds a value that can't be.
    """
    return [
        TrainRow(
            task=row.task(),
            batch_size=row.whole("batch_size"),
            run=row.text("run"),
            target_metric=row.number("target_metric"),
            target_epoch=math.inf if row.is_missing("target_epoch") else row.number("target_epoch", above_zero=True),
        )
        for row in _rows(Path(path), TRAIN_COLUMNS)
    ]


def read_power_trace(path: str | Path) -> list[PowerRow]:
    """Return the rows of a power trace, in their order.

    Raises:
        InvalidValueError: If the file can't be read, lacks a column, or holds a value that can't be.
    """
    return [
        PowerRow(
            task=row.task(),
            batch_size=row.whole("batch_size"),
            power_limit_w=row.number("power_limit", above_zero=True),
            time_s=row.number("time_per_epoch", above_zero=True),
            average_power_w=row.number("average_power", above_zero=True),
        )
        for row in _rows(Path(path), POWER_COLUMNS)
    ]


@dataclass(frozen=True, slots=True)
class _Row:
    """A line of a CSV file, which knows where it stands."""

    path: Path
    line: int
    values: dict[str, str | None]

    def text(self, column: str) -> str:
        return (self.values[column] or "").strip()

    def is_missing(self, column: str) -> bool:
        return self.text(column).lower() in ("", "nan")

    def number(self, column: str, *, above_zero: bool = False) -> float:
        try:
            value = float(self.text(column))
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or (above_zero and value <= 0):
            wanted = "a finite number above 0" if above_zero else "a finite number"
            raise InvalidValueError(
                f"{self.path}, line {self.line}: {column} must be {wanted}, not {self.text(column)!r}"
            )
        return value

    def whole(self, column: str) -> int:
        value = self.number(column, above_zero=True)
        if not value.is_integer():
            raise InvalidValueError(f"{self.path}, line {self.line}: {column} must be whole, not {value!r}")
        return int(value)

    def task(self) -> TrainingTask:
        return TrainingTask(self.text("dataset"), self.text("network"), self.text("optimizer"))


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[_Row]:
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            reader = csv.DictReader(stream)
            missing = [column for column in columns if column not in (reader.fieldnames or ())]
            if missing:
                raise InvalidValueError(
                    f"{path} lacks the columns {missing}: a trace of this kind has {','.join(columns)}"
                )
            for values in reader:
                yield _Row(path, reader.line_num, values)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidValueError(f"{path} can't be read as a CSV trace: {error}") from None
