"""Live progress of a local run: the components' own lines, out of the local runner's many."""

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TextIO

_OURS = re.compile(r"^\s*((?:(?:epoch|trial|recurrence) \d+\b(?! \(try)|profiling \d+ power limits|power limit \d).*)$")


class LogTap(io.StringIO):
    """A text stream that keeps everything in a log file and hands the components' lines to a callback."""

    def __init__(self, file: TextIO, on_line: Callable[[str], None]) -> None:
        """Write to ``file`` and call ``on_line`` with each line of a component, without its line end."""
        super().__init__()
        self._file = file
        self._on_line = on_line
        self._rest = ""

    def write(self, text: str) -> int:
        """Take a piece of output, a line or a part of one."""
        self._file.write(text)
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            match = _OURS.match(line)
            if match:
                self._on_line(match[1])
        return len(text)

    def flush(self) -> None:
        """Flush the log file."""
        self._file.flush()

    def isatty(self) -> bool:
        """Return False: colours belong on a terminal, not into a log."""
        return False


@contextmanager
def tapped_output(log_path: Path, on_line: Callable[[str], None]) -> Iterator[None]:
    """Send this process's output to a log file while the block runs, and the components' lines to a callback."""
    log_path.parent.mkdir(parents=True, exist_ok=True)
    with log_path.open("a", encoding="utf-8") as file:
        tap = LogTap(file, on_line)
        with redirect_stdout(tap), redirect_stderr(tap):
            yield
