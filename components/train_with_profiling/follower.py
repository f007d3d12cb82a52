"""Follow the history that a training process writes, line by line, without trusting it."""

from collections.abc import Callable
from pathlib import Path

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.training.history import EpochRecord


class HistoryFollower:
    """Reads what is new in a history file and keeps the good lines in another."""

    def __init__(self, source: Path, target: Path, warn: Callable[[str], None]) -> None:
        """Begin with an empty target.

        Args:
            source: File that the training process appends to; need not be there yet.
            target: File that gets every good line.
            warn: Gets a line for people for every bad one.
        """
        self._source = source
        self._target = target
        self._warn = warn
        self._offset = 0
        self._rest = b""
        self.records: list[EpochRecord] = []
        target.write_text("", encoding="utf-8")

    def read_new(self, *, final: bool = False) -> list[EpochRecord]:
        """Return the records that came since the last call.

        Args:
            final: Whether the process has ended, so that a last line without its end counts too.
        """
        lines = (self._rest + self._read_on()).split(b"\n")
        self._rest = b"" if final else lines.pop()
        new = [record for line in lines if line.strip() and (record := self._record(line))]
        self.records += new
        if final:
            # Written whole at the end: the process may have removed the folder meanwhile.
            self._target.parent.mkdir(parents=True, exist_ok=True)
            self._target.write_text("".join(record.to_line() for record in self.records), encoding="utf-8")
        return new

    def _read_on(self) -> bytes:
        try:
            with self._source.open("rb") as stream:
                stream.seek(self._offset)
                content = stream.read()
        except OSError:  # not written yet
            return b""
        self._offset += len(content)
        return content

    def _record(self, line: bytes) -> EpochRecord | None:
        try:
            return EpochRecord.from_line(line.decode("utf-8", errors="replace"))
        except InvalidValueError as error:
            self._warn(f"warning: a line of the history is left out: {error}")
            return None
