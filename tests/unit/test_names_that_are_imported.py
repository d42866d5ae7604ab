"""Names that programs take from our modules exist, also where a function imports them and no test runs it.

mypy looks at the packages, and tests are run; benchmarks, comparisons and tools are read here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES = {
    "barnabas": "server", "barnabas_pipeline": "pipeline",
    "bench": "", "codegen": "", "compat": "", "tests": "", "tools": "",
}  # fmt: skip
"""Our packages, and the directory that each is in."""
READ = ("bench", "compat", "tools")
SOURCES = [
    path
    for top in READ
    for path in sorted((ROOT / top).rglob("*.py"))
    if not {"generated", "node_modules", ".venv"} & set(path.parts)
]


@cache
def path_of(module: str) -> Path | None:
    """Return the file of one of our modules, a package's own; None if there is no such file."""
    top = module.partition(".")[0]
    if top not in PLACES:
        return None
    place = ROOT / PLACES[top] / Path(*module.split("."))
    return next((one for one in (place.with_suffix(".py"), place / "__init__.py") if one.is_file()), None)


def is_module(module: str) -> bool:
    """Say whether it is a module of ours, or a package without a file of its own."""
    top = module.partition(".")[0]
    return path_of(module) is not None or (ROOT / PLACES[top] / Path(*module.split("."))).is_dir()


@cache
def names_of(module: str) -> frozenset[str] | None:
    """Return the names that a module has; None if it makes some as they are asked for."""
    path = path_of(module)
    found: set[str] = {"__doc__", "__file__", "__name__", "__path__"}
    todo: list[ast.stmt] = [] if path is None else list(ast.parse(path.read_text()).body)
    while todo:
        one = todo.pop()
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(one.name)
        elif isinstance(one, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name.partition(".")[0] for alias in one.names}
        elif isinstance(one, ast.If | ast.Try | ast.TryStar | ast.With | ast.For | ast.While):
            todo += [inner for inner in ast.walk(one) if isinstance(inner, ast.stmt) and inner is not one]
        else:
            found |= {
                node.id
                for node in ast.walk(one)
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            }
    return None if "__getattr__" in found or "*" in found else frozenset(found)


def has(module: str, name: str) -> bool:
    """Say whether a module has a name, or a module within it."""
    names = names_of(module)
    return names is None or name in names or is_module(f"{module}.{name}")


def missing(path: Path) -> Iterator[str]:
    """Yield what a file takes from our modules that they do not have."""
    tree = ast.parse(path.read_text())
    modules: dict[str, set[str]] = {}
    bound = {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    for node in ast.walk(tree):
        if (
            not isinstance(node, ast.ImportFrom)
            or node.level
            or (node.module or "").partition(".")[0] not in PLACES
        ):
            continue
        module = node.module or ""
        for alias in node.names:
            if not has(module, alias.name) and alias.name != "*":
                yield f"line {node.lineno}: {module}.{alias.name}"
            elif path_of(f"{module}.{alias.name}") is not None:
                modules.setdefault(alias.asname or alias.name, set()).add(f"{module}.{alias.name}")
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id not in bound
        ):
            places = modules.get(node.value.id, set())
            if places and not any(has(one, node.attr) for one in places):
                yield f"line {node.lineno}: {' or '.join(sorted(places))}.{node.attr}"


@pytest.mark.parametrize("top", READ)
def test_what_is_taken_from_our_modules_is_there(top: str) -> None:
    files = [path for path in SOURCES if path.relative_to(ROOT).parts[0] == top]
    found = {path.relative_to(ROOT).as_posix(): list(missing(path)) for path in files}
    assert files
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_a_name_that_is_gone_is_seen_wherever_it_is_used(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from tests.unit import test_names_that_are_imported as here\n"
        "from tests.unit.test_names_that_are_imported import ROOT, GONE\n"
        "def later():\n"
        "    from tests.unit.test_names_that_are_imported import READ, LOST\n"
        "    return here.SOURCES, here.nothing\n"
    )
    module = "tests.unit.test_names_that_are_imported"
    assert list(missing(program)) == [
        f"line 2: {module}.GONE",
        f"line 4: {module}.LOST",
        f"line 5: {module}.nothing",
    ]
