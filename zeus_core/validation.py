"""Checks for values that come from outside; every failure names the value, what is allowed and where."""

import math
from numbers import Integral, Real
from typing import Any

from zeus_kfp.zeus_core.errors import InvalidValueError

MAX_INTEGER = 2**31 - 1
"""Largest integer that every supported database keeps in an integer column."""

MAX_ENERGY_J = 1e15
MAX_TIME_S = 1e10
MAX_POWER_W = 1e9
"""More than any training takes, and little enough that no cost made of them overflows."""


def integer(name: str, value: Any, *, at_least: int | None = None, at_most: int | None = None) -> int:
    """Return ``value`` as an int.

    Args:
        name: What the value is called, for the message.
        value: An integer; a bool, a float (8.0 too) or a string is refused.
        at_least: Smallest value allowed.
        at_most: Largest value allowed.

    Raises:
        InvalidValueError: If it is no integer or lies outside the range.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InvalidValueError(f"{name} must be an integer, not {value!r} ({type(value).__name__})")
    _check_range(name, value, at_least, at_most)
    return int(value)


def number(
    name: str,
    value: Any,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    above: float | None = None,
    finite: bool = True,
) -> float:
    """Return ``value`` as a float.

    Args:
        name: What the value is called, for the message.
        value: A real number; NaN, a bool or a string is refused.
        at_least: Smallest value allowed.
        at_most: Largest value allowed.
        above: The value must be larger than this.
        finite: Whether infinities are refused too.

    Raises:
        InvalidValueError: If it is no such number or lies outside the range.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InvalidValueError(f"{name} must be a number, not {value!r} ({type(value).__name__})")
    try:
        result = float(value)
    except OverflowError:
        raise InvalidValueError(f"{name} must be a finite number, not an integer larger than any") from None
    if math.isnan(result) or (finite and math.isinf(result)):
        raise InvalidValueError(f"{name} must be a finite number, not {value!r}")
    if above is not None and not result > above:
        raise InvalidValueError(f"{name} must be above {above:g}, not {value!r}")
    _check_range(name, result, at_least, at_most)
    return result


def truth(name: str, value: Any) -> bool:
    """Return ``value`` if it is true or false.

    Raises:
        InvalidValueError: If it is anything else.
    """
    if not isinstance(value, bool):
        raise InvalidValueError(f"{name} must be true or false, not {value!r} ({type(value).__name__})")
    return value


def text(name: str, value: Any, *, at_most: int = 255, allow_empty: bool = False) -> str:
    """Return ``value`` if it is a string that every supported database stores verbatim.

    Raises:
        InvalidValueError: If it is no string, is empty or too long, or holds a NUL or a lone surrogate.
    """
    if not isinstance(value, str):
        raise InvalidValueError(f"{name} must be text, not {value!r} ({type(value).__name__})")
    if not value and not allow_empty:
        raise InvalidValueError(f"{name} must not be empty")
    if len(value) > at_most:
        raise InvalidValueError(f"{name} may have {at_most} characters at most, not {len(value)}")
    if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise InvalidValueError(f"{name} must not hold NUL or lone surrogate characters: {value!r}")
    return value


def integral(name: str, value: Any) -> int:
    """Return a KFP parameter as an int; 8.0 is 8, since KFP turns integers in lists and dicts into floats.

    Raises:
        InvalidValueError: If the value is not a whole number.
    """
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return integer(name, value)


def _check_range(name: str, value: Any, at_least: float | None, at_most: float | None) -> None:
    if at_least is not None and value < at_least:
        raise InvalidValueError(f"{name} must be at least {at_least}, not {value!r}")
    if at_most is not None and value > at_most:
        raise InvalidValueError(f"{name} must be at most {at_most}, not {value!r}")
