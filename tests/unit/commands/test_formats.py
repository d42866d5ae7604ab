"""Records as `barnabas consume` prints them: by a format, as JSON."""

from __future__ import annotations

import json
import re

import pytest

from barnabas.client import ConsumedRecord
from barnabas.commands.records_out import formatter, header_matches, json_line


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        ("%t|%p|%o|%e|%T", b"t|3|7|2|1700000000123"),
        ("%k=%s", b"-=v\xff"),
        ("%K %S", b"-1 2"),
        ("%h", b"h=1,n=-,\xff=2"),
        ("%D", b"2023-11-14T22:13:20.123+00:00"),
        ("%%s%%", b"%s%"),
        ("\\n\\t\\r\\0\\\\", b"\n\t\r\0\\"),
        ("\\xff\\x4a\\q\\x4", b"\xffJ\\q\\x4"),
        ("ä\\", "ä\\".encode()),
        ("", b""),
        ("a\nb%p", b"a\nb3"),
    ],
)
def test_a_format_says_how_a_record_is_printed(layout: str, text: bytes) -> None:
    given = ConsumedRecord(
        "t", 3, 7, 1_700_000_000_123, None, b"v\xff", [("h", b"1"), ("n", None), ("\udcff", b"2")], 2
    )
    assert formatter(layout, b"-")(given) == text


def test_nulls_sizes_and_times_of_other_records() -> None:
    one = ConsumedRecord("t", 0, 0, 5, b"key", None)
    assert formatter("%k %s %K %S", b"")(one) == b"key  3 -1"
    for time_ms, text in ((-1, b"-"), (0, b"1970-01-01T00:00:00.000+00:00"), (10**15, b"1000000000000000")):
        one.timestamp_ms = time_ms
        assert formatter("%D", b"")(one) == text


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        ("%", "ends with a single %"),
        ("a%%%", "ends with a single %"),
        ("%s%", "ends with a single %"),
        ("%x", "there is no %x; there are %s %k"),
    ],
)
def test_a_format_that_is_none_is_told(layout: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        formatter(layout, b"")


def test_a_line_of_json_has_all_of_a_record() -> None:
    one = ConsumedRecord("t", 3, 7, 5, b"\xff", "ä".encode(), [("h", b"1"), ("n", None)], 2)
    line = json_line(one)
    assert line.endswith(b"\n")
    assert "ä".encode() in line
    assert json.loads(line) == {
        "topic": "t", "partition": 3, "offset": 7, "timestamp": 5, "key": {"base64": "/w=="}, "value": "ä",
        "headers": [{"h": "1"}, {"n": None}],
    }  # fmt: skip


def test_a_header_is_found_by_its_own_value() -> None:
    one = ConsumedRecord("t", 0, 1, 5, None, None, [("a", b"1"), ("b", None)])
    assert header_matches("a", None, one)
    assert header_matches("b", None, one)
    assert not header_matches("c", None, one)
    assert header_matches("a", re.compile(b"1"), one)
    assert not header_matches("b", re.compile(b"1"), one)
