"""Every process that a training process has left behind, wherever it has gone to.

torchrun starts its workers in sessions of their own, and a program may leave a daemon behind: a signal to the
process group reaches neither. So while training runs, this process takes in all that lose their parent (Linux calls
it a child subreaper), looks every moment at what has come up, and knows as kin of the training process

- what runs in its session, or in one in which kin was seen a moment before,
- what carries the trial's mark in its environment,
- what was seen to be kin before, and
- what descends from any of these.

Nothing else is touched, also if it was taken in: other threads and helpers of this process start programs too. What
leaves its parent, its session and its environment between two looks is therefore not known.
"""

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from zeus_kfp.zeus_core.processes import Process, family, listed, marked

_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37
_PAUSE_S = 0.02
_LOOK_S = 0.1
"""From one look to the next while the processes may still end by themselves: a look reads all of /proc."""
_LONGEST_S = 10.0
"""A process that the kernel holds up, such as one that waits for a broken disk, can't be killed; time goes on."""


class Kin:
    """The processes of one trial."""

    def __init__(self, path: str, child_id: int) -> None:
        """Begin once training has started.

        Args:
            path: The trial's mark: the path of its assignment.
            child_id: The training process, which leads a session and counts itself; not buried yet, so that no other
                process can have its number.
        """
        self._path = path
        self._child_id = child_id
        self._started: dict[int, int] = {}
        self._sessions = {child_id}

    def look(self, *, by_mark: bool = False) -> set[int]:
        """Return those that run now, keep them in mind, and bury those that have ended as our own children.

        Args:
            by_mark: Whether to look at every environment too, which takes longer.
        """
        processes = listed()
        found = {number for number, process in processes.items() if self._is_known(process)}
        if by_mark and self._path:
            found |= marked(self._path, processes)
        kin = {number: processes[number] for number in family(found, processes) - {os.getpid()}}
        self._started = {number: process.started_ticks for number, process in kin.items()}
        self._sessions = {self._child_id} | {process.session_id for process in kin.values()} - {os.getsid(0)}
        self._bury(process for process in kin.values() if process.has_ended)
        return {number for number, process in kin.items() if not process.has_ended}

    def kill(self, clock: Callable[[], float] = time.monotonic) -> set[int]:
        """Kill them until none is left, and return those that would not end."""
        latest_s = clock() + _LONGEST_S
        while (left := self.look(by_mark=True)) and clock() < latest_s:
            for process_id in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(process_id, signal.SIGKILL)
            time.sleep(_PAUSE_S)
        return left

    def wait(self, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Wait until none is left, or the time is over."""
        latest_s = clock() + timeout_s
        while clock() < latest_s and self.look(by_mark=True):
            time.sleep(_LOOK_S)

    def _is_known(self, process: Process) -> bool:
        # A number that was given away again has another start.
        was_seen = self._started.get(process.process_id) == process.started_ticks
        return was_seen or process.session_id in self._sessions

    def _bury(self, ended: Iterable[Process]) -> None:
        for process in ended:
            if process.parent_id == os.getpid() and process.process_id != self._child_id:
                with suppress(ChildProcessError):
                    os.waitpid(process.process_id, os.WNOHANG)


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
