"""Files and functions stay as long as a reader can hold; tables may be longer, and two loops that calls would slow down."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE, AROUND = ("server", "pipeline", "codegen"), ("bench", "compat", "tests", "tools")
FILE_LINES_MAX, FUNCTION_LINES_MAX = 500, 70
TABLES = ("tools/conformance/tables/", "tools/conformance/suites/")
IN_LINE = "variable-length integers are read in line: a call for each costs more than the reading"
LONGER = {
    "barnabas/cli/options.py:add_serve": "a table: one option after the other",
    "barnabas/records/record.py:iter_body": IN_LINE,
    "barnabas/records/scan.py:walk": IN_LINE,
}


def sources(*tops: str) -> list[Path]:
    paths = [path for top in tops for path in (ROOT / top).rglob("*.py")]
    assert len(paths) > 500
    return [path for path in paths if "generated" not in path.parts]


def long_functions(path: Path) -> list[str]:
    tree = ast.parse(path.read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    place = path.relative_to(ROOT).as_posix().partition("/")[2]
    return [
        f"{place}:{function.name}"
        for function in functions
        if (function.end_lineno or 0) - function.lineno + 1 > FUNCTION_LINES_MAX
    ]


def test_no_file_is_longer_than_a_reader_can_hold() -> None:
    lengths = {
        path.relative_to(ROOT).as_posix(): path.read_text().count("\n") for path in sources(*CODE, *AROUND)
    }
    assert {path: lines for path, lines in lengths.items() if lines > FILE_LINES_MAX} == {}


def test_no_function_is_longer_except_tables_and_exceptions() -> None:
    names = [name for path in sources(*CODE) for name in long_functions(path)]
    assert {name for name in names if not any(table in name for table in TABLES)} == {*LONGER}
