"""The user's training process: a process group of its own, whose output is passed on and partly kept.

At its end nothing that it has started is left, in whatever group or session that runs.
"""

import contextlib
import os
import signal
import subprocess
import threading
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
        self._kin = Kin(environ.get(TRIAL_VARIABLE, ""))
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
        self._write = write
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._ended = threading.Event()
        self._reader = self._thread(self._read)
        self._thread(self._await_end)

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._process.returncode

    @property
    def last_lines(self) -> list[str]:
        """The last lines of its output, oldest first."""
        return list(self._lines)

    def wait(self, timeout_s: float) -> bool:
        """Wait up to ``timeout_s`` seconds and return whether it has ended."""
        return self._ended.wait(max(timeout_s, 0.0))

    def stop(self, grace_s: float) -> None:
        """Ask the whole group to end, and kill it after ``grace_s`` seconds with all that it has started."""
        self._signal(signal.SIGTERM)
        self.wait(grace_s)
        self._kill()

    def close(self) -> None:
        """Kill whatever is left of it, and take in the rest of its output."""
        self._kill()
        self._reader.join(_DRAIN_S)

    def _kill(self) -> None:
        self._signal(signal.SIGKILL)
        left = self._kin.kill(self._process.pid)
        if left:
            self._write(f"warning: processes {sorted(left)} of the training can't be killed, and may go on")
        self._ended.wait()

    def _signal(self, number: int) -> None:
        # The group outlives its first process for as long as any member runs, so its id is not another's.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _await_end(self) -> None:
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
