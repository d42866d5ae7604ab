"""Pages of records: where they begin and end, what a request may name, what a body of new records is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.console.base import ConsoleError
from barnabas.console.matching import PATTERN_CHARS_MAX, Pattern
from barnabas.console.reading import Bounds
from barnabas.console.routes.records import _cursor, _is_left, _read_cursor, _record
from barnabas.console.searching import check_sought
from barnabas.sandbox.messages import SandboxError
from tests.support.at_once_sandbox import AtOnce

A, B = ("t", 0), ("t", 1)
BOUNDS = Bounds({A: 10, B: 0}, {A: 20, B: 5})


def test_cursor_names_offsets_and_is_kept_within_bounds() -> None:
    assert _cursor({B: 3, A: 12}) == "0:12,1:3"
    assert _read_cursor("0:12,1:3", BOUNDS, BOUNDS.first) == {A: 12, B: 3}
    assert _read_cursor("0:9,1:6,7:1", BOUNDS, BOUNDS.first) == {A: 10, B: 5}
    assert _read_cursor("1:2", BOUNDS, BOUNDS.next) == {A: 20, B: 2}
    for wrong in ("0", "0:x", "0:1:2", "x:1"):
        with pytest.raises(ConsoleError, match="the value of older or newer of a response expected"):
            _read_cursor(wrong, BOUNDS, BOUNDS.first)
    assert not _is_left({A: 10, B: 0}, {A: 10, B: 0})
    assert _is_left({A: 10, B: 0}, {A: 10, B: 1})
    assert not _is_left({A: 11, B: 0}, {A: 10, B: 0})


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ([], "records[3]: an object expected"),
        ({"headers": {}, "value": "x"}, None),
        ({"headers": "x"}, "records[3].headers: an array"),
        ({"headers": [1]}, "records[3].headers: an array"),
        ({"headers": [{"value": "x"}]}, "records[3].headers: an array"),
        ({"headers": [{"name": "h", "value": 1}]}, "records[3].headers: a text"),
        ({"partition": -1}, "records[3].partition: a number expected"),
        ({"partition": True}, "records[3].partition: a number expected"),
        ({"timestamp": "1"}, "records[3].timestamp: a number expected"),
        ({"value": 5}, "records[3].value: a text"),
    ],
)
def test_a_record_that_is_none_is_told_by_its_number(row: Any, reason: str | None) -> None:
    if reason is None:
        assert _record(row, 3)["headers"] == []
        return
    with pytest.raises(ConsoleError) as raised:
        _record(row, 3)
    assert str(raised.value).startswith(reason)


async def checked(text: str, *refusals: Exception, is_regex: bool = False) -> str:
    """Return what is wrong with a pattern; empty for nothing."""
    backend: Any = SimpleNamespace(sandbox=AtOnce(*refusals), owner="ann")
    try:
        await check_sought(backend, Pattern(text, is_regex=is_regex))
    except ConsoleError as error:
        return f"{error.status} {error}"
    return "" if backend.sandbox.called == [("check", "ann")] else "it is not checked"


async def test_a_pattern_is_refused_with_the_reason() -> None:
    assert await checked("x" * PATTERN_CHARS_MAX) == ""
    for text in ("", "x" * (PATTERN_CHARS_MAX + 1)):
        assert await checked(text) == f"400 text: 1 to {PATTERN_CHARS_MAX} characters expected"
    assert (await checked("(", is_regex=True)).startswith("400 text: not a regular expression: missing")
    assert await checked("(") == ""
    assert "surrogate" in await checked("\ud800")
    too_long = SandboxError("it takes more than 3 s")
    assert await checked("a", too_long) == f"400 text: this regular expression cannot be used: {too_long}"
