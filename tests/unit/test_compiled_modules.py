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


@pytest.mark.parametrize("module", COMPILED)
def test_no_inner_function_uses_an_outer_functions_import(module):
    """With mypyc the module is None there, where it was not imported before."""
    source = (ROOT / "server" / Path(*module.split("."))).with_suffix(".py").read_text()
    lines = [
        name.lineno
        for outer in ast.walk(ast.parse(source))
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef)
        for modules in [imported_modules(outer)]
        for inner in ast.walk(outer)
        if inner is not outer and isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for name in ast.walk(inner)
        if isinstance(name, ast.Name) and name.id in modules
    ]
    assert not lines, f"{module}: an imported module in an inner function, lines {lines}"


def imported_modules(function: ast.AST) -> set[str]:
    """Return the names under which a function imports modules of the broker."""
    return {
        alias.asname or alias.name
        for node in ast.walk(function)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
        if (ROOT / "server" / Path(*node.module.split("."), f"{alias.name}.py")).exists()
    }
