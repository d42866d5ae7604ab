"""Messages of the broker and the pipeline need no checkout to be understood."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(
    path
    for package in ("server/barnabas", "pipeline/barnabas_pipeline")
    for path in (ROOT / package).rglob("*.py")
    if "generated" not in path.parts
)


def texts(tree: ast.AST) -> list[str]:
    """All texts of a module but its docstrings."""
    bare = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare
    ]


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_messages_name_only_pages_of_the_installed_package(module: Path) -> None:
    source = module.read_text()
    if "docs" in source:  # to parse all of them takes long
        assert [text for text in texts(ast.parse(source)) if "docs/" in text] == []
