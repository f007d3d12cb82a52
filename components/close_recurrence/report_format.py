"""How the report writes numbers and other people's text."""

import math
import re
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

UNKNOWN = "–"
"""Stands where a value is not known."""

ESTIMATED = "≈"
"""Marks a value that rests on estimated energy."""

_ENERGY_UNITS = (("J", 1.0), ("kJ", 1e3), ("MJ", 1e6), ("GJ", 1e9), ("TJ", 1e12))
_TIME_UNITS = (("s", 1.0), ("min", 60.0), ("h", 3600.0), ("d", 86400.0))

# Control characters have no place in a page; bidirectional overrides would reorder the text around them.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_TERMINAL_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True, slots=True)
class Scale:
    """One unit for a whole column or axis, so that its numbers can be compared at a glance.

    Attributes:
        unit: The unit's symbol.
        size: The unit in J or s.
    """

    unit: str
    size: float

    @classmethod
    def for_energy(cls, values_j: Iterable[float | None]) -> Self:
        """Return the unit, J to TJ, in which the median of ``values_j`` (J; energies or costs) reads best."""
        return cls(*_fitting(_ENERGY_UNITS, values_j, smallest=1.0))

    @classmethod
    def for_time(cls, values_s: Iterable[float | None]) -> Self:
        """Return the unit, s to d, in which the median of ``values_s`` (s) reads best."""
        return cls(*_fitting(_TIME_UNITS, values_s, smallest=2.0))

    def text(self, value: float | None, *, estimated: bool = False) -> str:
        """Return ``value`` (J or s) in this unit without its symbol, marked if ``estimated``."""
        shown = number(None if value is None else value / self.size)
        return f"{ESTIMATED} {shown}" if estimated and shown != UNKNOWN else shown

    def with_unit(self, value: float | None, *, estimated: bool = False) -> str:
        """Return ``value`` (J or s) in this unit with its symbol."""
        shown = self.text(value, estimated=estimated)
        return shown if shown == UNKNOWN else f"{shown} {self.unit}"


def energy(value_j: float | None) -> str:
    """Return an energy or cost in J with the unit that suits it."""
    return Scale.for_energy([value_j]).with_unit(value_j)


def number(value: float | None) -> str:
    """Return ``value`` with three significant digits or all whole ones, thousands separated by commas."""
    if value is None or math.isnan(value):
        return UNKNOWN
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    size = abs(value)
    if size >= 1e15 or 0 < size < 1e-4:
        return f"{value:.3g}"
    if size >= 1:
        return f"{value:,.{2 if size < 9.995 else 1 if size < 99.95 else 0}f}"
    return f"{value:.3g}"


def count(value: int | None) -> str:
    """Return a whole number, thousands separated by commas."""
    return UNKNOWN if value is None else f"{value:,}"


def percent(ratio: float | None) -> str:
    """Return a ratio as per cent: 0.5 is 50 %."""
    if ratio is None or not math.isfinite(ratio):
        return UNKNOWN
    return f"{100 * ratio:,.0f} %"


def moment(value: datetime | None) -> str:
    """Return a point in time to the minute, in UTC; a naive one is taken to be UTC."""
    if value is None:
        return UNKNOWN
    aware = value if value.tzinfo else value.replace(tzinfo=UTC)
    return f"{aware.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def plural(number_of: int, noun: str) -> str:
    """Return a counted noun: 1 trial, 2 trials."""
    return f"{number_of:,} {noun}" if number_of == 1 else f"{number_of:,} {noun}s"


def line(text: str, *, at_most: int = 200) -> str:
    """Return other people's text as one harmless, readable line of at most ``at_most`` characters."""
    flat = " ".join(printable(text[: 4 * at_most]).split())
    return flat if len(flat) <= at_most else f"{flat[: at_most - 1]}…"


def tail(text: str, *, at_most: int = 2000) -> str:
    """Return the end of other people's text, where an error says what it is; line breaks are kept."""
    shown = printable(text).strip("\n")
    return shown if len(shown) <= at_most else f"…{shown[1 - at_most :]}"


def printable(text: str) -> str:
    """Return ``text`` without terminal colours, with unprintable characters replaced."""
    unified = _TERMINAL_ESCAPE.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _UNPRINTABLE.sub("\ufffd", unified)


def _fitting(
    units: tuple[tuple[str, float], ...], values: Iterable[float | None], *, smallest: float
) -> tuple[str, float]:
    known = [abs(value) for value in values if value is not None and math.isfinite(value) and value != 0]
    middle = statistics.median(known) if known else 0.0
    fitting = [unit for unit in units if middle >= smallest * unit[1]]
    return fitting[-1] if fitting else units[0]
