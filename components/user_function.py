"""The user's functions, by name or by the source that the pipeline carries."""

import os
import sys
from typing import Any

from zeus_kfp.zeus_core.errors import EntryPointError
from zeus_kfp.zeus_core.training.run import look_up


def user_function(what: str, entry_point: str, source: str) -> Any:
    """Return a function of the user's.

    Args:
        what: What it is for, for the message.
        entry_point: module:function, or a function's name where the source is given.
        source: Source text that defines the function, or "".

    Raises:
        EntryPointError: If there is none.
    """
    if not source:
        if ":" not in entry_point:
            raise EntryPointError(f"{what} must be module:function, not {entry_point!r}")
        # As a module that is run would: code beside the working directory is found too.
        sys.path.insert(0, os.getcwd())
        return look_up(entry_point)
    namespace: dict[str, Any] = {"__name__": "user_function"}
    exec(compile(source, f"<{what}>", "exec"), namespace)
    if entry_point not in namespace:
        raise EntryPointError(f"the source shipped for {entry_point!r} doesn't define it")
    return namespace[entry_point]
