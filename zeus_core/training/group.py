"""The processes that train together, one for each GPU, as torchrun starts them.

The first process decides and writes; the others follow. Each GPU is measured by one process, so that its energy counts
once, and time is that of the slowest process; see :mod:`zeus_kfp.zeus_core.training.fleet`.
"""

import math
import os
import sys
from collections.abc import Mapping
from typing import Any, Protocol

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.training.instrument import Spent


class Group(Protocol):
    """Processes that train together.

    Attributes:
        size: How many there are.
        rank: Which of them this is, from 0.
        is_leader: Whether this is the first, which decides and writes.
        measures: Whether this one measures and limits any GPU.
    """

    size: int
    rank: int
    is_leader: bool
    measures: bool

    @property
    def can_talk(self) -> bool:
        """Whether all of them can be asked now."""
        ...

    def connect(self) -> None:
        """Be ready to talk; called in every process, when training begins."""
        ...

    def disconnect(self) -> None:
        """Talk no more: this process may be the only one that has come to its end."""
        ...

    def agree(self, value: float) -> float:
        """Return the leader's value; called in every process, at the same step."""
        ...

    def gather(self, value: Any) -> list[Any]:
        """Return every process's value, in their order; called in every process, at the same step.

        A process that can't talk to the others gets its own value alone.
        """
        ...

    def total(self, spent: Spent) -> Spent:
        """Return the energy of all machines and the time of the slowest process; called in every process."""
        ...


class SoleProcess:
    """A process that trains alone."""

    size = 1
    rank = 0
    is_leader = True
    measures = True
    can_talk = True

    def connect(self) -> None:
        """Do nothing; there is nobody to talk to."""

    def disconnect(self) -> None:
        """Do nothing; there is nobody to talk to."""

    def agree(self, value: float) -> float:
        """Return the value."""
        return value

    def gather(self, value: Any) -> list[Any]:
        """Return the value alone."""
        return [value]

    def total(self, spent: Spent) -> Spent:
        """Return what was spent."""
        return spent


class TorchGroup:
    """Processes that talk through torch.distributed, once the user's code has initialised it.

    Until then, and where it never is, every process is on its own; the first one still is the only one that writes.
    """

    def __init__(self, *, rank: int, local_rank: int, size: int) -> None:
        """Keep which process this is."""
        self.size = size
        self.rank = rank
        self.is_leader = rank == 0
        self.measures = local_rank == 0
        self._distributed: Any = None
        self._channel: Any = None

    @property
    def can_talk(self) -> bool:
        """Whether training has begun and isn't over."""
        return self._distributed is not None

    def connect(self) -> None:
        """Open a channel for numbers in the main memory, which the GPUs' own channel can't carry."""
        torch = sys.modules.get("torch")
        distributed = getattr(torch, "distributed", None)
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            self._distributed = distributed
            self._channel = distributed.new_group(backend="gloo")

    def disconnect(self) -> None:
        """Be on one's own again."""
        self._distributed = None

    def agree(self, value: float) -> float:
        """Return the leader's value."""
        return self._exchange(lambda numbers: self._distributed.broadcast(numbers, 0, group=self._channel), value)

    def gather(self, value: Any) -> list[Any]:
        """Return every process's value; this one's alone where they can't talk."""
        if self._distributed is None:
            return [value]
        values: list[Any] = [None] * self.size
        self._distributed.all_gather_object(values, value, group=self._channel)
        return values

    def total(self, spent: Spent) -> Spent:
        """Return the energy of all machines and the time of the slowest process."""
        energy_j = spent.energy_j if self.measures else 0.0
        energy_j = self._reduce("SUM", math.nan if energy_j is None else energy_j)
        return Spent(None if math.isnan(energy_j) else energy_j, self._reduce("MAX", spent.time_s))

    def _reduce(self, how: str, value: float) -> float:
        def exchange(numbers: Any) -> None:
            operation = getattr(self._distributed.ReduceOp, how)
            self._distributed.all_reduce(numbers, operation, group=self._channel)

        return self._exchange(exchange, value)

    def _exchange(self, exchange: Any, value: float) -> float:
        if self._distributed is None:
            return value
        numbers = sys.modules["torch"].tensor([value], dtype=sys.modules["torch"].float64)
        exchange(numbers)
        return float(numbers.item())


def open_group(environ: Mapping[str, str] = os.environ) -> Group:
    """Return the group that this process was started in.

    Args:
        environ: Environment variables: RANK, LOCAL_RANK, WORLD_SIZE.

    Raises:
        InvalidValueError: If they make no sense.
    """
    told = {name: environ.get(name, "").strip() for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK")}
    if not told["WORLD_SIZE"]:
        return SoleProcess()
    try:
        size, rank = int(told["WORLD_SIZE"]), int(told["RANK"])
        local_rank = int(told["LOCAL_RANK"] or rank)
    except ValueError:
        size, rank, local_rank = 0, 0, 0
    if not 0 <= local_rank <= rank < size:
        shown = ", ".join(f"{name}={value!r}" for name, value in told.items())
        raise InvalidValueError(f"{shown} name no process of a group: unset WORLD_SIZE, or start it with torchrun")
    return SoleProcess() if size == 1 else TorchGroup(rank=rank, local_rank=local_rank, size=size)


def share_of(batch_size: int, group: Group) -> int:
    """Return the samples of a batch that each process handles.

    Raises:
        InvalidValueError: If the batch size can't be divided among them.
    """
    share, rest = divmod(batch_size, group.size)
    if rest or not share:
        raise InvalidValueError(
            f"a batch of {batch_size} samples can't be divided among {group.size} processes: use batch sizes that are "
            f"multiples of {group.size}"
        )
    return share


def own_gpus(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment with CUDA_VISIBLE_DEVICES cut to the GPUs that this machine's processes use.

    Of the GPUs that they see, each process takes the one of its LOCAL_RANK, as torchrun's users do.
    """
    count = environ.get("LOCAL_WORLD_SIZE", "").strip()
    if not environ.get("WORLD_SIZE", "").strip() or not count.isdecimal():
        return environ
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    entries = [str(index) for index in range(int(count))] if visible is None else visible.split(",")
    return {**environ, "CUDA_VISIBLE_DEVICES": ",".join(entries[: int(count)])}
