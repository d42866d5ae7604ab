"""Compiled modules await nothing while they handle an exception, for the compiler gets that wrong."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
COMPILED = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["modules"]


@pytest.mark.parametrize("module", COMPILED)
def test_nothing_is_awaited_while_an_exception_is_handled(module):
    """With mypyc the exception stays the current one of the thread, and the next coroutine that ends raises it again."""
    source = (ROOT / "server" / Path(*module.split("."))).with_suffix(".py").read_text()
    lines = [
        inner.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Try)
        for part in (*node.handlers, *node.finalbody)
        for inner in ast.walk(part)
        if isinstance(inner, ast.Await | ast.Yield | ast.YieldFrom | ast.AsyncFor | ast.AsyncWith)
    ]
    assert not lines, f"{module}: await in except or finally, lines {lines}"
