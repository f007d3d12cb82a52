"""The power limit that a GPU had before anyone here changed it, kept in a file so that no kill can lose it.

Each GPU has one file in a folder that the processes of a machine share. Whoever changes the limit holds the file's
lock for as long as it does, and the kernel frees the lock when the process dies, however it dies. So a file that
isn't empty while its lock is free is what a killed process left behind, and whoever finds it can repair the limit.

With the file goes the GPU's name on this machine, so that processes whose folders differ never change one limit at the
same time; see :mod:`zeus_kfp.zeus_core.power.governing`. The file's lock holds between machines that share a volume.

A process that is forked off shares its parent's locks, and would keep them after the parent's death; so it lets go of
them at once.
"""

import fcntl
import json
import os
import stat
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from zeus_kfp.zeus_core.power.governing import govern
from zeus_kfp.zeus_core.power.note import NODE_VARIABLE, TRIAL_KEY_VARIABLE, Found, WayBack, boot_id

FOLDER_VARIABLE = "ZEUS_KFP_LIMITS_FOLDER"
"""Folder of the files; mounted from the node it lets the next pod repair what a killed one left."""

_PAUSE_S = 0.02
_Held = TypeVar("_Held")


class FoundFile:
    """The file of one GPU, which this process alone governs until it is closed."""

    def __init__(self, path: Path, *, patience_s: float = 0.0) -> None:
        """Lock the file, which is made if it is missing, and take the GPU's name.

        Args:
            path: The file, as :func:`found_path` names it.
            patience_s: Time in s to wait for both: whoever only looks after what was left holds them for a moment.

        Raises:
            BlockingIOError: If another process, or another limiter in this one, holds one of them.
            OSError: If the file can't be opened.
        """
        self.path = path
        self._name = -1
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _OPEN.add(self)
        latest_s = time.monotonic() + patience_s
        try:
            _patiently(lambda: fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB), latest_s)
            self._name = _patiently(lambda: govern(path.stem), latest_s)
        except OSError:
            self.let_go()
            raise

    def read(self) -> Found | None:
        """Return what a process before us left on this machine; None if it left nothing."""
        found = self.read_any()
        return found if found is not None and found.is_of_this_boot else None

    def read_any(self) -> Found | None:
        """Return what a process left, on whatever machine; None if it left nothing."""
        return Found.from_json(os.pread(self._file, 1 << 16, 0).decode("utf-8", errors="replace"))

    def write(self, found_w: float, set_w: tuple[float, ...], *, way_back: WayBack | None = None) -> None:
        """Note the limit found, and those that may stand from now on; one call, so that no kill tears it.

        Args:
            found_w: Limit in W before any change.
            set_w: Limits in W that may stand from now on.
            way_back: How the limit can be set from elsewhere; None if it can't.

        Raises:
            OSError: If it can't be written.
        """
        node, trial = os.environ.get(NODE_VARIABLE, ""), os.environ.get(TRIAL_KEY_VARIABLE, "")
        found = Found(found_w, set_w, boot_id(), os.getpid(), node, way_back, trial)
        content = json.dumps(asdict(found)).encode()
        # Blanks after the object hide the rest of a longer one before it.
        size = max(len(content), os.fstat(self._file).st_size)
        os.pwrite(self._file, content.ljust(size), 0)

    def add(self, set_w: float) -> None:
        """Note that one more limit in W may stand, by whatever way back was noted.

        Raises:
            OSError: If it can't be written.
        """
        found = self.read_any()
        if found is not None and not found.was_set(set_w):
            self.write(found.found_w, (*found.set_w, set_w), way_back=found.way_back)

    def clear(self) -> None:
        """Say that there is nothing to repair."""
        os.ftruncate(self._file, 0)

    @property
    def is_open(self) -> bool:
        """Whether this process governs the GPU."""
        return self._file >= 0

    def close(self) -> None:
        """Free the GPU; the file stays, since another process may be about to lock it."""
        if self._file >= 0:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        self.let_go()

    def let_go(self) -> None:
        """Close this process's ways to the locks, without freeing those that another one shares."""
        for held in (self._name, self._file):
            if held >= 0:
                os.close(held)
        self._name = self._file = -1


_OPEN: weakref.WeakSet[FoundFile] = weakref.WeakSet()


def _let_go_of_all() -> None:
    for file in list(_OPEN):
        file.let_go()


os.register_at_fork(after_in_child=_let_go_of_all)


def _patiently(take: Callable[[], _Held], latest_s: float) -> _Held:
    while True:
        try:
            return take()
        except BlockingIOError:
            if time.monotonic() >= latest_s:
                raise
        time.sleep(_PAUSE_S)


def folder_path(environ: Mapping[str, str]) -> Path:
    """Return where the folder of the files is, or would be.

    Raises:
        OSError: If the environment names none, and there is no folder for temporary files.
    """
    told = environ.get(FOLDER_VARIABLE)
    return Path(told) if told else _temporary(environ) / f"zeus-kfp-limits-{os.getuid()}"


def _temporary(environ: Mapping[str, str]) -> Path:
    """Return the folder for temporary files, also of a process whose environment isn't this one's."""
    told = environ.get("TMPDIR", "")
    is_usable = os.path.isdir(told) and os.access(told, os.W_OK | os.X_OK)
    return Path(told if is_usable else tempfile.gettempdir()).absolute()


def own_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder that this user's files are in, or would be; nothing is made, and nothing promised.

    Of a folder that others may write to, such as a volume's, it is a folder of this user's own inside.

    Raises:
        OSError: If it can't be looked up.
    """
    folder = folder_path(environ)
    return folder if not folder.exists() or _is_private(folder) else folder / own_name()


def own_name() -> str:
    """Return the name of this user's folder in one that others may write to."""
    return f"user-{os.getuid()}"


def limits_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of this user's files, made if it is missing; only its owner may write to it.

    Args:
        environ: Environment variables: ZEUS_KFP_LIMITS_FOLDER, TMPDIR.

    Raises:
        OSError: If it can't be made, or belongs to someone else.
    """
    folder = folder_path(environ)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    own = own_folder(environ)
    try:
        own.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise PermissionError(_MUST.format(folder, os.getuid()) + f": {error}") from error
    if not _is_private(own):
        raise PermissionError(_MUST.format(own, os.getuid()))
    return own


_MUST = "{} must belong to user {} and be writable by no one else"


def _is_private(folder: Path) -> bool:
    # Whoever can write here decides which limit a privileged process sets. No link: it may point elsewhere later.
    found = folder.lstat()
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    return is_own and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def found_path(folder: Path, uuid: str) -> Path:
    """Return the file of a GPU."""
    return folder / f"{uuid.replace('/', '_')}.json"


def noted(folder: Path) -> list[tuple[Path, Found]]:
    """Return the files that say something of a GPU, of whatever machine, without touching their locks."""
    files = [(path, peek(path)) for path in sorted(folder.glob("*.json"))]
    return [(path, found) for path, found in files if found is not None]


def peek(path: Path) -> Found | None:
    """Return what a file says, whoever holds it; None if it says nothing."""
    try:
        return Found.from_json(path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None


def holder(path: Path) -> str:
    """Return who governs the GPU of a file that can't be locked, for people."""
    is_own = any(file.is_open and file.path.stem == path.stem for file in _OPEN)
    return "another trial of this process" if is_own else "another process"
