"""Turn a user's entry point into a command line, and refuse what can't be one before anything is trained."""

import ast
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from zeus_kfp.zeus_core.errors import EntryPointError

ALLOWED = (
    "allowed are module:function (called with the trial), a script such as train.py --depth 3, "
    "or any command such as torchrun train.py"
)
SOURCE_MODULE = "zeus_kfp_entry"
"""Name of the module that a function's shipped source becomes."""

_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_RUNNER = (sys.executable, "-m", "zeus_kfp.zeus_core.training.run")


@dataclass(frozen=True, slots=True)
class Command:
    """What to start.

    Attributes:
        argv: Program and arguments.
        environ: Variables to set on top of the supervisor's.
    """

    argv: tuple[str, ...]
    environ: Mapping[str, str] = field(default_factory=dict)


def resolve(entry_point: str, entry_source: str, scratch: Path, environ: Mapping[str, str]) -> Command:
    """Return the command of an entry point.

    Args:
        entry_point: module:function, a script with its arguments, or any command; with ``entry_source``, the name
            of a function in it.
        entry_source: Source text of a module; "" for none.
        scratch: Folder that the source is written to.
        environ: Environment that the command will run in; a program is looked for on its PATH.

    Raises:
        EntryPointError: If it is nothing that can be started.
    """
    if not entry_point.strip():
        raise EntryPointError(f"the entry point is empty; {ALLOWED}")
    if entry_source:
        return _from_source(entry_point.strip(), entry_source, scratch, environ)
    if _FUNCTION.fullmatch(entry_point.strip()):
        return Command((*_RUNNER, entry_point.strip()))
    return Command(_command_line(entry_point, environ))


def _from_source(entry_point: str, source: str, scratch: Path, environ: Mapping[str, str]) -> Command:
    function = entry_point.rpartition(":")[2]
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError) as error:
        raise EntryPointError(f"the source shipped for {function!r} is no Python: {error}") from None
    defined = [node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    if function not in defined:
        raise EntryPointError(f"the source shipped for {function!r} doesn't define it; it defines {defined}")
    (scratch / f"{SOURCE_MODULE}.py").write_text(source, encoding="utf-8")
    path = os.pathsep.join(filter(None, (str(scratch), environ.get("PYTHONPATH", ""))))
    return Command((*_RUNNER, f"{SOURCE_MODULE}:{function}"), {"PYTHONPATH": path})


def _command_line(entry_point: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    try:
        program, *arguments = shlex.split(entry_point)
    except ValueError as error:
        raise EntryPointError(f"{entry_point!r} can't be split into words: {error}; {ALLOWED}") from None
    if program.endswith(".py"):
        if not Path(program).is_file():
            raise EntryPointError(f"{entry_point!r}: there is no script {program!r} in {os.getcwd()}; {ALLOWED}")
        return (sys.executable, program, *arguments)
    found = shutil.which(program, path=environ.get("PATH"))
    if found is None:
        raise EntryPointError(f"{entry_point!r}: there is no program {program!r} on PATH; {ALLOWED}")
    return (found, *arguments)
