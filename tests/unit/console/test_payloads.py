"""Records as they are shown and saved: whatever a producer has sent."""

import csv
import io
import json
from typing import Any

import pytest

from barnabas.console.decoding import RawRecord, payload_as_json, plain_text, record_as_json
from barnabas.console.exporting import csv_heading, csv_row
from barnabas.console.known_bugs import warnings_of


@pytest.mark.parametrize(
    ("data", "form", "expected"),
    [
        (b'{"a": 1}', "auto", ("json", '{"a": 1}')),
        (b"12", "auto", ("json", "12")),
        (b"plain", "auto", ("text", "plain")),
        (b"", "auto", ("text", "")),
        (b"\x00\xff", "auto", ("hex", "00 ff")),
        (b"a\x00b", "auto", ("hex", "61 00 62")),
        (b"a\x00b", "text", ("text", "a\x00b")),
        (b'{"a": 1}', "hex", ("hex", "7b 22 61 22 3a 20 31 7d")),
        (b"[" * 100_000, "json", ("text", "[" * 100_000)),
        (b"\xff", "text", ("hex", "ff")),
    ],
)
def test_bytes_are_shown_as_what_they_can_be_read_as(
    data: bytes, form: str, expected: tuple[str, str]
) -> None:
    assert plain_text(data, form) == (*expected, False)


FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1", "|calc", "%0A=1", "＝1+1", "＠x"]


def _shown(record: RawRecord) -> dict[str, Any]:
    return record_as_json(record, "text", 1_000, {})


@pytest.mark.parametrize("text", FORMULAS)
def test_no_cell_of_an_export_is_a_formula(text: str) -> None:
    record = RawRecord(0, 1, -1, False, text.encode(), text.encode(), [(text, text.encode())])
    content = csv_heading() + csv_row(_shown(record))
    rows = list(csv.reader(io.StringIO(content.decode(), newline="")))
    assert rows[0] == ["partition", "offset", "timestamp", "key", "value", "headers"]
    assert rows[1][:3] == ["0", "1", ""]
    assert rows[1][3] == rows[1][4] == f"'{text}"
    assert json.loads(rows[1][5]) == {text: text}  # begins with a brace


def test_what_is_longer_than_it_may_be_is_cut_and_says_so() -> None:
    for data, cut in ((b"abc", {}), (b"abcd", {"cut": True})):
        assert payload_as_json(data, "text", 3, {}) == {
            "form": "text",
            "text": "abc",
            "size": len(data),
            **cut,
        }


@pytest.mark.parametrize(
    ("name", "version", "is_warned"),
    [
        ("librdkafka", "2.3.0", True),
        ("confluent-kafka-python", "2.9.0-rdkafka-2.3.0", True),
        ("librdkafka", "2.4.0", False),
        ("sarama", "1.47.0", True),
        ("sarama", "", False),
        ("", "", False),
    ],
)
def test_clients_with_a_known_bug_are_named(name: str, version: str, is_warned: bool) -> None:
    assert bool(warnings_of(name, version)) == is_warned


def test_warning_names_the_release_of_librdkafka_not_its_binding() -> None:
    for name, version in (("librdkafka", "2.3.0"), ("confluent-kafka-python", "2.9.0-rdkafka-2.3.0")):
        (warning,) = warnings_of(name, version)
        assert warning.startswith("librdkafka 2.3.0: known bug: one error makes it ask")
        assert warning.endswith("(librdkafka-metadata-loop)")
