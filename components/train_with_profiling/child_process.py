"""The user's training process: a process group of its own, whose output is passed on and partly kept.

At its end nothing that it has started is left, in whatever group or session that runs.
"""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from zeus_kfp.components.train_with_profiling.kin import Kin
from zeus_kfp.zeus_core.errors import EntryPointError
from zeus_kfp.zeus_core.processes import TRIAL_VARIABLE

KEPT_LINES = 200
_LONGEST_LINE = 8192
_DRAIN_S = 2.0
"""How long to wait for output that a process which can't be killed may still hold open."""


class ChildProcess:
    """A running process group, to be closed by whoever started it."""

    def __init__(self, argv: Sequence[str], environ: Mapping[str, str], write: Callable[[str], None]) -> None:
        """Start it.

        Args:
            argv: Program and arguments.
            environ: Its whole environment.
            write: Gets every line of its output as it comes, without the line's end.

        Raises:
            EntryPointError: If the program can't be started.
        """
        try:
            self._process = subprocess.Popen(
                argv,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise EntryPointError(f"{argv[0]!r} can't be started: {error}") from error
        self._kin = Kin(environ.get(TRIAL_VARIABLE, ""), self._process.pid)
        self._write = write
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._ended = threading.Event()
        self._reader = self._thread(self._read)
        self._thread(self._await_end)

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; None until it is closed, and if it can't be killed."""
        return self._process.returncode

    @property
    def last_lines(self) -> list[str]:
        """The last lines of its output, oldest first."""
        return list(self._lines)

    def wait(self, timeout_s: float) -> bool:
        """Wait up to ``timeout_s`` seconds and return whether it has ended; keep in mind what it has started."""
        has_ended = self._ended.wait(max(timeout_s, 0.0))
        self._kin.look()
        return has_ended

    def stop(self, grace_s: float) -> None:
        """Ask the whole group to end, and give it and all that it has started ``grace_s`` seconds to do so."""
        self._signal(signal.SIGTERM)
        latest_s = time.monotonic() + grace_s
        self._ended.wait(grace_s)
        # A shell ends at once, while what it runs still saves its checkpoint.
        self._kin.wait(latest_s - time.monotonic())

    def close(self) -> None:
        """Kill whatever is left of it, take in the rest of its output, and let go of it."""
        self._signal(signal.SIGKILL)
        left = self._kin.kill()
        if left:
            self._write(f"warning: processes {sorted(left)} of the training can't be killed, and may go on")
        self._reader.join(_DRAIN_S)
        if self._ended.wait(_DRAIN_S):
            self._process.wait()

    def _signal(self, number: int) -> None:
        # Its first process is buried last of all, so that the group's number is not another's.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _await_end(self) -> None:
        if hasattr(os, "waitid"):
            # Where this process ignores SIGCHLD, the kernel buries its children, and none is left to be asked.
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        else:
            self._process.wait()
        self._ended.set()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            while raw := stream.readline(_LONGEST_LINE):
                line = raw.decode("utf-8", errors="replace").rstrip("\r\n")
                self._lines.append(line)
                self._write(line)

    @staticmethod
    def _thread(target: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=target, daemon=True)
        thread.start()
        return thread
