"""`barnabas produce`: how records are read, and what is sent of them, to a producer that keeps it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
import trio

from barnabas.client import RecordMetadata
from barnabas.commands.errors import CommandError
from barnabas.commands.produce import (
    Sent,
    _reading,
    _records,
    _send_all,
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


async def read(values: tuple[str, ...] = (), **options: Any) -> list[Parsed]:
    given = {**OPTIONS, **options}
    records = _records(values, _reading(values, given), given)
    async with contextlib.aclosing(records):
        return [one async for one in records]


async def test_files_are_read_in_turn_with_their_last_lines(tmp_path: Path) -> None:
    files = [tmp_path / name for name in "ab"]
    files[0].write_bytes(b"1\n2")
    files[1].write_bytes(b"3\n")
    names = tuple(map(str, files))
    assert [one.value for one in await read(files=names)] == [b"1", b"2", b"3"]
    assert [one.value for one in await read(files=names, whole=True)] == [b"1\n2", b"3\n"]
    assert [one.value for one in await read(("x", "", "y\n"))] == [b"x", b"", b"y\n"]
    with pytest.raises(CommandError, match=r"gone: No such file or directory$"):
        await read(files=(str(tmp_path / "gone"),))


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


async def test_records_are_sent_at_a_rate(autojump_clock: object) -> None:
    producer = StandIn()
    began = trio.current_time()
    await send(producer, [Parsed(b"v")] * 4, rate=2.0)
    assert [at - began for at, _ in producer.sent] == [0, 0.5, 1, 1.5]


# --- progress ------------------------------------------------------------------------------------------------------


async def test_progress_overwrites_itself_and_is_erased_at_the_end(
    capsys: pytest.CaptureFixture[str], autojump_clock: object
) -> None:
    with trio.move_on_after(1.2):
        await _show_progress(Sent(0.0))
    line = "\r0 records, 0 bytes, 0 a second\x1b[K"
    assert capsys.readouterr() == ("", line * 3 + "\r\x1b[K")
