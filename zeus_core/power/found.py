"""The power limit that a GPU had before anyone here changed it, kept in a file so that no kill can lose it.

Each GPU has one file in a folder that the processes of a machine share. Whoever changes the limit holds the file's
lock for as long as it does, and the kernel frees the lock when the process dies, however it dies. So a file that
isn't empty while its lock is free is what a killed process left behind, and whoever finds it can repair the limit.
"""

import fcntl
import json
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from zeus_kfp.zeus_core.validation import number

FOLDER_VARIABLE = "ZEUS_KFP_LIMITS_FOLDER"
"""Folder of the files; mounted from the node it lets the next pod repair what a killed one left."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Found:
    """What a file says of its GPU.

    Attributes:
        found_w: Power limit in W before any change.
        set_w: Every limit in W that may have been set since.
        boot_id: The machine's boot that this belongs to; a limit does not outlive it.
        process_id: Who wrote it.
    """

    found_w: float
    set_w: tuple[float, ...]
    boot_id: str
    process_id: int

    @classmethod
    def from_json(cls, document: str) -> Self | None:
        """Return what a file says; None if it is empty, broken, or of an earlier boot."""
        try:
            values = json.loads(document)
            found_w = number("found_w", values["found_w"], above=0)
            set_w = tuple(number("set_w", value, above=0) for value in values["set_w"])
            found = cls(found_w, set_w, str(values["boot_id"]), int(values["process_id"]))
        except (TypeError, ValueError, KeyError, RecursionError):
            return None
        return found if found.boot_id == boot_id() else None


class FoundFile:
    """The file of one GPU, locked by this process until it is closed."""

    def __init__(self, path: Path) -> None:
        """Lock the file, which is made if it is missing.

        Raises:
            BlockingIOError: If another process, or another limiter in this one, holds it.
            OSError: If it can't be opened.
        """
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise

    def read(self) -> Found | None:
        """Return what a process before us left; None if it left nothing."""
        return Found.from_json(os.pread(self._file, 1 << 16, 0).decode("utf-8", errors="replace"))

    def write(self, found_w: float, set_w: tuple[float, ...]) -> None:
        """Note the limit found, and those that may stand from now on; one call, so that no kill tears it.

        Raises:
            OSError: If it can't be written.
        """
        values = {"found_w": found_w, "set_w": set_w, "boot_id": boot_id(), "process_id": os.getpid()}
        content = json.dumps(values).encode()
        # Blanks after the object hide the rest of a longer one before it.
        size = max(len(content), os.fstat(self._file).st_size)
        os.pwrite(self._file, content.ljust(size), 0)

    def clear(self) -> None:
        """Say that there is nothing to repair."""
        os.ftruncate(self._file, 0)

    def close(self) -> None:
        """Free the lock; the file stays, since another process may be about to lock it."""
        fcntl.flock(self._file, fcntl.LOCK_UN)
        os.close(self._file)


def folder_path(environ: Mapping[str, str]) -> Path:
    """Return where the folder of the files is, or would be."""
    usual = Path(tempfile.gettempdir()) / f"zeus-kfp-limits-{os.getuid()}"
    return Path(environ.get(FOLDER_VARIABLE) or usual)


def limits_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of the files, made if it is missing; only its owner may write to it.

    Args:
        environ: Environment variables: ZEUS_KFP_LIMITS_FOLDER.

    Raises:
        OSError: If it can't be made, or belongs to someone else.
    """
    folder = folder_path(environ)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Whoever can write here decides which limit a privileged process sets.
    if folder.stat().st_uid != os.getuid() or folder.stat().st_mode & stat.S_IWOTH:
        raise PermissionError(f"{folder} must belong to user {os.getuid()} and be writable by no one else")
    return folder


def found_path(folder: Path, uuid: str) -> Path:
    """Return the file of a GPU."""
    return folder / f"{uuid.replace('/', '_')}.json"


def left_behind(folder: Path) -> Iterator[tuple[str, FoundFile]]:
    """Yield the GPUs (by UUID) whose limit a process that is gone may have left changed, each under its lock."""
    for path in sorted(folder.glob("*.json")):
        try:
            file = FoundFile(path)
        except OSError:  # its process is alive
            continue
        try:
            if file.read() is not None:
                yield path.stem, file
        finally:
            file.close()


def holder(path: Path) -> str:
    """Return who holds a file's lock, for people."""
    try:
        values: Any = json.loads(path.read_text(encoding="utf-8"))
        return "another trial of this process" if values["process_id"] == os.getpid() else "another process"
    except (OSError, ValueError, TypeError, KeyError):
        return "another trial"


def boot_id() -> str:
    """Return what tells this boot of the machine from any other; "" where nothing does."""
    try:
        return _BOOT_ID.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
