"""Who else works on a GPU of this machine: its power limit holds for them too."""

import os
from collections.abc import Iterable


def neighbours(process_ids: Iterable[int]) -> list[int]:
    """Return the processes that belong to someone else.

    Those of our own session (a launcher's other ranks, workers) are not. A process that can't be seen from here,
    because it runs outside this container, is left out: GPUs that pods share can't be told from one's own.
    """
    return [process_id for process_id in process_ids if _is_another_session(process_id)]


def _is_another_session(process_id: int) -> bool:
    try:
        return os.getsid(process_id) != os.getsid(0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
