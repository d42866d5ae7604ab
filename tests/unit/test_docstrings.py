"""Docstrings open with a verb or a noun phrase, so that each says at once which thing it is about."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("server", "pipeline", "codegen", "tools", "bench", "compat", "tests")
FOREIGN = {"node_modules", "target", "__pycache__", ".venv", "generated"}
WORD = r"(?:What|Who|Whether|How|Where|That)\b"
IN_SOURCE = re.compile(rf'"""\s*{WORD}')
AT_START = re.compile(rf"\s*{WORD}")


def modules(part: str) -> Iterator[Path]:
    """The modules below a directory of the top level, without those that tools have made."""
    for directory, names, files in os.walk(ROOT / part):
        names[:] = sorted(set(names) - FOREIGN)
        yield from (Path(directory) / name for name in sorted(files) if name.endswith(".py"))


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The line and the text of each docstring of modules, classes, functions and attributes."""
    nodes = [tree]
    for node in nodes:  # statements only: expressions are most of a tree, and have none
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            nodes += getattr(node, block, ())
        for part in getattr(node, "body", ()):
            match part:
                case ast.Expr(ast.Constant(str(text))):
                    yield part.lineno, text


def refused(source: str) -> list[int]:
    """The lines of docstrings that open with one of the words."""
    if not IN_SOURCE.search(source):  # to parse all modules takes long
        return []
    return [line for line, text in docstrings(ast.parse(source)) if AT_START.match(text)]


@pytest.mark.parametrize("part", PARTS)
def test_no_docstring_opens_with_a_question_word(part: str) -> None:
    places = [
        f"{path.relative_to(ROOT)}:{line}" for path in modules(part) for line in refused(path.read_text())
    ]
    assert places == []


def test_docstrings_of_all_kinds_are_looked_at() -> None:
    source = '"""How."""\nclass A:\n    """Who."""\n    b = 1\n    """Where."""\n    def c(self):\n        """What c."""\n'
    assert sorted(refused(source)) == [1, 3, 5, 7]
    assert refused('"""A module."""\na = """What is no docstring."""\n"""Whatever it is."""\n') == []
