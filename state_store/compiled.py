"""A statement as a database's driver takes it, compiled once."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Float, Select
from sqlalchemy.engine import Dialect
from sqlalchemy.sql import ClauseElement
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.types import TypeEngine

Processor = Callable[[Any], Any]
_PLACE = re.compile(r"%\((\w+)\)s|%%")


class Compiled:
    """The text of a statement, and the ways of values into it and out of it.

    SQLAlchemy's own execution does the same, and takes longer than SQLite.

    Attributes:
        text: What the driver executes.
        names: Names of the columns that a query gives.
    """

    def __init__(self, statement: ClauseElement, parameters: Sequence[str], dialect: Dialect) -> None:
        """Compile.

        Args:
            statement: The statement.
            parameters: Names of the values that it will be given; an insert or update sets the columns named so.
            dialect: Of the database.
        """
        compiled = statement.compile(
            dialect=dialect, column_keys=list(parameters), compile_kwargs={"render_postcompile": True}
        )
        assert isinstance(compiled, SQLCompiler)
        self.text = str(compiled)
        self._order = compiled.positiontup
        into = {name: _into(bind.type, dialect) for name, bind in compiled.binds.items()}
        self._into = {name: process for name, process in into.items() if process is not None and name in parameters}
        defaults = {column.key: getattr(column.default, "arg", None) for column in compiled.insert_prefetch}
        constants = {name: value for name, value in (compiled.params | defaults).items() if name not in parameters}
        self._constants = {n: v if (process := into.get(n)) is None else process(v) for n, v in constants.items()}
        columns = statement.selected_columns if isinstance(statement, Select) else ()
        self.names = tuple(str(column.key) for column in columns)
        out = [_out_of(column.type, dialect) for column in columns]
        self._out = [(index, process) for index, process in enumerate(out) if process is not None]

    def values(self, given: Mapping[str, Any]) -> dict[str, Any] | tuple[Any, ...]:
        """Return values as the driver takes them."""
        values = {**self._constants, **given}
        for name, process in self._into.items():
            values[name] = process(values[name])
        return values if self._order is None else tuple(values[name] for name in self._order)

    def numbered(self, literal: Callable[[Any], str]) -> tuple[str, list[str]]:
        """Return the text for a server to prepare, and the names of the values that it is given each time.

        Args:
            literal: Writes a value that is always the same into the text.
        """
        order: dict[str, str] = {}

        def in_its_place(found: re.Match[str]) -> str:
            name = found[1]
            if name is None:
                return "%"
            if name in self._constants:
                return literal(self._constants[name])
            return order.setdefault(name, f"${len(order) + 1}")

        return _PLACE.sub(in_its_place, self.text), list(order)

    def records(self, fetched: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Return the records of a query as the library takes them, from what the driver gave."""
        records = [list(record) for record in fetched]
        for record in records:
            for index, process in self._out:
                record[index] = process(record[index])
        return records


def _out_of(type_: TypeEngine[Any], dialect: Dialect) -> Processor | None:
    # Both drivers give floats as such.
    return None if isinstance(type_, Float) else type_.dialect_impl(dialect).result_processor(dialect, None)


def _into(type_: TypeEngine[Any], dialect: Dialect) -> Processor | None:
    return type_.dialect_impl(dialect).bind_processor(dialect)
