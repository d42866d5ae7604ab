"""Records as `barnabas consume` prints them: by a format, as JSON."""

from __future__ import annotations

import json
import re

from barnabas.client import ConsumedRecord
from barnabas.commands.records_out import formatter, header_matches, json_line


def test_nulls_sizes_and_times_of_other_records() -> None:
    one = ConsumedRecord("t", 0, 0, 5, b"key", None)
    assert formatter("%k %s %K %S", b"")(one) == b"key  3 -1"
    for time_ms, text in ((-1, b"-"), (0, b"1970-01-01T00:00:00.000+00:00"), (10**15, b"1000000000000000")):
        one.timestamp_ms = time_ms
        assert formatter("%D", b"")(one) == text


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
