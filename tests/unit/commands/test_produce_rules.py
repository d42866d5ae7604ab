"""`barnabas produce`: how records are read, and what is sent of them, to a producer that keeps it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
import trio

from barnabas.client import ClientError, ProducerSettings, RecordMetadata
from barnabas.commands import produce
from barnabas.commands.errors import CommandError
from barnabas.commands.produce import (
    Sent,
    _header,
    _progress,
    _reading,
    _records,
    _send_all,
    _settings,
    _show_progress,
)
from barnabas.commands.records_in import Parsed, Reading, json_record, line_record

OPTIONS: dict[str, Any] = {
    "files": (), "whole": False, "delimiter": "\\n", "input_json": False, "key": None, "key_separator": None,
    "headers": (), "null": False, "partition": None, "timestamp": None, "count": None, "rate": None,
    "compression": None, "acks": None, "linger": None, "transactional_id": None, "transaction_size": 1000,
    "registry": None, "value_schema": None, "key_schema": None, "auto_create": False, "quiet": False,
}  # fmt: skip


# --- reading -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("a=b", ("a", b"b")),
        ("a=b=c", ("a", b"b=c")),
        ("a=", ("a", b"")),
        ("a", ("a", None)),
        ("ä=ö", ("ä", "ö".encode())),
        ("a=\udcff", ("a", b"\xff")),
    ],
)
def test_a_header_has_a_value_or_null(text: str, header: tuple[str, bytes | None]) -> None:
    assert _header(text) == header


@pytest.mark.parametrize(
    ("values", "options", "said"),
    [
        (("x",), {"files": ("f",)}, "give values, or files"),
        ((), {"key": "k", "key_separator": ":"}, "--key and --key-separator: a record has one key"),
        ((), {"input_json": True, "whole": True}, "--input-json says itself what key and value are"),
        ((), {"input_json": True, "key_separator": ":"}, "--input-json says itself what key and value are"),
        ((), {"key_separator": ""}, "a delimiter is not empty"),
    ],
)
def test_options_that_do_not_go_together_are_told(
    values: tuple[str, ...], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(click.UsageError, match=said):
        _reading(values, {**OPTIONS, **options})


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        ({}, {}),
        ({"files": ("f",)}, {}),
        ({"key": "k"}, {}),
        ({"key_separator": "\\t"}, {"key_separator": b"\t"}),
        ({"key_separator": ":", "whole": True}, {"key_separator": b":", "is_whole": True}),
        ({"delimiter": "\\0\\xff"}, {"delimiter": b"\0\xff"}),
        ({"null": True}, {"empty_is_null": True}),
        ({"input_json": True, "key": "k"}, {"is_json": True}),
    ],
)
def test_an_option_of_reading_changes_its_own_rule(options: dict[str, Any], changed: dict[str, Any]) -> None:
    assert _reading((), {**OPTIONS, **options}) == replace(Reading(), **changed)
    assert _reading(("x",), OPTIONS) == Reading()


async def read(values: tuple[str, ...] = (), **options: Any) -> list[Parsed]:
    given = {**OPTIONS, **options}
    records = _records(values, _reading(values, given), given)
    async with contextlib.aclosing(records):
        return [one async for one in records]


@pytest.fixture
def few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have files read three bytes at a time."""
    monkeypatch.setattr(produce, "READ_BYTES", 3)


@pytest.mark.parametrize(
    ("content", "options", "records"),
    [
        (b"one\ntwo\n", {}, [b"one", b"two"]),
        (b"one\ntwo", {}, [b"one", b"two"]),
        (b"\n\n", {}, [b"", b""]),
        (b"", {}, []),
        (b"a::b:::c", {"delimiter": "::"}, [b"a", b"b", b":c"]),
        (b"one\ntwo\n", {"whole": True}, [b"one\ntwo\n"]),
        (b"", {"whole": True}, [b""]),
        (b"one\n\ntwo\n", {"count": 2}, [b"one", b""]),
        (b"one\n\ntwo\n", {"count": 3}, [b"one", b"", b"two"]),
        (b"one\ntwo\n", {"count": 9}, [b"one", b"two"]),
    ],
)
@pytest.mark.usefixtures("few_bytes")
async def test_records_of_a_file_lie_between_delimiters(
    tmp_path: Path, content: bytes, options: dict[str, Any], records: list[bytes]
) -> None:
    file = tmp_path / "records"
    file.write_bytes(content)
    before = os.listdir("/proc/self/fd") if sys.platform == "linux" else []
    assert [one.value for one in await read(files=(str(file),), **options)] == records
    after = os.listdir("/proc/self/fd") if sys.platform == "linux" else []
    assert len(after) == len(before), "the file is closed"


async def test_files_are_read_one_after_the_other_each_with_its_last_line(tmp_path: Path) -> None:
    files = [tmp_path / name for name in "ab"]
    files[0].write_bytes(b"1\n2")
    files[1].write_bytes(b"3\n")
    names = tuple(map(str, files))
    assert [one.value for one in await read(files=names)] == [b"1", b"2", b"3"]
    assert [one.value for one in await read(files=names, whole=True)] == [b"1\n2", b"3\n"]
    assert [one.value for one in await read(("x", "", "y\n"))] == [b"x", b"", b"y\n"]
    with pytest.raises(CommandError, match=r"gone: No such file or directory$"):
        await read(files=(str(tmp_path / "gone"),))


@pytest.mark.parametrize("files", [(), ("-",)])
async def test_without_files_standard_input_is_read_and_left_open(files: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    kept = os.dup(0)
    try:
        os.dup2(reader, 0)
        os.write(writer, b"one\ntwo\n")
        os.close(writer)
        assert [one.value for one in await read(files=files)] == [b"one", b"two"]
        assert os.read(0, 1) == b""
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(reader)


async def test_a_line_that_is_no_record_is_numbered() -> None:
    with pytest.raises(CommandError, match=r"^record 2: b'two' has no separator b':'$"):
        await read(("o:ne", "two"), key_separator=":")
    with pytest.raises(CommandError, match=r"^record 3: "):
        await read(("{}", "{}", "["), input_json=True)


async def test_one_key_may_be_that_of_all_records() -> None:
    assert [one.key for one in await read(("x", '{"key": "own"}'), key="kö\udcff")] == [
        "kö".encode() + b"\xff"
    ] * 2
    assert [one.key for one in await read(('{"key": "own"}',), input_json=True, key="k")] == [b"k"]
    assert [one.key for one in await read(('{"key": "own"}',), input_json=True)] == [b"own"]


@pytest.mark.parametrize(
    ("text", "reading", "parsed"),
    [
        (b"k:v:w", Reading(key_separator=b":"), Parsed(b"v:w", b"k")),
        (b":", Reading(key_separator=b":"), Parsed(b"", b"")),
        (b":", Reading(key_separator=b":", empty_is_null=True), Parsed(None, None)),
        (b"k:", Reading(key_separator=b":", empty_is_null=True), Parsed(None, b"k")),
        (b":v", Reading(key_separator=b":", empty_is_null=True), Parsed(b"v", None)),
        (b"k:v", Reading(empty_is_null=True), Parsed(b"k:v", None)),
        (b"", Reading(), Parsed(b"", None)),
        (b"", Reading(empty_is_null=True), Parsed(None, None)),
    ],
)
def test_a_line_is_split_into_key_and_value_and_empty_is_null_only_if_that_is_said(
    text: bytes, reading: Reading, parsed: Parsed
) -> None:
    assert line_record(text, reading) == parsed


def test_a_long_line_without_a_separator_is_shown_by_its_beginning() -> None:
    with pytest.raises(ValueError, match=rf"^b'{'x' * 80}' has no separator b':'$"):
        line_record(b"x" * 100, Reading(key_separator=b":"))


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        (b"{}", Parsed(None)),
        (b'{"value": "v", "key": "k", "timestamp": 0}', Parsed(b"v", b"k", [], 0)),
        (b'{"timestamp": -1}', Parsed(None)),
        (b'{"timestamp": null, "headers": null}', Parsed(None)),
        (b'{"headers": {"a": "1", "b": null}}', Parsed(None, None, [("a", b"1"), ("b", None)])),
        (
            b'{"headers": [{"a": "1"}, {"a": "2", "b": "3"}]}',
            Parsed(None, None, [("a", b"1"), ("a", b"2"), ("b", b"3")]),
        ),
        (b'{"topic": "t", "partition": 9, "offset": 7, "value": 5}', Parsed(b"5")),
    ],
)
def test_an_object_is_a_record_and_its_place_is_left_out(text: bytes, parsed: Parsed) -> None:
    assert json_record(text) == parsed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            b"[]",
            "an object with some of topic, partition, offset, timestamp, key, value, headers is expected",
        ),
        (b'{"valeu": 1}', "an object with some of"),
        (b'{"timestamp": -2}', "timestamp -2 is no number of ms"),
        (b'{"timestamp": true}', "timestamp True is no number of ms"),
        (b'{"timestamp": 1.5}', "timestamp 1.5 is no number of ms"),
        (b'{"timestamp": "1"}', "timestamp '1' is no number of ms"),
        (b'{"headers": "a"}', "headers are a list of objects"),
        (b'{"headers": [{}, 1]}', "headers are a list of objects"),
        (b'{"value": {"base64": "?"}}', "'\\?' is not base64"),
    ],
)
def test_what_an_object_lacks_to_be_a_record_is_told(text: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        json_record(text)


# --- settings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "options", "settings"),
    [
        ({}, {}, ProducerSettings(creates_topics=False, max_block_ms=20_000)),
        (
            {"linger.ms": "7", "max.block.ms": "5", "acks": "1"},
            {},
            ProducerSettings(creates_topics=False, max_block_ms=5, linger_ms=7, acks=1, is_idempotent=False),
        ),
        (
            {"linger.ms": "7", "acks": "1", "compression.type": "lz4", "transactional.id": "x"},
            {"linger": 0.0, "acks": "all", "compression": "gzip", "transactional_id": "t", "auto_create": True},
            ProducerSettings(
                creates_topics=True, max_block_ms=20_000, linger_ms=0, compression="gzip", transactional_id="t"
            ),
        ),
    ],
)  # fmt: skip
def test_an_option_goes_before_a_setting(
    properties: dict[str, str], options: dict[str, Any], settings: ProducerSettings
) -> None:
    assert _settings(properties, {**OPTIONS, **options}) == settings


@pytest.mark.parametrize("properties", [{"acks": "2"}, {"max.block.ms": "soon"}, {"linger.ms": "x"}])
def test_a_setting_that_is_wrong_is_a_usage_error(properties: dict[str, str]) -> None:
    with pytest.raises(click.UsageError):
        _settings(properties, OPTIONS)


# --- sending -------------------------------------------------------------------------------------------------------


class StandIn:
    """A producer that keeps what it is told, and sends nothing."""

    def __init__(self, transactional_id: str | None = None) -> None:
        self.settings = SimpleNamespace(transactional_id=transactional_id)
        self.calls: list[Any] = []
        self.sent: list[tuple[float, dict[str, Any]]] = []
        self.failure: Exception | None = None

    async def send(self, topic: str, value: bytes | None, **given: Any) -> Any:
        if self.failure is not None:
            raise self.failure
        number = len(self.sent)
        self.calls.append(number)
        self.sent.append((trio.current_time(), {"topic": topic, "value": value, **given}))
        metadata = RecordMetadata(topic, number % 3, number, 0)
        return SimpleNamespace(partition=number % 3, result=lambda: metadata)

    def begin_transaction(self) -> None:
        self.calls.append("begin")

    async def commit_transaction(self) -> None:
        self.calls.append("commit")

    async def flush(self) -> None:
        self.calls.append("flush")


async def send(producer: StandIn, records: list[Parsed], **options: Any) -> Sent:
    async def given() -> AsyncGenerator[Parsed, None]:
        for one in records:
            yield one

    sent = Sent(trio.current_time())
    target: Any = producer
    async with contextlib.aclosing(given()) as given_records:
        await _send_all(target, "t", given_records, {**OPTIONS, **options}, sent)
    return sent


async def test_what_was_sent_is_counted() -> None:
    producer = StandIn()
    records = [Parsed(b"abc", b"k"), Parsed(None, None), Parsed(b"", b"kkkk"), Parsed(b"de", None)]
    sent = await send(producer, records)
    assert (sent.records, sent.bytes, sent.partitions) == (4, 10, {0, 1, 2})
    assert sent.first is not None
    assert sent.last is not None
    assert (sent.first.result().offset, sent.last.result().offset) == (0, 3)
    assert producer.calls == [0, 1, 2, 3, "flush"]
    nothing = await send(StandIn(), [])
    assert (nothing.records, nothing.bytes, nothing.first, nothing.last) == (0, 0, None, None)


async def test_a_record_is_sent_with_what_options_say_of_all() -> None:
    producer = StandIn()
    own = Parsed(b"v", b"k", [("a", b"1")], 5)
    await send(producer, [own])
    await send(producer, [own, Parsed(b"w")], headers=(("b", None),), partition=0, timestamp=0)
    plain = {
        "topic": "t",
        "value": b"v",
        "key": b"k",
        "headers": [("a", b"1")],
        "partition": None,
        "timestamp_ms": 5,
    }
    assert [given for _, given in producer.sent] == [
        plain,
        {**plain, "headers": [("a", b"1"), ("b", None)], "partition": 0, "timestamp_ms": 0},
        {
            "topic": "t",
            "value": b"w",
            "key": None,
            "headers": [("b", None)],
            "partition": 0,
            "timestamp_ms": 0,
        },
    ]


async def test_what_cannot_be_sent_is_told() -> None:
    producer = StandIn()
    producer.failure = ValueError("no partition 7")
    with pytest.raises(CommandError, match=r"^no partition 7$"):
        await send(producer, [Parsed(b"v")])
    producer.failure = ClientError("away")
    with pytest.raises(ClientError, match=r"^away$"):
        await send(producer, [Parsed(b"v")])


@pytest.mark.parametrize(
    ("count", "size", "calls"),
    [
        (0, 2, []),
        (1, 2, ["begin", 0, "commit"]),
        (2, 2, ["begin", 0, 1, "commit"]),
        (3, 2, ["begin", 0, 1, "commit", "begin", 2, "commit"]),
        (2, 1, ["begin", 0, "commit", "begin", 1, "commit"]),
    ],
)
async def test_a_transaction_has_so_many_records_and_none_is_empty(
    count: int, size: int, calls: list[Any]
) -> None:
    producer = StandIn("id")
    await send(producer, [Parsed(b"v")] * count, transaction_size=size)
    assert producer.calls == calls


async def test_records_are_sent_at_a_rate(autojump_clock: object) -> None:
    producer = StandIn()
    began = trio.current_time()
    await send(producer, [Parsed(b"v")] * 4, rate=2.0)
    assert [at - began for at, _ in producer.sent] == [0, 0.5, 1, 1.5]


# --- progress ------------------------------------------------------------------------------------------------------


def test_progress_is_told_by_records_bytes_and_those_of_the_last_half_second() -> None:
    sent = Sent(0.0)
    lines: Iterator[str] = _progress(sent)
    assert next(lines) == "0 records, 0 bytes, 0 a second"
    sent.records, sent.bytes = 10, 300
    assert next(lines) == "10 records, 300 bytes, 20 a second"
    sent.records, sent.bytes = 15, 400
    assert next(lines) == "15 records, 400 bytes, 10 a second"
    assert next(lines) == "15 records, 400 bytes, 0 a second"


async def test_progress_is_written_over_itself_and_taken_away_at_the_end(
    capsys: pytest.CaptureFixture[str], autojump_clock: object
) -> None:
    with trio.move_on_after(1.2):
        await _show_progress(Sent(0.0))
    line = "\r0 records, 0 bytes, 0 a second\x1b[K"
    assert capsys.readouterr() == ("", line * 3 + "\r\x1b[K")
