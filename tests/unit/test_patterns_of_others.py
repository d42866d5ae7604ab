"""Patterns of others are RE2's: Python's `re` has literal patterns only, and none of these takes long for any text.

`re` goes back and forth without bound for some patterns, holds the interpreter's lock meanwhile, and so stops the whole
process. `barnabas.patterns` has what others write.
"""

from __future__ import annotations

import ast
import json
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patterns import ROOT, Use, imports_of, long_texts, parsed, sources, uses_of

NOT_LITERAL = {
    "pipeline/barnabas_pipeline/charts.py": (1, "names of fonts and colours of its own, joined"),
    "pipeline/barnabas_pipeline/formats/inference.py": (
        1,
        "from a table of literals of json_values.py, which are tried there",
    ),
}
"""Modules with patterns that are no literals: how many, and why none of them is of others."""
OF_FNMATCH = {
    "server/barnabas/tools/conformance/running.py": "names of its own cases",
    "server/barnabas/tools/control/recorder.py": "fnmatch takes the first place that fits a part, and never goes back",
    "server/barnabas/tools/tap/filters.py": "fnmatch takes the first place that fits a part, and never goes back",
}
"""Modules that use `fnmatch`, which is made of `re`, and why they may."""
CHARACTERS = 30_000
SECONDS_MAX = 0.15
"""Time of the processor for a text of so many characters: thirty times what is needed, a tenth of what a square takes."""


@pytest.fixture(scope="module")
def uses() -> list[Use]:
    return [use for path in sources() for use in uses_of(path)]


def test_patterns_that_meet_foreign_text_are_literals_or_re2s(uses: list[Use]) -> None:
    counts: dict[str, int] = {}
    for use in uses:
        if use.pattern is None:
            counts[use.path] = counts.get(use.path, 0) + 1
    assert counts == {path: count for path, (count, _) in NOT_LITERAL.items()}, (
        "a pattern that is no literal is compiled by barnabas.patterns, not by re"
    )


def test_functions_of_re_are_called_by_its_name() -> None:
    for path in sources():
        tree = parsed(path)
        called = {node.value for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                assert node.module not in ("re", "fnmatch.translate"), f"{path}: {node.lineno}: import re"
            if isinstance(node, ast.Import):
                assert all(part.asname is None for part in node.names if part.name == "re"), path
            if isinstance(node, ast.Name) and node.id == "re":
                assert node in called, f"{path}: {node.lineno}: re is handed on"


def test_one_module_uses_re2() -> None:
    assert imports_of("re2") == {"server/barnabas/patterns/__init__.py"}


def test_modules_with_fnmatch_have_a_reason() -> None:
    assert imports_of("fnmatch") == OF_FNMATCH.keys()


def test_literal_patterns_take_no_long_time_for_any_text(uses: list[Use], tmp_path: Path) -> None:
    rows = []
    for use in uses:
        if isinstance(use.pattern, bytes):
            rows.append(
                (f"{use.path}:{use.line}", use.pattern.decode("latin-1"), use.flags | re.ASCII, use.methods)
            )
        elif use.pattern is not None:
            rows.append((f"{use.path}:{use.line}", use.pattern, use.flags, use.methods))
    assert len(rows) > 50
    assert slow_ones(rows, tmp_path) == []


def test_a_pattern_that_is_slow_for_some_text_is_found(tmp_path: Path) -> None:
    rows = [("decimal", r"\d+\.?\d*", 0, ("fullmatch",)), ("space", r"\s+$", 0, ("search",))]
    assert slow_ones(rows, tmp_path) == ["decimal", "space"]


def slow_ones(rows: list[tuple[str, str, int, tuple[str, ...]]], directory: Path) -> list[str]:
    """The names of patterns that take too long for a text, tried in a process of their own."""
    path = directory / "rows.json"
    path.write_text(json.dumps(rows))
    command = [
        sys.executable,
        "-c",
        f"from tests.unit.{Path(__file__).stem} import try_all; try_all({str(path)!r})",
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT}/server"},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return done.stdout.split()


class _SlowError(Exception):
    pass


def try_all(path: str) -> None:
    """Print the names of patterns that take too long."""

    def stop(*_: object) -> None:
        raise _SlowError

    signal.signal(signal.SIGVTALRM, stop)
    for name, pattern, flags, methods in json.loads(Path(path).read_text()):
        if _is_slow(pattern, flags, methods):
            print(name)


def _is_slow(pattern: str, flags: int, methods: tuple[str, ...]) -> bool:
    compiled = re.compile(pattern, flags)
    try:
        for text in long_texts(pattern, flags, CHARACTERS, random.Random(1)):
            for method in methods:
                arguments = ("", text) if method in ("sub", "subn") else (text,)
                signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS_MAX)
                result = getattr(compiled, method)(*arguments)
                if method == "finditer":
                    list(result)
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except _SlowError:
        return True
    return False
