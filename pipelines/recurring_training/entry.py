"""A user's code as the pipeline carries it: a name, and for a plain function its source."""

import builtins
import dis
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any

from zeus_kfp.zeus_core.errors import EntryPointError


@dataclass(frozen=True, slots=True)
class Entry:
    """What to run: an entry point, and the source text that defines it where no module of the image does."""

    entry_point: str = ""
    source: str = ""


def entry_of(code: str | Callable[..., Any] | None) -> Entry:
    """Return the entry of user code: a string as it stands, a plain function with its source.

    Raises:
        EntryPointError: If a function can't stand alone: a lambda, a method, or one that uses names from outside.
    """
    if code is None:
        return Entry()
    if isinstance(code, str):
        return Entry(code)
    if not inspect.isfunction(code) or not code.__name__.isidentifier():
        raise EntryPointError(f"{code!r} is no plain function: define it with def, or give 'module:function'")
    if inspect.iscoroutinefunction(code) or inspect.isgeneratorfunction(code):
        raise EntryPointError(f"{code.__name__} is a coroutine or generator, which would not run when it is called")
    _check_stands_alone(code)
    try:
        source = textwrap.dedent(inspect.getsource(code))
    except (OSError, TypeError) as error:
        raise EntryPointError(f"the source of {code.__name__} can't be read: {error}") from error
    return Entry(code.__name__, "from __future__ import annotations\n\n" + source)


def _check_stands_alone(function: Callable[..., Any]) -> None:
    outside = sorted({*function.__code__.co_freevars, *_globals_used(function.__code__)} - {function.__name__})
    if outside:
        raise EntryPointError(
            f"{function.__name__} uses {', '.join(outside)} from outside; the function is shipped to the training "
            "pod by its source: import and define what it needs inside it, or give 'module:function'"
        )


def _globals_used(code: CodeType) -> set[str]:
    """Return the global names that a function's code reads, the nested functions' too, without the builtins."""
    # inspect.getclosurevars would take an attribute's name, such as train in trial.train, for a global.
    names = {i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _globals_used(constant)
    return {name for name in names if name.isidentifier() and not hasattr(builtins, name)}
