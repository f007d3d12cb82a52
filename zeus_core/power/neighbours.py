"""Who else works on a GPU of this machine: its power limit holds for them too."""

import os
from collections.abc import Iterable, Mapping

from zeus_kfp.zeus_core.processes import TRIAL_VARIABLE, Process, descendants, mark, running


def neighbours(process_ids: Iterable[int], environ: Mapping[str, str] = os.environ) -> list[int]:
    """Return the processes that belong to someone else.

    Not someone else's are those of our own session, those of the same trial, what we have started, and the other ranks
    of our launcher: torchrun starts each rank in a session of its own. A process that can't be seen from here,
    because it runs outside this container, is left out: GPUs that pods share can't be told from one's own.

    Args:
        process_ids: Processes that work on the GPU.
        environ: Environment variables: ZEUS_KFP_TRIAL, WORLD_SIZE.
    """
    strangers = [process_id for process_id in process_ids if _is_another_session(process_id)]
    if not strangers:
        return []
    kin = _kin(running(), environ)
    trial = environ.get(TRIAL_VARIABLE, "")
    return [other for other in strangers if other not in kin and not (trial and mark(other) == trial)]


def _kin(processes: dict[int, Process], environ: Mapping[str, str]) -> set[int]:
    """Return what descends from us and, of several ranks, from whoever has started them."""
    kin = descendants(os.getpid(), processes)
    launcher = os.getppid()
    # Process 1 takes in whoever loses its parent, and so is nobody's launcher for sure.
    if environ.get("WORLD_SIZE", "").strip() and launcher > 1:
        kin |= {launcher} | descendants(launcher, processes)
    return kin


def _is_another_session(process_id: int) -> bool:
    try:
        return os.getsid(process_id) != os.getsid(0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
