"""Numbers agree with their nouns in what commands and the tap print: `counted` says `1 record`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.environment.terminal import counted, visible, visible_data, visible_json

SERVER = Path(__file__).resolve().parents[2] / "server" / "barnabas"
NOUNS = (
    "records|requests|connections|partitions|topics|groups|members|brokers|batches|fetches|times|packets|segments|files|users|"
    "events|clients|answers|responses|messages|offsets|replicas|problems|errors|lines|commits|logins|notes|rows|schemas|versions"
)
MORE_THAN_ONE = {
    "used": "files open of so many", "found.controller_id": "answers is a verb", "request.api": "kinds of requests",
    "len(offsets)": "after a test for one", "len(sizes)": "after a test for one", "filled": "from a bound on",
}  # fmt: skip
"""Numbers that are never 1 where they are printed, or are none."""


def bare_counts(path: Path) -> Iterator[str]:
    """Numbers in a module that stand before a plural as they are; constants and bounds are more than one."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            for value, text in zip(node.values, node.values[1:], strict=False):
                if isinstance(value, ast.FormattedValue) and isinstance(text, ast.Constant):
                    number = ast.unparse(value.value)
                    is_plural = re.match(rf" (?:more |other |TCP )?(?:{NOUNS})\b", str(text.value))
                    if is_plural and not re.fullmatch(r"[A-Z_.]+", number) and number not in MORE_THAN_ONE:
                        yield f"{path.name}:{node.lineno}: {number}{text.value}"


@pytest.mark.parametrize("part", ["commands", "tools/tap"])
def test_numbers_agree_with_their_nouns(part: str) -> None:
    assert [place for path in (SERVER / part).rglob("*.py") for place in bare_counts(path)] == []


@pytest.mark.parametrize(
    ("number", "words", "text"),
    [
        (0, ("record",), "0 records"),
        (1, ("record",), "1 record"),
        (2, ("batch", "batches"), "2 batches"),
        (1, ("line is", "lines are"), "1 line is"),
    ],
)
def test_one_is_singular_and_all_others_are_plural(number: int, words: tuple[str, ...], text: str) -> None:
    assert counted(number, *words) == text


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"plain9", b"plain9"),
        ("ä\n\t日本".encode(), "ä\n\t日本".encode()),
        (b"\x1b[2J\r", b"\\x1b[2J\\x0d"),
        ("\u009b\u202e".encode(), b"\\x9b\\u202e"),
        (b"\xff\xc3", b"\\xff\\xc3"),
    ],
)
def test_data_keeps_what_a_terminal_only_shows(data: bytes, shown: bytes) -> None:
    assert visible_data(data) == shown


def test_names_are_one_line_and_json_says_the_same() -> None:
    assert visible("a\nb ä\x1b") == "a\\nb ä\\x1b"
    assert visible_json({"a": "\x7f\u009bä\n"}) == '{"a": "\\u007f\\u009bä\\n"}'
