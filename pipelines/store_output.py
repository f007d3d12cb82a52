"""Records of the store for people and programs: a table, JSON or CSV."""

import csv
import dataclasses
import io
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum, StrEnum
from typing import Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from zeus_kfp.components.close_recurrence.report_format import ESTIMATED

UNKNOWN = "-"
_OF_ENERGY = ("energy_j", "average_power_w")


class Format(StrEnum):
    """How records are written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it; dataclasses become objects, moments ISO 8601."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return str(value)  # JSON has no infinity
    return value


def to_json(value: Any) -> str:
    """Return a record, or a list of them, as a JSON document."""
    return json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False)


def to_csv(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Return rows as CSV with a head; lists are JSON within their cell."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        cells = (plain(row[column]) for column in columns)
        writer.writerow([json.dumps(cell) if isinstance(cell, list | dict) else cell for cell in cells])
    return stream.getvalue().removesuffix("\n")


def write(records: Sequence[Mapping[str, Any]], columns: Sequence[str], form: Format, console: Console) -> None:
    """Write records to a console.

    Args:
        records: What to write.
        columns: The columns of the table; JSON and CSV have every field.
        form: How.
        console: Where; only a table is fitted to its width.
    """
    if form is Format.JSON:
        typer.echo(to_json(list(records)))
    elif form is Format.CSV:
        typer.echo(to_csv(records, list(records[0]) if records else columns))
    else:
        console.print(_table(records, columns))


def _table(records: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in columns:
        numeric = any(isinstance(record[column], int | float) for record in records)
        table.add_column(column.replace("_", "\n"), justify="right" if numeric else "left", overflow="fold")
    for record in records:
        # As text: a name in brackets is no markup.
        table.add_row(*(Text(_mark(record, column) + _cell(record[column])) for column in columns))
    return table


def _mark(record: Mapping[str, Any], column: str) -> str:
    is_estimate = column in _OF_ENERGY and record[column] is not None and record.get("energy_estimated")
    return ESTIMATED if is_estimate else ""


def _cell(value: Any) -> str:
    if value is None or value == "":
        return UNKNOWN
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M")
    if isinstance(value, float):
        # Four digits are enough for people, and fit; programs have JSON and CSV.
        return f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"
    return str(plain(value))
