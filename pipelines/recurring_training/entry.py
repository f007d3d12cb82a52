"""A user's code as the pipeline carries it: a name, and for a plain function its source."""

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
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
    _check_stands_alone(code)
    try:
        source = textwrap.dedent(inspect.getsource(code))
    except (OSError, TypeError) as error:
        raise EntryPointError(f"the source of {code.__name__} can't be read: {error}") from error
    return Entry(code.__name__, "from __future__ import annotations\n\n" + source)


def _check_stands_alone(function: Callable[..., Any]) -> None:
    used = inspect.getclosurevars(function)
    outside = sorted([*used.nonlocals, *used.globals])
    if outside:
        raise EntryPointError(
            f"{function.__name__} uses {', '.join(outside)} from outside; the function is shipped to the training "
            "pod by its source: import and define what it needs inside it, or give 'module:function'"
        )
