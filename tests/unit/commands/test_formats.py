"""Records as `barnabas consume` prints them: by a format, as JSON."""

from __future__ import annotations

import re

from barnabas.client import ConsumedRecord
from barnabas.commands.records_out import formatter, header_matches, lines_of


def test_nulls_sizes_and_times_of_other_records() -> None:
    entry = ConsumedRecord("t", 0, 0, 5, b"key", None)
    assert formatter("%k %s %K %S", b"")(*lines_of([entry])) == b"key  3 -1"
    for time_ms, text in ((-1, b"-"), (0, b"1970-01-01T00:00:00.000+00:00"), (10**15, b"1000000000000000")):
        entry.timestamp_ms = time_ms
        assert formatter("%D", b"")(*lines_of([entry])) == text


def test_a_header_is_found_by_its_own_value() -> None:
    entry = ConsumedRecord("t", 0, 1, 5, None, None, [("a", b"1"), ("b", None)])
    assert header_matches("a", None, entry)
    assert header_matches("b", None, entry)
    assert not header_matches("c", None, entry)
    assert header_matches("a", re.compile(b"1"), entry)
    assert not header_matches("b", re.compile(b"1"), entry)
