"""`barnabas consume`: where it begins and ends, what it prints, with a consumer that says what it was told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import pytest
import trio

from barnabas.client import ConsumedRecord, FetchedRecords, OffsetAndTimestamp, TopicPartition
from barnabas.commands import printing
from barnabas.commands.consume import Position, _print_topics, _settings, position
from barnabas.commands.printing import Printer
from barnabas.commands.records_out import formatter
from barnabas.records.building import encode_batch
from barnabas.records.record import Record

OPTIONS: dict[str, Any] = {
    "topics": ("t",), "partitions": (), "begin": None, "end": None, "follow": False, "group": None, "regex": False,
    "count": None, "idle": None, "keys": (), "values": (), "headers": (), "where": None, "uncommitted": False,
    "quiet": False,
}  # fmt: skip


def record(offset: int, partition: int = 0, **more: Any) -> ConsumedRecord:
    return ConsumedRecord("t", partition, offset, 5, **{"key": None, "value": b"%d" % offset, **more})


# --- options -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("beginning", Position("beginning")), ("end", Position("end")), ("0", Position("offset", 0)),
        ("12", Position("offset", 12)), ("-2", Position("last", 2)), ("-0", Position("last", 0)),
        ("-12", Position("last", 12)), ("@1500", Position("time", 1500)), ("@1970-01-01", Position("time", 0)),
    ],
)  # fmt: skip
def test_a_position_is_read(text: str, where: Position) -> None:
    assert position(text) == where


@pytest.mark.parametrize("kind", ["offset", "last", "time"])
def test_a_group_begins_at_an_end(kind: str) -> None:
    with pytest.raises(click.UsageError, match="with --group, --from is beginning or end"):
        _settings({}, {**OPTIONS, "group": "g", "begin": Position(kind, 1)})
    with pytest.raises(click.UsageError, match="whole number"):
        _settings({"fetch.min.bytes": "x"}, OPTIONS)


# --- printing ------------------------------------------------------------------------------------------------------


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> Callable[[], bytes]:
    """Standard output, which takes three bytes at a time."""
    data = bytearray()

    def write(descriptor: int, part: memoryview) -> int:
        assert descriptor == 1
        data.extend(part[:3])
        return min(3, len(part))

    monkeypatch.setattr(printing.os, "write", write)
    return lambda: bytes(data)


def _fetched(entry: ConsumedRecord) -> FetchedRecords:
    data = encode_batch([Record(entry.offset, entry.timestamp_ms, entry.key, entry.value)])
    return FetchedRecords(entry.topic, entry.partition, entry.offset, entry.offset + 1, data, ())


def printer(layout: str = "%s,", **options: Any) -> Printer:
    return Printer(formatter(layout, b"-"), {**OPTIONS, **options})


# --- where to begin and to end -------------------------------------------------------------------------------------

A, B, C = (TopicPartition("t", number) for number in range(3))
FIRST, LAST = {A: 5, B: 0, C: 7}, {A: 10, B: 3, C: 7}


class StandIn:
    """A consumer of a topic with three partitions, with offsets from FIRST to LAST."""

    def __init__(self, *batches: list[ConsumedRecord]) -> None:
        self.batches = list(batches)
        self.calls: list[tuple[Any, ...]] = []
        self.sought: dict[TopicPartition, int] = {}
        self.client = self

    async def topic(self, name: str) -> None:
        self.calls.append(("topic", name))

    async def partitions(self, topic: str) -> list[int]:
        self.calls.append(("partitions", topic))
        return [0, 1, 2]

    async def beginning_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: FIRST[place] for place in places}

    async def end_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: LAST[place] for place in places}

    async def offsets_for_times(self, times: dict[TopicPartition, int]) -> dict[TopicPartition, Any]:
        self.calls.append(("times", times))
        return {
            place: None if place == B else OffsetAndTimestamp(time // 1000, time)
            for place, time in times.items()
        }

    def assign(self, places: list[TopicPartition]) -> None:
        self.calls.append(("assign", places))

    def subscribe(self, *topics: str, pattern: str | None = None) -> None:
        self.calls.append(("subscribe", topics, pattern))

    def seek(self, place: TopicPartition, offset: int) -> None:
        self.sought[place] = offset

    def pause(self, *places: TopicPartition) -> None:
        self.calls.append(("pause", places))

    async def receive_unopened(self, ends: dict[TopicPartition, int], bytes_max: int) -> list[FetchedRecords]:
        self.calls.append(("unopened", ends, bytes_max))
        return [_fetched(entry) for entry in await self._next([])]

    async def receive_batch(self, records_max: int) -> list[ConsumedRecord]:
        self.calls.append(("batch", records_max))
        return await self._next(None)

    async def _next(self, at_the_end: list[ConsumedRecord] | None) -> list[ConsumedRecord]:
        if self.batches:
            return self.batches.pop(0)
        if at_the_end is None:
            await trio.sleep_forever()
        return at_the_end or []

    def asked(self, name: str) -> list[tuple[Any, ...]]:
        return [tuple(arguments) for call, *arguments in self.calls if call == name]


async def print_topics(consumer: StandIn, printer: Printer, **options: Any) -> None:
    arguments: Any = consumer
    await _print_topics(arguments, {**OPTIONS, **options}, printer)


@pytest.mark.parametrize(
    ("options", "sought", "lasts"),
    [
        ({}, {A: 5, B: 0, C: 7}, {A: 10, B: 3}),
        ({"begin": Position("offset", 2)}, {A: 5, B: 2, C: 7}, {A: 10, B: 3, C: 7}),
        ({"begin": Position("offset", 3)}, {A: 5, B: 3, C: 7}, {A: 10, C: 7}),
        ({"begin": Position("offset", 12)}, {A: 12, B: 12, C: 12}, {}),
        ({"end": Position("offset", 6)}, {A: 5, B: 0, C: 7}, {A: 6, B: 3}),
        ({"end": Position("offset", 5)}, {A: 5, B: 0, C: 7}, {B: 3}),
        ({"end": Position("last", 1)}, {A: 5, B: 0, C: 7}, {A: 9, B: 2}),
        ({"begin": Position("end")}, {A: 10, B: 3, C: 7}, {}),
        ({"partitions": (1, 2)}, {B: 0, C: 7}, {B: 3}),
    ],
)
async def test_consume_reads_between_positions_up_to_the_end(
    printed: Callable[[], bytes],
    options: dict[str, Any],
    sought: dict[TopicPartition, int],
    lasts: dict[TopicPartition, int],
) -> None:
    consumer = StandIn([record(5)], [record(6), record(7)])
    await print_topics(consumer, printer(), **options)
    assert consumer.sought == sought
    assert consumer.asked("assign") == [(list(sought),)]
    assert consumer.asked("pause") == [(tuple(place for place in sought if place not in lasts),)]
    assert [ends for ends, _ in consumer.asked("unopened")] == [lasts] * 3
    assert consumer.asked("batch") == []
    assert printed() == b"".join(b"%d," % offset for offset in (5, 6, 7) if offset < lasts.get(A, 8))


@pytest.mark.parametrize(
    ("options", "sought"),
    [
        ({}, LAST),
        ({"begin": Position("beginning")}, FIRST),
        ({"begin": Position("last", 1)}, {A: 9, B: 2, C: 7}),
    ],
)
async def test_whoever_follows_begins_at_the_end(
    printed: Callable[[], bytes], options: dict[str, Any], sought: dict[TopicPartition, int]
) -> None:
    consumer = StandIn([record(5)], [record(6)])
    await print_topics(consumer, printer(count=2), follow=True, **options)
    assert consumer.sought == sought
    assert len(consumer.asked("unopened")) == 2
    assert consumer.asked("pause") == []
    assert printed() == b"5,6,"
