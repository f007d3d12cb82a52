import math

import numpy as np
import pytest

from zeus_kfp.zeus_core.errors import InvalidValueError, ZeusError
from zeus_kfp.zeus_core.validation import integer, integral, number, text


@pytest.mark.parametrize("value", [True, 8.0, "8", None, math.nan, [8]])
def test_only_an_integer_is_an_integer(value: object) -> None:
    with pytest.raises(InvalidValueError, match="knob must be an integer, not"):
        integer("knob", value)


def test_a_numpy_integer_comes_back_as_an_int() -> None:
    assert type(integer("knob", np.int64(8))) is int


@pytest.mark.parametrize(
    ("value", "message"), [(0, "knob must be at least 1, not 0"), (10, "knob must be at most 9, not 10")]
)
def test_a_range_is_named_with_the_value(value: int, message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        integer("knob", value, at_least=1, at_most=9)


@pytest.mark.parametrize("value", [True, "0.5", None, math.nan, math.inf, -math.inf, 1 + 0j])
def test_only_a_finite_number_is_a_number(value: object) -> None:
    with pytest.raises(InvalidValueError, match="knob must be a (finite )?number, not"):
        number("knob", value)


def test_an_infinity_passes_where_it_is_allowed_but_nan_never() -> None:
    assert number("knob", math.inf, above=1, finite=False) == math.inf
    with pytest.raises(InvalidValueError):
        number("knob", math.nan, finite=False)


@pytest.mark.parametrize(("value", "above"), [(0, 0), (-1e-300, 0), (1.0, 1)])
def test_above_excludes_the_bound(value: float, above: float) -> None:
    with pytest.raises(InvalidValueError, match=f"knob must be above {above}, not"):
        number("knob", value, above=above)


def test_an_integer_too_large_for_a_float_is_a_clear_error() -> None:
    with pytest.raises(InvalidValueError, match="knob"):
        number("knob", 10**400)
    with pytest.raises(InvalidValueError, match="knob"):
        number("knob", -(10**400), above=1, finite=False)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (8, "must be text"),
        (b"job", "must be text"),
        ("", "must not be empty"),
        ("x" * 256, "may have 255 characters at most, not 256"),
        ("a\0b", "NUL"),
        ("a\ud800b", "lone surrogate"),
    ],
)
def test_text_that_a_database_would_not_keep_is_refused(value: object, message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        text("job_id", value)


def test_text_of_any_language_is_kept() -> None:
    assert text("job_id", "Ünïcode 名前 🔋") == "Ünïcode 名前 🔋"
    assert text("user", "", allow_empty=True) == ""


@pytest.mark.parametrize(("value", "expected"), [(8, 8), (8.0, 8), (-3.0, -3)])
def test_whole_floats_from_kfp_are_integers(value: float, expected: int) -> None:
    assert integral("size", value) == expected


@pytest.mark.parametrize("value", [8.5, math.nan, math.inf, True, "8"])
def test_anything_else_from_kfp_is_not(value: object) -> None:
    with pytest.raises(InvalidValueError, match="size must be an integer"):
        integral("size", value)


def test_a_refused_value_is_both_our_error_and_a_value_error() -> None:
    assert issubclass(InvalidValueError, ZeusError)
    assert issubclass(InvalidValueError, ValueError)
