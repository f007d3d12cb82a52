"""The lock of a GPU that all processes of a machine share, whatever user, folder or environment they have.

It is a name that only one of them has at a time: that of a Unix socket without a file, on which nobody listens. Having
it takes no right, and the kernel frees it when the process dies. Such names are kept apart for each network namespace,
so those of two pods are two.
"""

import errno
import socket
from pathlib import Path

_NAME = "zeus-kfp/power-limit/"


def govern(uuid: str) -> int:
    """Take a GPU's name and return what holds it, to be closed; -1 where there are no such names but on Linux.

    Raises:
        BlockingIOError: If another process, or another limiter in this one, has it.
    """
    try:
        with socket.socket(socket.AF_UNIX) as holding:
            holding.bind(f"\0{_NAME}{uuid}")
            return holding.detach()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise BlockingIOError(error.errno, f"another process governs {uuid}") from error
        return -1


def is_governed(uuid: str, proc: Path) -> bool:
    """Return whether a process has a GPU's name, without touching it.

    Args:
        uuid: The GPU.
        proc: Where Linux shows processes.
    """
    try:
        lines = (proc / "net" / "unix").read_text(errors="replace").splitlines()
    except OSError:
        return False
    return any(line.endswith(f" @{_NAME}{uuid}") for line in lines)
