"""Results of commands: tables for people, one JSON object for programs.

The rule: a command declares its tables with all their columns; the keys of JSON are these and change only with a new
version of the program. A row with an error is printed, and sets the exit code to FAILED.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import click

from barnabas.commands.errors import advised
from barnabas.commands.tables import BOLD, GREEN, RED, Look, look_of_stdout, table_text
from barnabas.ending import DONE, FAILED
from barnabas.environment.terminal import visible, visible_json

ERROR = "error"
"""Column of errors, shown to people only if there are any."""
TIME = "_at_ms"
"""End of a column's name that is a time since 1970, which people are shown as a date."""


class Table(NamedTuple):
    """One table of a command: its key in JSON, its columns with their meanings, and the columns that only JSON has."""

    name: str
    columns: Mapping[str, str]
    json_only: tuple[str, ...] = ()
    is_single: bool = False
    """True for facts about one subject: one object in JSON, one line for each fact for people."""


class Output:
    """Results of one run. Lifecycle: `show` as often as need be, `finish` once."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.has_failed = False
        self._document: dict[str, Any] = {}
        self._is_first = True

    def show(self, table: Table, rows: Iterable[Mapping[str, Any]], *, title: str = "") -> None:
        """Show rows of a table; a title stands above it for people. Several calls for one table add up in JSON.

        A row of which nothing is known but its name is a line on standard error for people, not a row of dashes.
        """
        shown = [dict(row) for row in rows]
        for row in shown:
            assert row.keys() <= table.columns.keys(), (table.name, set(row) - set(table.columns))
            for column in table.columns:
                row.setdefault(column, None)
            self.has_failed = self.has_failed or row.get(ERROR) is not None
        if self.as_json:
            ordered = [{column: row[column] for column in table.columns} for row in shown]
            if table.is_single:
                (self._document[table.name],) = ordered
            else:
                self._document.setdefault(table.name, []).extend(ordered)
            return
        if not table.is_single:
            for row in filter(_is_unknown, shown):
                self.note(_why(table, row))
            shown = [row for row in shown if not _is_unknown(row)]
        if self.has_failed and not shown:
            return
        if not self._is_first:
            print()
        self._is_first = False
        look = look_of_stdout()
        if title:
            print(look.coloured(visible(title), BOLD))
        text = _facts(table, shown[0]) if table.is_single else _text(table, shown, look)
        print(text or f"no {table.name.replace('_', ' ')}")

    def text(self, lines: Iterable[str]) -> None:
        """Print lines that are no table: those of a diff in its colours, on a terminal."""
        look, colours = look_of_stdout(), {"+": GREEN, "-": RED}
        for line in lines:
            print(look.coloured(visible(line), colours.get(line[:1], "")))

    def note(self, text: str) -> None:
        """Print a message that is not part of the result, on standard error."""
        print(visible(text), file=sys.stderr)

    def finish(self) -> int:
        """Write the remaining rows; return the exit code."""
        if self.as_json:
            print(visible_json(self._document, indent=1))
        return FAILED if self.has_failed else DONE


def _is_unknown(row: Mapping[str, Any]) -> bool:
    """Return whether a row has only a name and an error."""
    return row.get(ERROR) is not None and sum(value is not None for value in row.values()) == 2


def _why(table: Table, row: Mapping[str, Any]) -> str:
    """Return a row with an error as a message of the command that shows it."""
    ((column, value),) = [(name, value) for name, value in row.items() if name != ERROR and value is not None]
    noun = table.name.removesuffix("s") if column == "name" else _title(column).lower()
    context = click.get_current_context(silent=True)
    command = "" if context is None else f"{context.command_path}: "
    return f"{command}{noun} {cell(column, value)}: {advised(str(row[ERROR]))}"


def _shown(table: Table, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    has_error = any(row.get(ERROR) is not None for row in rows)
    return [name for name in table.columns if name not in table.json_only and (name != ERROR or has_error)]


def _text(table: Table, rows: Sequence[Mapping[str, Any]], look: Look) -> str:
    """Return a table in aligned columns, numbers to the right."""
    if not rows:
        return ""
    columns = _shown(table, rows)
    cells = [[_cell(name, row[name]) for name in columns] for row in rows]
    right = [
        not name.endswith(TIME) and all(type(row[name]) in (int, float, type(None)) for row in rows)
        for name in columns
    ]
    return table_text([_title(column) for column in columns], cells, right, look, red=_title(ERROR))


def _cell(name: str, value: Any) -> str:
    return advised(cell(name, value)) if name == ERROR else cell(name, value)


def _facts(table: Table, row: Mapping[str, Any]) -> str:
    columns = _shown(table, [row])
    width = max(map(len, columns)) + 2
    return "\n".join(f"{_title(name):<{width}}{cell(name, row[name])}".rstrip() for name in columns)


def _title(column: str) -> str:
    return column.removeprefix("is_").removesuffix(TIME).upper().replace("_", "-")


def cell(name: str, value: Any) -> str:
    """Return a value for people, with control sequences of a terminal escaped."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and name.endswith(TIME):
        return date_text(value)
    if isinstance(value, Mapping):
        return ",".join(f"{key}={cell('', item)}" for key, item in value.items()) or "-"
    if isinstance(value, list | tuple | set | frozenset):
        return ",".join(cell("", item) for item in value) or "-"
    return visible(str(value))


def date_text(time_ms: int) -> str:
    """Return a time as a date: `-` if negative, and the number for a year after 9999, as for microseconds."""
    if time_ms < 0:
        return "-"
    from datetime import UTC, datetime

    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(time_ms)
