"""Names of pyiceberg that are not promised are in one module, and looked at before another release is installed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "pipeline" / "barnabas_pipeline"
INTERNALS = PACKAGE / "lake" / "pyiceberg_internals.py"


def private_imports(source: str) -> Iterator[str]:
    """Names that a module imports from pyiceberg although they begin with an underscore."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "pyiceberg":
            yield from (alias.name for alias in node.names if alias.name.startswith("_"))


def test_locked_pyiceberg_is_the_release_that_was_checked() -> None:
    [release] = re.findall(r'^RELEASE = "([\d.]+)"$', INTERNALS.read_text(), re.MULTILINE)
    for lock in ("spark.txt", "stores.txt"):
        [locked] = re.findall(
            r"^pyiceberg==([\d.]+)", (ROOT / "requirements" / lock).read_text(), re.MULTILINE
        )
        assert locked.startswith(f"{release}."), (
            f"requirements/{lock} has pyiceberg {locked}, but lake/pyiceberg_internals.py uses private names of {release}: "
            "check that each of them still does the same, run `make test-pipeline`, and change RELEASE"
        )


def test_private_names_of_pyiceberg_are_in_one_module() -> None:
    users = {path for path in PACKAGE.rglob("*.py") if list(private_imports(path.read_text()))}
    assert users == {INTERNALS}, "private names of pyiceberg belong into lake/pyiceberg_internals.py"
