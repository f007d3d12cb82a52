"""The power limits that a trial finds: where they are kept, and whether they stand again at its end."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from zeus_kfp.components.train_with_profiling.outcome import node_name
from zeus_kfp.zeus_core.power.found import FOLDER_VARIABLE, FoundFile, limits_folder
from zeus_kfp.zeus_core.power.note import is_same


def with_limits_folder(environ: Mapping[str, str], checkpoint_dir: str) -> Mapping[str, str]:
    """Return the environment with the limits found kept where the loss of a whole pod can't take them, if it can be."""
    if environ.get(FOLDER_VARIABLE) or not checkpoint_dir:
        return environ
    kept = {**environ, FOLDER_VARIABLE: str(Path(checkpoint_dir) / "zeus-kfp-limits")}
    try:
        # Not every volume has locks.
        FoundFile(limits_folder(kept) / "lock").close()
    except OSError:
        return environ
    return kept


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
