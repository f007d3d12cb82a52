"""A user's code as the pipeline carries it: a name, and for a plain function its source."""

import ast
import builtins
import dis
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from zeus_kfp.zeus_core.errors import EntryPointError, InvalidValueError
from zeus_kfp.zeus_core.validation import text

_HASH_PATHS = "zeus_kfp.components.fingerprint_data.fingerprint:fingerprint_of_paths"
_ADVICE = "or put the function into a module of the training image and give 'module:function'"


KFP_PLACEHOLDER = "{{$"
"""How a placeholder of KFP begins: in any text of a pipeline KFP puts a value of its own in its place."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What to run: an entry point, and the source text that defines it where no module of the image does."""

    entry_point: str = ""
    source: str = ""
    arguments: str = "{}"


def entry_of(code: str | Callable[..., Any] | None, argument: str) -> Entry:
    """Return the entry of user code: a string as it stands, a plain function with its source.

    Args:
        code: "module:function" and the like, a function, or None for nothing.
        argument: What the function is called with, for the message: its first and only required argument; "" for none.

    Raises:
        EntryPointError: If a function can't stand alone: a lambda, a method, a decorated one, one that uses names
            from outside, or one that can't be called with the argument.
    """
    if code is None:
        return Entry()
    if isinstance(code, str):
        return Entry(code.strip())
    if not inspect.isfunction(code) or not code.__name__.isidentifier():
        raise EntryPointError(f"{code!r} is no plain function: define it with def, {_ADVICE}")
    if inspect.iscoroutinefunction(code) or inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
        raise EntryPointError(f"{code.__name__} is a coroutine or generator, which would not run when it is called")
    _check_callable(code, argument)
    definition, source = _definition(code)
    _check_stands_alone(code, definition)
    if KFP_PLACEHOLDER in source:
        raise EntryPointError(
            f"the source of {code.__name__} holds {KFP_PLACEHOLDER!r}, which KFP replaces: split it up, {_ADVICE}"
        )
    return Entry(code.__name__, "from __future__ import annotations\n\n" + source)


def function_entry_of(code: str | Callable[..., Any] | None, argument: str) -> Entry:
    """Return the entry of user code that no command can be: a function by its name, or a plain one with its source.

    Raises:
        EntryPointError: If it is no function, or one that can't stand alone.
    """
    entry = entry_of(code, argument)
    if entry.entry_point and not entry.source and ":" not in entry.entry_point:
        raise EntryPointError(f"{entry.entry_point!r} names no function: give 'module:function', or a plain function")
    return entry


def fingerprint_entry(fingerprint: str | Callable[..., Any] | Sequence[str] | None) -> Entry:
    """Return the entry of what tells the raw data's version: code, or files and folders to hash.

    Raises:
        EntryPointError: If a function can't stand alone.
        InvalidValueError: If it is no code and no list of paths.
    """
    if fingerprint is None or isinstance(fingerprint, str) or callable(fingerprint):
        return function_entry_of(fingerprint, "")
    if not isinstance(fingerprint, Sequence):
        raise InvalidValueError(f"the fingerprint must be a function or a list of paths, not {fingerprint!r}")
    paths = [text("a path of the fingerprint", path, at_most=4096) for path in fingerprint]
    if not paths:
        raise InvalidValueError("the fingerprint has no paths: give files or folders, or None for no fingerprint")
    for path in paths:
        if "://" in path:
            raise InvalidValueError(
                f"the path {path!r} of the fingerprint is a URI, which no step can read as a file: mount it, or give a "
                "function that asks its store for a version or an ETag"
            )
    return Entry(_HASH_PATHS, arguments=json.dumps({"paths": paths}))


def _check_callable(function: Callable[..., Any], argument: str) -> None:
    owner = function.__qualname__.split(".")[-2:-1]
    if owner and owner != ["<locals>"]:
        raise EntryPointError(f"{function.__qualname__} is a method: define a plain function, {_ADVICE}")
    try:
        inspect.signature(function).bind(*filter(None, [argument]))
    except TypeError as error:
        wanted = f"take one argument, the {argument}, and" if argument else "need no argument:"
        raise EntryPointError(f"{function.__name__} must {wanted} have defaults for any others: {error}") from None


def _definition(function: Callable[..., Any]) -> tuple[ast.FunctionDef, str]:
    """Return a function's definition and its source, as it would stand at the top of a module."""
    try:
        source = inspect.getsource(function)
        nested = source[:1].isspace()
        # Not textwrap.dedent, which would change the text inside a string of several lines.
        tree = ast.parse("if True:\n" + source if nested else source)
    except (OSError, TypeError, SyntaxError) as error:
        raise EntryPointError(f"the source of {function.__name__} can't be read: {error}") from error
    statement: ast.AST = tree.body[0]
    definition = statement.body[0] if isinstance(statement, ast.If) else statement
    if not isinstance(definition, ast.FunctionDef):
        raise EntryPointError(f"{function.__name__} is not defined by a def statement: define it with one, {_ADVICE}")
    return definition, ast.unparse(definition) + "\n" if nested else source


def _check_stands_alone(function: Callable[..., Any], definition: ast.FunctionDef) -> None:
    name = function.__name__
    if definition.decorator_list:
        decorators = [f"@{ast.unparse(decorator)}" for decorator in definition.decorator_list]
        raise EntryPointError(
            f"{name} is decorated with {', '.join(decorators)}, which its source alone can't carry: remove that, "
            f"{_ADVICE}"
        )
    outside = {*function.__code__.co_freevars, *_globals_used(function.__code__), *_names_in_defaults(definition)}
    missing = sorted(n for n in outside - {name} if not _is_builtin(n, function.__globals__))
    if missing:
        raise EntryPointError(
            f"{name} uses {', '.join(missing)} from outside; the function is shipped to the training pod by its "
            f"source: import and define what it needs inside it, {_ADVICE}"
        )


def _is_builtin(name: str, module_names: Mapping[str, Any]) -> bool:
    """Whether a name means a builtin, which is there in the pod too, and nothing else of the function's module."""
    builtin = getattr(builtins, name, None)
    # A notebook's open is IPython's wrapper of the builtin.
    return builtin is not None and inspect.unwrap(module_names.get(name, builtin)) is builtin


def _names_in_defaults(definition: ast.FunctionDef) -> set[str]:
    defaults: Sequence[ast.expr | None] = [*definition.args.defaults, *definition.args.kw_defaults]
    nodes = [node for default in defaults if default is not None for node in ast.walk(default)]
    return {node.id for node in nodes if isinstance(node, ast.Name)}


def _globals_used(code: CodeType) -> set[str]:
    """Return the global names that a function's code reads, the nested functions' too."""
    # inspect.getclosurevars would take an attribute's name, such as train in trial.train, for a global.
    names = {i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _globals_used(constant)
    return {name for name in names if name.isidentifier()}
