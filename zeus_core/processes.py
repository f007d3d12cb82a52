"""The processes of this machine, as /proc shows them: whose child is whose, and which belong to one trial.

Where there is no /proc, nothing is known of any process.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

TRIAL_VARIABLE = "ZEUS_KFP_TRIAL"
"""Environment variable that holds the path of the file with the assignment.

Every process that training starts inherits it, so that it also marks those of one trial.
"""

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Process:
    """A process as it was seen.

    Attributes:
        process_id: Its number.
        parent_id: Its parent's; 0 for none.
        session_id: The session that it runs in.
        started_ticks: When it was started, in clock ticks since the machine was; tells two of one number apart.
        has_ended: Whether it has ended and is only still listed, as its parent has not asked how.
        cpu_ticks: CPU time of its own and of its children that have ended, in clock ticks.
    """

    process_id: int
    parent_id: int
    session_id: int
    started_ticks: int
    has_ended: bool
    cpu_ticks: int


def running() -> dict[int, Process]:
    """Return the processes that run, by number."""
    return {number: process for number, process in listed().items() if not process.has_ended}


def listed() -> dict[int, Process]:
    """Return the processes that run and those that have ended but are still listed, by number."""
    try:
        numbers = [int(name) for name in os.listdir(_PROC) if name.isdecimal()]
    except OSError:
        return {}
    return {number: process for number in numbers if (process := seen(number)) is not None}


def descendants(process_id: int, processes: dict[int, Process]) -> set[int]:
    """Return the numbers of a process's children, their children, and so on."""
    return family({process_id}, processes) - {process_id}


def family(process_ids: Iterable[int], processes: dict[int, Process]) -> set[int]:
    """Return the numbers of some processes, their children, the children's children, and so on."""
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent_id, []).append(process.process_id)
    found = set(process_ids)
    left = list(found)
    while left:
        new = [child for child in children.get(left.pop(), ()) if child not in found]
        found.update(new)
        left += new
    return found


def mark(process_id: int) -> str | None:
    """Return what a process was started with as ZEUS_KFP_TRIAL, "" if it was started without; None: can't be read."""
    try:
        entries = (_PROC / str(process_id) / "environ").read_bytes().split(b"\0")
    except OSError:
        return None
    name = f"{TRIAL_VARIABLE}=".encode()
    return next((os.fsdecode(entry.removeprefix(name)) for entry in entries if entry.startswith(name)), "")


def marked(path: str, process_ids: Iterable[int]) -> set[int]:
    """Return those of some processes that carry a trial's mark."""
    return {process_id for process_id in process_ids if mark(process_id) == path}


def seen(process_id: int) -> Process | None:
    """Return a process; None if there is none of that number."""
    try:
        line = (_PROC / str(process_id) / "stat").read_bytes()
    except OSError:
        return None
    # The second field is the program's name in brackets, which may itself hold blanks and brackets.
    fields = line.rpartition(b")")[2].split()
    return Process(
        process_id,
        parent_id=int(fields[1]),
        session_id=int(fields[3]),
        started_ticks=int(fields[19]),
        has_ended=fields[0] in (b"Z", b"X"),
        cpu_ticks=sum(map(int, fields[11:15])),
    )
