"""One module's source with its syntax tree: text of nodes, and the functions that it is made of. Pure."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Unit:
    """An outermost function or method: the unit of stored results and coverage."""

    name: str
    """As `Class.method`."""
    node: Function
    first_line: int
    hash: str
    """Of its text, its decorators included."""

    @property
    def last_line(self) -> int:
        """Line of its end."""
        return self.node.end_lineno or self.first_line


class Source:
    """The text of a module."""

    def __init__(self, path: str, text: str) -> None:
        """`path` is relative to the checkout."""
        self.path = path
        self.text = text
        self.tree = ast.parse(text)
        self.lines = text.splitlines(keepends=True)
        self._starts = [0]
        for line in self.lines:
            self._starts.append(self._starts[-1] + len(line))

    def offset(self, line: int, column: int) -> int:
        """Return the position in the text of a line and a column, which syntax trees count in bytes."""
        text = self.lines[line - 1]
        if not text.isascii():
            column = len(text.encode()[:column].decode())
        return self._starts[line - 1] + column

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Return where the text of a node begins and ends."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)

    def of(self, node: ast.expr | ast.stmt) -> str:
        """Return the text of a node."""
        start, end = self.span(node)
        return self.text[start:end]

    @cached_property
    def attributes(self) -> dict[str, set[str]]:
        """Attributes that the module reads from each object, except methods, by the text of the object's expression."""
        names: dict[str, set[str]] = {}
        nodes = list(ast.walk(self.tree))
        called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
        methods = {node.attr for node in nodes if isinstance(node, ast.Attribute) and id(node) in called}
        for node in nodes:
            if isinstance(node, ast.Attribute) and node.attr not in methods:
                names.setdefault(ast.unparse(node.value), set()).add(node.attr)
        return names

    @cached_property
    def units(self) -> list[Unit]:
        """The outermost functions and methods, in order."""
        return list(self._units(self.tree, ""))

    def _units(self, parent: ast.AST, prefix: str) -> Iterator[Unit]:
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, Function):
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                text = "".join(self.lines[first - 1 : node.end_lineno])
                yield Unit(prefix + node.name, node, first, hashlib.sha256(text.encode()).hexdigest()[:16])
            elif isinstance(node, ast.ClassDef):
                yield from self._units(node, f"{prefix}{node.name}.")
            elif isinstance(node, ast.If | ast.Try):
                yield from self._units(node, prefix)

    def returned(self, unit: Unit) -> str:
        """Return the text of a function's return annotation."""
        return "" if unit.node.returns is None else self.of(unit.node.returns)

    def unit_at(self, line: int) -> Unit | None:
        """Return the function that a line belongs to."""
        return self._by_line.get(line)

    @cached_property
    def _by_line(self) -> dict[int, Unit]:
        return {line: unit for unit in self.units for line in range(unit.first_line, unit.last_line + 1)}
