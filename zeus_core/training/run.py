"""Run a user's training function; the main module of the process that trains.

    python -m zeus_kfp.zeus_core.training.run module:function

The trial is found through the environment, see :mod:`zeus_kfp.zeus_core.training.assignment`.
"""

import importlib
import inspect
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from zeus_kfp.zeus_core.errors import DivergedError, EntryPointError
from zeus_kfp.zeus_core.training.assignment import read_assignment
from zeus_kfp.zeus_core.training.summary import Ending, Summary
from zeus_kfp.zeus_core.training.trial import Trial

NO_ENTRY_POINT_EXIT_CODE = 78
"""EX_CONFIG: the entry point can't be found or called; the summary says why."""

EXIT_GRACE_S = 60.0
"""How long a process may take to end once its training has returned."""


def find_function(entry_point: str) -> Callable[[Trial], Any]:
    """Return the training function that ``module:function`` names.

    Raises:
        EntryPointError: If there is no such module or function, or it can't be called with a trial alone.
    """
    return _checked(entry_point, look_up(entry_point))


def look_up(entry_point: str) -> Any:
    """Return what ``module:function`` names.

    Raises:
        EntryPointError: If there is no such module, or nothing of that name in it.
    """
    module_name, _, function_name = entry_point.partition(":")
    found: Any = _imported(module_name)
    for name in function_name.split("."):
        if not hasattr(found, name):
            raise EntryPointError(
                f"{entry_point!r}: {module_name} has no {function_name!r}; its functions are {_function_names(found)}"
            )
        found = getattr(found, name)
    return found


def main(entry_point: str) -> int:
    """Train, and return the exit code."""
    assignment = read_assignment()
    # A program started with -m finds modules in the folder that it runs in, unless Python is told otherwise.
    sys.path.insert(0, os.getcwd())
    try:
        function = find_function(entry_point)
    except EntryPointError as error:
        Summary(Ending.NO_ENTRY_POINT, reason=str(error)[:4000]).write(assignment.summary_path)
        return NO_ENTRY_POINT_EXIT_CODE
    trial = Trial.from_environment()
    try:
        function(trial)
    except DivergedError as error:
        print(error, flush=True)
    finally:
        trial.close()
    _end_in_any_case()
    return 0


def _end_in_any_case() -> None:
    """Let no thread or exit hook that the training left behind keep the process, and its GPU, for ever."""

    def end() -> None:
        alive = [t.name for t in threading.enumerate() if not t.daemon and t is not threading.main_thread()]
        why = f"still running are the threads {alive}" if alive else "an exit hook or a child process holds it up"
        print(f"training has returned, but its process did not end within {EXIT_GRACE_S:g} s: {why}", flush=True)
        os._exit(0)

    timer = threading.Timer(EXIT_GRACE_S, end)
    timer.daemon = True
    timer.start()


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # A module that is there but misses one of its own imports is a failure of the training, with a traceback.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise EntryPointError(
            f"{name!r} is no module that can be imported ({error}); looked in {sys.path[:3]} and the installed "
            "packages: put the code into the training image, or set PYTHONPATH"
        ) from None


def _function_names(found: Any) -> list[str]:
    functions = [name for name, value in vars(found).items() if inspect.isfunction(value)]
    return sorted(name for name in functions if not name.startswith("_"))[:20]


def _checked(entry_point: str, found: Any) -> Callable[[Trial], Any]:
    if not callable(found):
        raise EntryPointError(f"{entry_point!r} is no function but a {type(found).__name__}")
    if inspect.iscoroutinefunction(found) or inspect.isgeneratorfunction(found) or inspect.isasyncgenfunction(found):
        raise EntryPointError(f"{entry_point!r} is a coroutine or generator, which would not run when it is called")
    try:
        inspect.signature(found).bind(object())
    except TypeError as error:
        raise EntryPointError(f"{entry_point!r} must take one argument, the trial: {error}") from None
    except ValueError:  # a function written in C shows no signature
        pass
    function: Callable[[Trial], Any] = found
    return function


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
