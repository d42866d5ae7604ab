"""Pages of records: where they begin and end, what a request may name, what a body of new records is."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.client import ClientError, ConsumedRecord
from barnabas.client.admin import OffsetAt
from barnabas.client.consuming.settings import READ_COMMITTED
from barnabas.console import reading
from barnabas.console.base import Call, ConsoleError
from barnabas.console.decoding import Decoding, plain_text
from barnabas.console.reading import (
    PARTITIONS_MAX,
    READING,
    WINDOW_MAX,
    Bounds,
    Page,
    Window,
    newest,
    places_of,
    starts_at,
)
from barnabas.console.routes import records
from barnabas.console.routes.records import (
    _bytes,
    _cursor,
    _encoded,
    _is_left,
    _page,
    _read_cursor,
    _record,
    _starts,
)
from barnabas.console.searching import PATTERN_CHARS_MAX, matcher
from barnabas.registry.errors import SchemaError

A, B = ("t", 0), ("t", 1)
BOUNDS = Bounds({A: 10, B: 0}, {A: 20, B: 5})


def record(place: tuple[str, int], offset: int, timestamp: int = 0, **more: Any) -> ConsumedRecord:
    return ConsumedRecord(*place, offset, timestamp, **{"key": None, "value": b"v", **more})


def call(**query: str) -> Call:
    backend: Any = SimpleNamespace(admin=None)
    return Call(backend, {"topic": "t"}, query, {})


# --- partitions and positions --------------------------------------------------------------------------------------


def topic(count: int) -> Any:
    async def retrying(ask: Any) -> Any:
        return ask()

    partitions = [SimpleNamespace(partition_index=number) for number in reversed(range(count))]
    return SimpleNamespace(
        client=SimpleNamespace(
            retrying=retrying, topic=lambda name: SimpleNamespace(partitions=partitions, name=name)
        )
    )


async def test_a_request_names_partitions_or_means_all() -> None:
    assert await places_of(topic(3), "t", " ") == [("t", 0), ("t", 1), ("t", 2)]
    assert await places_of(topic(3), "t", "2, 0,2") == [("t", 0), ("t", 2)]
    assert len(await places_of(topic(PARTITIONS_MAX), "t", "")) == PARTITIONS_MAX
    assert await places_of(topic(PARTITIONS_MAX + 1), "t", "256") == [("t", 256)]
    for backend, text, status, said in (
        (topic(PARTITIONS_MAX + 1), "", 400, "t has 257 partitions: choose up to 256 of them"),
        (topic(3), "1,3,4", 404, "t has no partition 3"),
        (topic(3), "1,x", 400, "partition: numbers with commas between them expected"),
    ):
        with pytest.raises(ConsoleError) as raised:
            await places_of(backend, "t", text)
        assert (raised.value.status, str(raised.value)) == (status, said)


async def test_a_time_without_a_record_is_the_end() -> None:
    async def offsets(times: dict[Any, int]) -> dict[Any, Any]:
        assert set(times.values()) == {7}
        return {A: OffsetAt(0, 7, 0), B: OffsetAt(-1, -1, 0)}

    backend: Any = SimpleNamespace(admin=SimpleNamespace(offsets=offsets))
    assert await starts_at(backend, BOUNDS, 7) == {A: 0, B: 5}

    async def failing(times: dict[Any, int]) -> dict[Any, Any]:
        return dict.fromkeys(times, ClientError("away"))

    backend.admin.offsets = failing
    assert await starts_at(backend, BOUNDS, 7) == {A: 20, B: 5}


@pytest.mark.parametrize(
    ("query", "starts"),
    [
        ({}, {A: 10, B: 0}),
        ({"from": "oldest"}, {A: 10, B: 0}),
        ({"from": "offset", "offset": "3"}, {A: 10, B: 3}),
        ({"from": "offset", "offset": "15"}, {A: 15, B: 5}),
        ({"from": "offset", "offset": "99"}, {A: 20, B: 5}),
        ({"from": "time", "time": "7"}, {A: 7, B: 7}),
    ],
)
async def test_a_request_begins_within_what_a_partition_has(
    query: dict[str, str], starts: dict[Any, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def at(_: Any, bounds: Bounds, time_ms: int) -> dict[Any, int]:
        return dict.fromkeys(bounds.first, time_ms)

    monkeypatch.setattr(records, "starts_at", at)
    assert await _starts(call(**query), BOUNDS) == starts


def test_a_cursor_names_offsets_by_partition_and_is_kept_within_bounds() -> None:
    assert _cursor({B: 3, A: 12}) == "0:12,1:3"
    assert _read_cursor("0:12,1:3", BOUNDS, BOUNDS.first) == {A: 12, B: 3}
    assert _read_cursor("0:9,1:6,7:1", BOUNDS, BOUNDS.first) == {A: 10, B: 5}
    assert _read_cursor("1:2", BOUNDS, BOUNDS.next) == {A: 20, B: 2}
    for wrong in ("0", "0:x", "0:1:2", "x:1"):
        with pytest.raises(ConsoleError, match="what an answer gave as older or newer expected"):
            _read_cursor(wrong, BOUNDS, BOUNDS.first)
    assert not _is_left({A: 10, B: 0}, {A: 10, B: 0})
    assert _is_left({A: 10, B: 0}, {A: 10, B: 1})
    assert not _is_left({A: 11, B: 0}, {A: 10, B: 0})


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ({}, ("newest", {A: 20, B: 5})),
        ({"before": "0:15"}, ("newest", {A: 15, B: 0})),
        ({"after": "0:15"}, ("window", {A: 15, B: 5}, {A: 20, B: 5})),
        ({"from": "oldest"}, ("window", {A: 10, B: 0}, {A: 20, B: 5})),
        ({"from": "oldest", "committed": "true"}, ("window", {A: 10, B: 0}, {A: 20, B: 5})),
    ],
)
async def test_a_page_is_of_the_newest_or_of_a_window(
    query: dict[str, str], asked: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[Any] = []

    async def of_newest(_: Any, bounds: Bounds, limit: int, settings: Any) -> str:
        noted.extend([("newest", bounds.next), limit, settings])
        return "newest"

    async def of_window(_: Any, window: Window, limit: int, settings: Any) -> str:
        noted.extend([("window", window.starts, window.ends), limit, settings])
        return "window"

    monkeypatch.setattr(records, "newest", of_newest)
    monkeypatch.setattr(records, "read_window", of_window)
    page: Any = await _page(call(**query), BOUNDS, 33)
    assert page == asked[0]
    assert noted[:2] == [asked, 33]
    assert (noted[2].isolation == READ_COMMITTED) == ("committed" in query)
    assert "committed" in query or noted[2] == READING


# --- the newest ----------------------------------------------------------------------------------------------------


async def read_newest(
    monkeypatch: pytest.MonkeyPatch,
    bounds: Bounds,
    limit: int,
    *pages: list[ConsumedRecord],
    is_late: bool = False,
) -> tuple[Page, list[dict[Any, int]]]:
    """Return the page of the newest, and from where on was read each time."""
    given, starts = list(pages), []

    async def read_window(_: Any, window: Window, most: int, settings: Any) -> Page:
        assert (most, settings, window.ends) == (WINDOW_MAX, READING, bounds.next)
        starts.append(dict(window.starts))
        return Page(given.pop(0), window, is_late)

    monkeypatch.setattr(reading, "read_window", read_window)
    backend: Any = None
    return await newest(backend, bounds, limit), starts


async def test_the_newest_are_in_the_order_of_their_times_and_as_many_as_were_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [record(A, 18, 5), record(A, 19, 9), record(B, 3, 9), record(B, 4, 7)]
    page, starts = await read_newest(monkeypatch, BOUNDS, 3, found)
    assert [(one.partition, one.offset) for one in page.records] == [(0, 19), (1, 3), (1, 4)]
    assert starts == [{A: 18, B: 3}], "two of each partition: the share of three, rounded up"
    assert page.window == Window({A: 19, B: 3}, {A: 20, B: 5})


async def test_a_partition_of_which_nothing_is_shown_has_its_window_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [record(A, 18, 1), record(A, 19, 2), record(B, 3, 9), record(B, 4, 7)]
    page, _ = await read_newest(monkeypatch, BOUNDS, 2, found)
    assert [(one.partition, one.offset) for one in page.records] == [(1, 3), (1, 4)]
    assert page.window.starts == {A: 20, B: 3}


async def test_offsets_without_records_make_it_look_further_back_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds = Bounds({A: 0}, {A: 10_000})
    page, starts = await read_newest(monkeypatch, bounds, 10, [], [record(A, 9_950)], [record(A, 9_500)])
    assert starts == [{A: 9_990}, {A: 9_920}, {A: 9_360}]
    assert [one.offset for one in page.records] == [9_500]
    assert page.window.starts == {A: 9_500}
    page, starts = await read_newest(monkeypatch, bounds, 10, [], [], [])
    assert (len(starts), page.window.starts) == (3, {A: 9_360}), (
        "where nothing was found the next page begins there"
    )


@pytest.mark.parametrize(
    ("bounds", "first", "is_late"),
    [
        (Bounds({A: 9_990}, {A: 10_000}), [], False),
        (Bounds({A: 0}, {A: 10_000}), [record(A, 9_990 + number) for number in range(5)], False),
        (Bounds({A: 0}, {A: 10_000}), [record(A, 9_990 + number) for number in range(10)], False),
        (Bounds({A: 0}, {A: 10_000}), [], True),
    ],
)
async def test_it_looks_no_further_where_there_is_no_more_or_half_was_found_or_time_is_over(
    monkeypatch: pytest.MonkeyPatch, bounds: Bounds, first: list[ConsumedRecord], is_late: bool
) -> None:
    page, starts = await read_newest(monkeypatch, bounds, 10, first, is_late=is_late)
    assert len(starts) == 1
    assert (len(page.records), page.is_late) == (len(first), is_late)


async def test_half_is_not_enough_where_a_partition_has_shown_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds = Bounds({A: 0, B: 0}, {A: 10_000, B: 10_000})
    first = [record(A, 9_999 - number) for number in range(5)]
    _, starts = await read_newest(monkeypatch, bounds, 10, first, [*first, record(B, 9_990)])
    assert len(starts) == 2


# --- new records ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (None, None),
        ("", b""),
        ("ä", "ä".encode()),
        ("\ud800", b"\xed\xa0\x80"),
        ({"base64": "/w=="}, b"\xff"),
    ],
)
def test_bytes_of_a_body_are_a_text_or_base64(value: Any, data: bytes | None) -> None:
    assert _bytes(value, "x") == data


@pytest.mark.parametrize(
    "value", [1, True, [], {}, {"base64": 1}, {"base64": "?"}, {"base64": "", "more": 1}]
)
def test_what_is_no_such_value_names_its_field(value: Any) -> None:
    with pytest.raises(ConsoleError, match=r"^x: ") as raised:
        _bytes(value, "x")
    assert raised.value.status == 400


NO_SCHEMAS: Any = {"key": None, "value": None}


def test_a_record_of_a_body_has_all_that_a_record_has() -> None:
    row = {
        "key": "k",
        "value": None,
        "headers": [{"name": "h", "value": "1"}, {"name": "n"}],
        "partition": 0,
        "timestamp": 0,
    }
    assert _record(row, 0, NO_SCHEMAS) == {
        "key": b"k", "value": None, "headers": [("h", b"1"), ("n", None)], "partition": 0, "timestamp_ms": 0,
    }  # fmt: skip
    found = _record({"headers": None}, 0, NO_SCHEMAS)
    assert (found["headers"], found["partition"]) == ([], None)
    assert found["timestamp_ms"] > 1_700_000_000_000


@pytest.mark.parametrize(
    ("row", "said"),
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
def test_a_record_that_is_none_is_told_by_its_number(row: Any, said: str | None) -> None:
    if said is None:
        assert _record(row, 3, NO_SCHEMAS)["headers"] == []
        return
    with pytest.raises(ConsoleError) as raised:
        _record(row, 3, NO_SCHEMAS)
    assert str(raised.value).startswith(said)


def test_a_value_with_a_schema_is_json_or_what_json_is() -> None:
    class Writer:
        def encode(self, value: Any) -> bytes:
            if value == "bad":
                raise SchemaError("no such field")
            return json.dumps(value).encode()

    writer: Any = Writer()
    for row, data in (
        ({"v": '{"a": 1}'}, b'{"a": 1}'),
        ({"v": {"a": 1}}, b'{"a": 1}'),
        ({"v": None}, None),
        ({}, None),
    ):
        assert _encoded(row, "v", "x", writer) == data
    assert _encoded({"v": "text"}, "v", "x", None) == b"text"
    for value, said in (
        ("bad json", "x: JSON expected, to be written by a schema"),
        ('"bad"', "x does not fit the schema: no such"),
    ):
        with pytest.raises(ConsoleError) as raised:
            _encoded({"v": value}, "v", "x", writer)
        assert str(raised.value).startswith(said)


# --- what is looked for, and how it is shown -----------------------------------------------------------------------

FULL = record(A, 1, key=b"Key", value=b"Value", headers=[("Name", b"Text"), ("none", None)])


@pytest.mark.parametrize(
    ("text", "place", "found"),
    [
        ("key", "key", True), ("key", "value", False), ("key", "headers", False), ("key", "anywhere", True),
        ("alu", "value", True), ("alu", "key", False), ("alu", "anywhere", True),
        ("name", "headers", True), ("text", "headers", True), ("none", "headers", True), ("name", "anywhere", True),
        ("name", "value", False), ("other", "anywhere", False),
    ],
)  # fmt: skip
def test_a_text_is_looked_for_where_that_was_said(text: str, place: str, found: bool) -> None:
    assert matcher(text, place, is_regex=False, is_exact_case=False)(FULL) is found
    assert not matcher(text, place, is_regex=False, is_exact_case=False)(record(A, 1, value=None))


@pytest.mark.parametrize(
    ("text", "is_regex", "is_exact_case", "found"),
    [
        ("VALUE", False, False, True), ("VALUE", False, True, False), ("Value", False, True, True),
        ("V.lue", False, True, False), ("V.lue", True, True, True), ("v.lue", True, True, False),
        ("v.lue", True, False, True), ("(", False, False, False),
    ],
)  # fmt: skip
def test_a_text_may_be_a_pattern_and_of_exact_case(
    text: str, is_regex: bool, is_exact_case: bool, found: bool
) -> None:
    assert matcher(text, "value", is_regex=is_regex, is_exact_case=is_exact_case)(FULL) is found


@pytest.mark.parametrize("text", ["", "x" * (PATTERN_CHARS_MAX + 1)])
def test_a_text_has_a_length(text: str) -> None:
    with pytest.raises(ConsoleError, match=f"text: 1 to {PATTERN_CHARS_MAX} characters expected"):
        matcher(text, "value", is_regex=False, is_exact_case=False)
    matcher("x" * PATTERN_CHARS_MAX, "value", is_regex=False, is_exact_case=False)


@pytest.mark.parametrize(
    ("data", "form", "shown"),
    [
        (b"ab", "hex", ("hex", "61 62")), (b"\xff", "text", ("hex", "ff")), (b"{}", "text", ("text", "{}")),
        (b"{}", "auto", ("json", "{}")), (b"{}", "json", ("json", "{}")), (b"{", "auto", ("text", "{")),
        (b"true", "auto", ("json", "true")), (b"-1", "auto", ("json", "-1")), (b"", "auto", ("text", "")),
        (b"a\tb\r\n", "auto", ("text", "a\tb\r\n")), (b"a\0b", "auto", ("hex", "61 00 62")),
        (b"a\0b", "json", ("text", "a\0b")), (b"x" * 200 + b"\0", "auto", ("text", "x" * 200 + "\0")),
        (b"x" * 199 + b"\0", "auto", ("hex", (b"x" * 199 + b"\0").hex(" "))),
    ],
)  # fmt: skip
def test_bytes_are_shown_as_asked_if_they_can_be(data: bytes, form: str, shown: tuple[str, str]) -> None:
    assert plain_text(data, form) == shown


async def test_only_what_is_framed_is_read_through_the_registry_and_only_if_that_was_asked() -> None:
    asked: list[bytes] = []

    async def decode(data: bytes) -> Any:
        asked.append(data)
        if data.endswith(b"x"):
            raise ValueError("bad" * 200)
        return None if data.endswith(b"n") else SimpleNamespace(value={"ä": b"1"}, format="AVRO", schema_id=7)

    deserializer: Any = SimpleNamespace(decode=decode)
    framed = b"\0\0\0\0\1"
    for form in ("auto", "registry"):
        found = await Decoding(form, deserializer).payload(framed)
        assert found == {"form": "AVRO", "text": '{"ä": "b\'1\'"}', "schema_id": 7, "size": 5}
    assert len(asked) == 2
    for form, data in (("json", framed), ("auto", framed[:4]), ("auto", b"\1\0\0\0\1")):
        assert (await Decoding(form, deserializer).payload(data))["form"] in ("hex", "text")
    assert len(asked) == 2
    assert (await Decoding("auto", None).payload(framed))["form"] == "hex"
    found = await Decoding("auto", deserializer).payload(framed + b"x")
    assert (found["form"], len(found["problem"]), found["size"]) == ("hex", 300, 6)
    assert (await Decoding("auto", deserializer).payload(framed + b"n"))["form"] == "hex"


async def test_what_is_longer_than_it_may_be_is_cut_and_says_so() -> None:
    decoding = Decoding("text", None, 3)
    assert await decoding.payload(b"abc") == {"form": "text", "text": "abc", "size": 3}
    assert await decoding.payload(b"abcd") == {"form": "text", "text": "abc", "size": 4, "cut": True}
    assert await decoding.payload(None) == {"form": "null", "text": "", "size": -1}
    one = record(A, 7, -1, key=b"k", headers=[("h", None)])
    assert await decoding.record(one) == {
        "partition": 0, "offset": 7, "timestamp": None, "append_time": False,
        "key": {"form": "text", "text": "k", "size": 1}, "value": {"form": "text", "text": "v", "size": 1},
        "headers": [{"name": "h", "value": {"form": "null", "text": "", "size": -1}}],
    }  # fmt: skip
    assert (await decoding.record(record(A, 7, 0)))["timestamp"] == 0
