"""Batches opened in a child process: what is shown of them, and where a call ends, whatever they hold."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest

from barnabas.console import batches
from barnabas.console.batches import Limits, Opened, Part, Row, View, open_parts, show
from barnabas.console.decoding import FRAMED_BYTES_MAX, HEADERS_MAX, Payload, RawRecord
from barnabas.console.matching import Match, Pattern, Where
from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from compat.hostile.batches import ZSTD, many_small

ALL = Limits(1 << 31, 1 << 31, 1 << 31)
VIEW = View("auto", 100)
FRAMED = b"\0\0\0\0\1"


def batch(*values: bytes | None, offset: int = 0, **more: Any) -> bytes:
    headers = more.pop("headers", [])
    records = [Record(offset + n, 1_000 + offset + n, b"k", value, headers) for n, value in enumerate(values)]
    return bytes(encode_batch(records, **more))


def opened(data: bytes, view: View = VIEW, limits: Limits = ALL, **more: Any) -> Opened:
    part = Part(7, more.get("start", 0), more.get("end", 1_000), data, more.get("aborted", ()))
    (result,) = open_parts([part], [limits], view)
    return result


def offsets(rows: list[Row]) -> list[int]:
    return [row.offset for row in rows]


def texts(rows: list[Row]) -> list[str]:
    return [json.loads(row.content)["value"]["text"] for row in rows]


@pytest.mark.parametrize("codec", range(5))
def test_batches_are_rows_whatever_compresses_them(codec: int) -> None:
    data = batch(b"a", b'{"b": 1}', codec=codec) + batch(None, b"\xff", offset=2, codec=codec)
    result = opened(data)
    assert (result.at, result.scanned, result.first, result.last) == (1_000, 4, 1_000, 1_003)
    assert texts(result.rows) == ["a", '{"b": 1}', "", "ff"]
    assert json.loads(result.rows[1].content) == {
        "partition": 7, "offset": 1, "timestamp": 1_001, "append_time": False,
        "key": {"form": "text", "text": "k", "size": 1},
        "value": {"form": "json", "text": '{"b": 1}', "size": 8}, "headers": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("limits", "seen", "at"),
    [
        (Limits(4, 100, 100), 4, 4), (Limits(100, 4, 100), 4, 4), (Limits(100, 100, 1), 10, 10),
        (Limits(10, 100, 100), 10, 10), (Limits(12, 100, 100), 12, 12),
    ],
)  # fmt: skip
def test_a_call_ends_at_its_limits_and_the_next_goes_on(limits: Limits, seen: int, at: int) -> None:
    data = batch(*[b"x"] * 10) + batch(*[b"y"] * 10, offset=10)
    result = opened(data, limits=limits)
    assert (len(result.rows), result.at) == (seen, at)
    rows = list(result.rows)
    while result.at < 1_000:
        result = opened(data, limits=limits, start=result.at)
        rows += result.rows
    assert offsets(rows) == [*range(20)]


def test_a_damaged_batch_is_a_row_that_says_so() -> None:
    good = batch(b"a")
    bad = bytearray(batch(b"b", offset=1))
    bad[-1] ^= 1
    result = opened(good + bytes(bad) + batch(b"c", offset=2))
    assert offsets(result.rows) == [0, 1, 2]
    assert result.rows[1].problem == "the batch does not fit its checksum"
    value = json.loads(result.rows[1].content)["value"]
    assert value["problem"] == "the batch does not fit its checksum"


def test_what_is_cut_off_or_no_batch_ends_a_part() -> None:
    data = batch(b"a")
    assert texts(opened(data + batch(b"b", offset=1)[:-1]).rows) == ["a"]
    assert texts(opened(data + b"\xff" * 100).rows) == ["a"]


def test_a_batch_of_very_many_records_takes_several_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "CALL_SECONDS", 0.02)
    data = many_small(2, ZSTD, 60_000)
    view = replace(VIEW, match=Pattern("nothing"))
    at = scanned = calls = 0
    while at < 60_000:
        began = time.thread_time()
        result = opened(data, view, start=at, end=60_000)
        assert time.thread_time() - began < 2.0
        assert result.at > at, "each call gets further"
        at, scanned, calls = result.at, scanned + result.scanned, calls + 1
    assert scanned == 60_000
    assert calls > 1


def test_headers_are_cut_in_number_and_in_length() -> None:
    many = [("h", b"x")] * (HEADERS_MAX + 1)
    shown = json.loads(opened(batch(b"v", headers=many), View("auto", 1_000)).rows[0].content)
    assert (len(shown["headers"]), shown["headers_total"]) == (HEADERS_MAX, HEADERS_MAX + 1)
    long = [("n" * 5_000, b"x" * 5_000)] * 50
    (row,) = opened(batch(b"v", headers=long)).rows
    assert len(row.content) < 20_000
    assert all(header["value"]["cut"] for header in json.loads(row.content)["headers"])


def test_payloads_with_a_schema_wait_for_it_unless_shown_raw() -> None:
    data = batch(FRAMED + b"abc", b"plain")
    result = opened(data, View("auto", 10, has_registry=True))
    assert ([record.offset for record in result.unread], offsets(result.rows)) == ([0], [1])
    for view in (View("auto", 10), View("hex", 10, has_registry=True)):
        assert offsets(opened(data, view).rows) == [0, 1]
    large = opened(batch(FRAMED + bytes(FRAMED_BYTES_MAX)), View("auto", 10, has_registry=True))
    assert (len(large.unread), len(large.rows)) == (0, 1), "it is not read by its schema"
    assert "read by their schemas" in json.loads(large.rows[0].content)["value"]["problem"]


def test_a_payload_is_shown_as_its_schema_reads_it() -> None:
    good, bad = FRAMED + b"abc", FRAMED + b"xyz"
    record = RawRecord(0, 5, 9, False, good, bad, [])
    payloads = {
        good: Payload("AVRO", '{"id": 7}', False, 3),
        bad: Payload("hex", "", problem="no such schema"),
    }
    (row,) = show([record], payloads, VIEW)
    shown = json.loads(row.content)
    assert shown["key"] == {"form": "AVRO", "text": '{"id": 7}', "schema_id": 3, "size": 8}
    assert shown["value"] == {
        "form": "hex", "text": "00 00 00 00 01 78 79 7a", "problem": "no such schema", "size": 8,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "is_regex", "is_exact_case", "is_found"),
    [
        ("VALUE", False, False, True), ("VALUE", False, True, False), ("Value", False, True, True),
        ("V.lue", False, True, False), ("V.lue", True, True, True), ("v.lue", True, True, False),
        ("v.lue", True, False, True), ("(", False, False, False),
    ],
)  # fmt: skip
def test_a_text_may_be_a_pattern_and_of_exact_case(
    text: str, is_regex: bool, is_exact_case: bool, is_found: bool
) -> None:
    record = RawRecord(0, 1, 0, False, None, b"Value", [])
    match = Pattern(text, "value", is_regex=is_regex, is_exact_case=is_exact_case)
    assert bool(show([record], {}, replace(VIEW, match=match))) is is_found


def matching(match: Match, *records: RawRecord, payloads: Any = None, **more: Any) -> list[dict[str, Any]]:
    view = replace(VIEW, match=match, topic="orders", **more)
    return [json.loads(row.content) for row in show(records, payloads or {}, view)]


def test_a_filter_chooses_records_by_what_their_schema_reads() -> None:
    data = FRAMED + b"abc"
    record = RawRecord(0, 5, 9, False, b"ann", data, [("trace", b'{"id": 7}')])
    payloads = {data: Payload("AVRO", '{"total": 63.33, "name": "K\u00f6ln"}', False, 3)}
    for text in (
        "$.total > 60",
        "topic = 'orders' and key = 'ann'",
        "headers.trace.id = 7",
        "$.name = 'Köln'",
    ):
        assert matching(Where(text), record, payloads=payloads), text
    assert not matching(Where("$.total > 64"), record, payloads=payloads)
    assert not matching(Where("$.total > 60"), record), "without its schema it is not JSON"


def test_hits_have_marks_in_units_of_a_browser() -> None:
    record = RawRecord(0, 5, 9, False, b"ann", '{"note": "\U0001f600", "total": 63}'.encode(), [("h", b"an")])
    (row,) = matching(Where("$.total > 60 and 'AN'"), record)
    assert row["value"]["text"][10:11] == "\U0001f600"
    start, end = row["value"]["marks"][0]
    assert row["value"]["text"].encode("utf-16-le")[2 * start : 2 * end].decode("utf-16-le") == "63"
    assert (row["key"]["marks"], row["headers"][0]["value"]["marks"]) == ([[0, 2]], [[0, 2]])
    (row,) = matching(Pattern("n+", is_regex=True), record, form="hex")
    assert "marks" not in row["key"], "it is shown in hexadecimal"
    (row,) = matching(Pattern("63"), record, chars_max=10)
    assert row["value"]["marks"] == [], "it is beyond what is shown"


def test_a_record_that_takes_a_filter_too_many_steps_says_so() -> None:
    hostile = RawRecord(0, 5, 9, False, None, json.dumps([0] * 5_000).encode(), [])
    (row,) = matching(Where("$..* < $..*"), hostile)
    assert row["value"]["problem"] == "the filter takes more than 200000 steps for this record"
    data = FRAMED + b"abc"
    cut = RawRecord(0, 6, 9, False, None, data, [])
    (row,) = matching(Where("$.a = 1"), cut, payloads={data: Payload("AVRO", '{"a": 1', True, 3)})
    assert "too long for a filter" in row["value"]["problem"]


def test_one_record_is_shown_whether_it_matches_or_not() -> None:
    record = RawRecord(0, 5, 9, False, None, b"abc", [])
    assert [row["value"].get("marks") for row in matching(Pattern("b"), record, shows_others=True)] == [
        [[1, 2]]
    ]
    assert [row["value"].get("marks") for row in matching(Pattern("x"), record, shows_others=True)] == [None]
