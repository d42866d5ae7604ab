"""`barnabas consume`: where it begins and ends, what it prints, with a consumer that says what it was told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import pytest
import trio

from barnabas.client import ConsumedRecord, OffsetAndTimestamp, TopicPartition
from barnabas.commands import consume
from barnabas.commands.consume import (
    Position,
    Printer,
    _print_topics,
    _settings,
    position,
)
from barnabas.commands.errors import CommandError
from barnabas.commands.records_out import formatter

OPTIONS: dict[str, Any] = {
    "topics": ("t",), "partitions": (), "begin": None, "end": None, "follow": False, "group": None, "regex": False,
    "count": None, "idle": None, "keys": (), "values": (), "headers": (), "uncommitted": False, "quiet": False,
}  # fmt: skip


def record(offset: int, partition: int = 0, **more: Any) -> ConsumedRecord:
    return ConsumedRecord("t", partition, offset, 5, **{"key": None, "value": b"%d" % offset, **more})


# --- options -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["soon", "-", "-x", "--1", "+1", "", "1.5", "@", "@noon", "a1"])
def test_what_is_no_position_is_told(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is expected"):
        position(text)


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

    monkeypatch.setattr(consume.os, "write", write)
    return lambda: bytes(data)


def printer(layout: str = "%s,", **options: Any) -> Printer:
    return Printer(formatter(layout, b"-"), {**OPTIONS, **options})


# --- where to begin and to end -------------------------------------------------------------------------------------

A, B, C = (TopicPartition("t", number) for number in range(3))
FIRST, LAST = {A: 5, B: 0, C: 7}, {A: 10, B: 3, C: 7}


class StandIn:
    """A consumer of a topic with three partitions, whose offsets go from FIRST to LAST."""

    def __init__(self, *batches: list[ConsumedRecord]) -> None:
        self.batches = list(batches)
        self.calls: list[tuple[Any, ...]] = []
        self.sought: dict[TopicPartition, int] = {}

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

    async def receive_until(self, ends: dict[TopicPartition, int], records_max: int) -> list[ConsumedRecord]:
        self.calls.append(("until", ends, records_max))
        return await self._next([])

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
        return [tuple(given) for call, *given in self.calls if call == name]


async def print_topics(consumer: StandIn, made: Printer, **options: Any) -> None:
    given: Any = consumer
    await _print_topics(given, {**OPTIONS, **options}, made)


async def test_missing_partitions_of_several_topics_are_named(
    printed: Callable[[], bytes],
) -> None:
    consumer = StandIn()
    with pytest.raises(CommandError, match=r"^topic t has no partition 3, 9$"):
        await print_topics(consumer, printer(), partitions=(9, 1, 3))
    assert consumer.asked("partitions") == [("t",)]
    assert printed() == b""


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
    assert consumer.asked("batch") == [(2,), (1,)]
    assert consumer.asked("pause") == []
    assert printed() == b"5,6,"
