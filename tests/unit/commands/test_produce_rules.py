"""`barnabas produce`: how records are read, and what is sent of them, to a producer that keeps it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from barnabas.client import RecordMetadata
from barnabas.commands.errors import CommandError
from barnabas.commands.produce import Sent, _reading, _records, _send_all
from barnabas.commands.records_in import Parsed, Reading, json_record, line_record

OPTIONS: dict[str, Any] = {
    "files": (), "whole": False, "delimiter": "\\n", "input_json": False, "key": None, "key_separator": None,
    "headers": (), "null": False, "partition": None, "timestamp": None, "count": None, "rate": None,
    "compression": None, "acks": None, "linger": None, "transactional_id": None, "transaction_size": 1000,
    "registry": None, "value_schema": None, "key_schema": None, "auto_create": False, "quiet": False,
}  # fmt: skip


# --- reading -------------------------------------------------------------------------------------------------------


async def read(values: tuple[str, ...] = (), **options: Any) -> list[Parsed]:
    arguments = {**OPTIONS, **options}
    records = _records(values, _reading(values, arguments), arguments)
    async with contextlib.aclosing(records):
        return [record async for record in records]


async def test_files_are_read_in_turn_with_their_last_lines(tmp_path: Path) -> None:
    files = [tmp_path / name for name in "ab"]
    files[0].write_bytes(b"1\n2")
    files[1].write_bytes(b"3\n")
    names = tuple(map(str, files))
    assert [record.value for record in await read(files=names)] == [b"1", b"2", b"3"]
    assert [record.value for record in await read(files=names, whole=True)] == [b"1\n2", b"3\n"]
    assert [record.value for record in await read(("x", "", "y\n"))] == [b"x", b"", b"y\n"]
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
        assert [record.value for record in await read(files=files)] == [b"one", b"two"]
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


def test_long_line_without_separator_is_shown_cut() -> None:
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


# --- sending -------------------------------------------------------------------------------------------------------


class StandIn:
    """A producer that keeps what it is told, and sends nothing."""

    def __init__(self, transactional_id: str | None = None) -> None:
        self.settings = SimpleNamespace(transactional_id=transactional_id)
        self.calls: list[Any] = []
        self.sent: list[tuple[float, dict[str, Any]]] = []
        self.failure: Exception | None = None

    async def send(self, topic: str, value: bytes | None, **fields: Any) -> Any:
        if self.failure is not None:
            raise self.failure
        number = len(self.sent)
        self.calls.append(number)
        self.sent.append((trio.current_time(), {"topic": topic, "value": value, **fields}))
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
        for record in records:
            yield record

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
