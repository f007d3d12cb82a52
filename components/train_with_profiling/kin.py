"""Every process that a training process has left behind, wherever it has gone to.

torchrun starts its workers in sessions of their own, and a program may leave a daemon behind: a signal to the
process group reaches neither. So while training runs, this process takes in all that lose their parent (Linux calls
it a child subreaper), and at the end it looks for

- what descends from the training process,
- what carries the trial's mark in its environment, and
- what it has taken in since, outside its own session and without the mark of another trial.
"""

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from zeus_kfp.zeus_core.processes import descendants, mark, marked, running

_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37
_PAUSE_S = 0.02
_LONGEST_S = 10.0
"""A process that the kernel holds up, such as one that waits for a broken disk, can't be killed; time goes on."""


class Kin:
    """The processes of one trial."""

    def __init__(self, path: str) -> None:
        """Begin before training starts.

        Args:
            path: The trial's mark: the path of its assignment.
        """
        self._path = path
        self._before = frozenset(running())

    def left(self, child_id: int) -> set[int]:
        """Return those that run now; ``child_id`` is the training process, which counts itself."""
        processes, own_id, own_session = running(), os.getpid(), os.getsid(0)
        found = marked(self._path, processes) if self._path else set()
        child = processes.get(child_id)
        if child is not None and child.parent_id == own_id:  # else the number is another's by now
            found |= {child_id} | descendants(child_id, processes)
        for process in processes.values():
            taken_in = process.parent_id == own_id and process.session_id != own_session
            if taken_in and process.process_id not in self._before and not mark(process.process_id):
                found |= {process.process_id} | descendants(process.process_id, processes)
        return found - {own_id}

    def kill(self, child_id: int, clock: Callable[[], float] = time.monotonic) -> set[int]:
        """Kill them until none is left, and return those that would not end."""
        latest_s, killed = clock() + _LONGEST_S, set[int]()
        while (left := self.left(child_id)) and clock() < latest_s:
            for process_id in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(process_id, signal.SIGKILL)
            killed |= left
            time.sleep(_PAUSE_S)
        _bury(killed - {child_id})
        return left


@contextmanager
def taking_in_orphans() -> Iterator[None]:
    """Become the parent of every process below this one that loses its own; elsewhere than on Linux, do nothing."""
    was = _is_taking_in()
    if was is None:
        yield
        return
    _take_in(True)
    try:
        yield
    finally:
        _take_in(was)


def _is_taking_in() -> bool | None:
    value = ctypes.c_int()
    try:
        failed = ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(value), 0, 0, 0)
    except (OSError, AttributeError):
        return None
    return None if failed else bool(value.value)


def _take_in(on: bool) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0)


def _bury(process_ids: set[int]) -> None:
    """Let go of those that have ended as our own children; whose parent is another, it buries."""
    for process_id in process_ids:
        with suppress(ChildProcessError):
            os.waitpid(process_id, os.WNOHANG)
