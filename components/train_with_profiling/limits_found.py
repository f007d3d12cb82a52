"""The power limits that a trial finds: where they are kept, and whether they stand again at its end."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from zeus_kfp.components.train_with_profiling.outcome import node_name
from zeus_kfp.zeus_core.power.found import FOLDER_VARIABLE, FoundFile, folder_path, limits_folder
from zeus_kfp.zeus_core.power.note import is_same


def with_limits_folder(environ: Mapping[str, str], checkpoint_dir: str) -> Mapping[str, str]:
    """Return the environment with the limits found kept where the loss of a whole pod can't take them, if it can be.

    The folder is absolute: whoever looks after what training leaves must find it, wherever training goes.
    """
    try:
        if not environ.get(FOLDER_VARIABLE) and checkpoint_dir:
            beside = _with_folder(environ, Path(checkpoint_dir) / "zeus-kfp-limits")
            if _has_locks(beside):
                return beside
        return _with_folder(environ, folder_path(environ))
    except OSError:  # there is no folder for temporary files
        return environ


def _with_folder(environ: Mapping[str, str], folder: Path) -> Mapping[str, str]:
    return {**environ, FOLDER_VARIABLE: str(folder.absolute())}


def _has_locks(environ: Mapping[str, str]) -> bool:
    """Return whether files can be locked where limits would be kept: not every volume has that."""
    try:
        FoundFile(limits_folder(environ) / "lock").close()
    except BlockingIOError:  # another trial is finding that out just now
        return True
    except OSError:
        return False
    return True


def left_changed(found_w: Mapping[str, float], standing_w: Mapping[str, float]) -> Iterator[str]:
    """Yield a line for people about each GPU that has another limit at the end than it had before.

    Args:
        found_w: Limits in W before the trial, by UUID.
        standing_w: Limits in W after it, by UUID.
    """
    for uuid, limit_w in found_w.items():
        standing = standing_w.get(uuid)
        if standing is not None and not is_same(standing, limit_w):
            yield (
                f"warning: {uuid} on {node_name()} had a power limit of {limit_w:g} W before this trial, and has "
                f"{standing:g} W after it"
            )
