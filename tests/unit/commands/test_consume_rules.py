"""`barnabas consume`: where it begins and ends, what it prints, with a consumer that says what it was told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import pytest
import trio

from barnabas.cli import main
from barnabas.client import ConsumedRecord, ConsumerSettings, OffsetAndTimestamp, TopicPartition
from barnabas.commands import consume
from barnabas.commands.consume import (
    RECORDS_PER_WRITE,
    Position,
    Printer,
    _header,
    _offsets,
    _print_group,
    _print_topics,
    _settings,
    position,
)
from barnabas.commands.errors import CommandError
from barnabas.commands.records_out import formatter
from barnabas.patterns import compile_bytes

OPTIONS: dict[str, Any] = {
    "topics": ("t",), "partitions": (), "begin": None, "end": None, "follow": False, "group": None, "regex": False,
    "count": None, "idle": None, "keys": (), "values": (), "headers": (), "uncommitted": False, "quiet": False,
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


@pytest.mark.parametrize("text", ["soon", "-", "-x", "--1", "+1", "", "1.5", "@", "@noon", "a1"])
def test_what_is_no_position_is_told(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is expected"):
        position(text)


def test_a_header_is_looked_for_by_name_or_by_value_too() -> None:
    assert _header("a") == ("a", None)
    name, pattern = _header("a=b=.")
    assert name == "a"
    assert pattern.search(b" b=\xff"), "any byte is a character"
    assert not pattern.search(b"b=")
    assert _header("a=\udcff")[1].search(b"a\xff"), "bytes that are no text are looked for too"
    with pytest.raises(click.BadParameter, match=r"'\(' is no regular expression"):
        _header("a=(")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["t", "--regex"], "--regex needs --group"),
        (["(", "-g", "g", "--regex"], "'(' is no regular expression"),
        (["t", "-g", "g", "--to", "5"], "--to and --partition do not go with --group"),
        (["t", "-g", "g", "-p", "0"], "--to and --partition do not go with --group"),
        (["t", "-F", "--to", "5"], "--follow never ends, --to says where"),
        (["t", "-f", "%x"], "--format: there is no %x"),
        (["t", "-n", "0"], "0 is not in the range"),
        (["t", "--idle", "0"], "0.0 is not in the range"),
        (["t", "-p", "-1"], "-1 is not in the range"),
        ([], "Missing argument 'TOPIC...'"),
        (["t", "--key", "("], "'(' is no regular expression"),
    ],
)
def test_options_that_do_not_go_together_are_told(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["consume", *arguments, "-b", "127.0.0.1:1"]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["-g", "g", "-F"], ["-F", "-p", "0"], ["--to", "5", "-p", "0"], ["-g", "g", "--regex"]]
)
def test_others_do_and_the_first_connection_is_tried_once(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["consume", "t", *arguments, "-b", "127.0.0.1:1"]) == 1
    assert "nothing listens on 127.0.0.1:1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("properties", "options", "settings"),
    [
        ({}, {}, ConsumerSettings(isolation="read_committed")),
        ({}, {"uncommitted": True}, ConsumerSettings(isolation="read_uncommitted")),
        ({"isolation.level": "read_uncommitted"}, {}, ConsumerSettings(isolation="read_uncommitted")),
        (
            {"isolation.level": "read_committed"},
            {"uncommitted": True},
            ConsumerSettings(isolation="read_uncommitted"),
        ),
        ({"group.id": "x", "group.instance.id": "y"}, {}, ConsumerSettings(isolation="read_committed")),
        (
            {"group.id": "x", "group.instance.id": "y"},
            {"group": "g"},
            ConsumerSettings(
                isolation="read_committed", group_id="g", instance_id="y", offset_reset="latest"
            ),
        ),
        (
            {"auto.offset.reset": "earliest"},
            {"group": "g"},
            ConsumerSettings(isolation="read_committed", group_id="g", offset_reset="earliest"),
        ),
        (
            {"auto.offset.reset": "earliest"},
            {"group": "g", "begin": Position("end")},
            ConsumerSettings(isolation="read_committed", group_id="g", offset_reset="latest"),
        ),
        (
            {"auto.offset.reset": "latest"},
            {"group": "g", "begin": Position("beginning")},
            ConsumerSettings(isolation="read_committed", group_id="g", offset_reset="earliest"),
        ),
        (
            {},
            {"begin": Position("offset", 5), "end": Position("last", 1)},
            ConsumerSettings(isolation="read_committed"),
        ),
    ],
)
def test_an_option_goes_before_a_setting_and_only_a_member_has_a_group(
    properties: dict[str, str], options: dict[str, Any], settings: ConsumerSettings
) -> None:
    assert _settings(properties, {**OPTIONS, **options}) == settings


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


async def test_all_of_a_batch_is_printed_and_counted(printed: Callable[[], bytes]) -> None:
    made = printer()
    assert (made.printed, made.is_full, made.records_max, made.is_writing) == (
        0,
        False,
        RECORDS_PER_WRITE,
        False,
    )
    await made.write([record(10), record(11), record(12)])
    await made.write([])
    assert printed() == b"10,11,12,"
    assert (made.printed, made.is_full, made.records_max, made.is_writing) == (
        3,
        False,
        RECORDS_PER_WRITE,
        False,
    )


async def test_no_more_records_are_asked_for_than_will_be_printed(printed: Callable[[], bytes]) -> None:
    made = printer(count=3)
    assert (made.records_max, made.is_full) == (3, False)
    await made.write([record(1), record(2)])
    assert (made.records_max, made.is_full) == (1, False)
    await made.write([record(3)])
    assert (made.records_max, made.is_full) == (0, True)
    assert printer(count=RECORDS_PER_WRITE + 5).records_max == RECORDS_PER_WRITE
    assert printed() == b"1,2,3,"


async def test_it_is_known_while_something_is_being_written(monkeypatch: pytest.MonkeyPatch) -> None:
    made = printer()
    seen: list[tuple[bool, int]] = []

    def write(_: int, part: memoryview) -> int:
        seen.append((made.is_writing, made.printed))
        return len(part)

    monkeypatch.setattr(consume.os, "write", write)
    await made.write([record(1)])
    assert seen == [(True, 0)]
    assert (made.is_writing, made.printed) == (False, 1)


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        ({}, "1,2,3,4,"),
        ({"keys": (compile_bytes(b"a"),)}, "1,2,"),
        ({"keys": (compile_bytes(b"a"), compile_bytes(b"b"))}, "2,"),
        ({"values": (compile_bytes(b"x"),)}, "1,3,"),
        ({"values": (compile_bytes(b"x"), compile_bytes(b"y"))}, "3,"),
        ({"values": (compile_bytes(b""),)}, "1,2,3,"),
        ({"keys": (compile_bytes(b""),)}, "1,2,4,"),
        ({"keys": (compile_bytes(b"a"),), "values": (compile_bytes(b"x"),)}, "1,"),
        ({"headers": (("h", None),)}, "1,3,4,"),
        ({"headers": (("h", None), ("i", None))}, "3,"),
        ({"headers": (("h", compile_bytes(b"2")),)}, "4,"),
        ({"headers": (("h", compile_bytes(b"^$")),)}, "3,"),
        ({"headers": (("h", None),), "keys": (compile_bytes(b"c"),)}, "4,"),
    ],
)
async def test_a_record_is_printed_that_all_filters_let_through(
    printed: Callable[[], bytes], options: dict[str, Any], offsets: str
) -> None:
    made = printer("%o,", **options)
    await made.write(
        [
            record(1, key=b"xax", value=b"x", headers=[("h", b"1")]),
            record(2, key=b"ab", value=b"y"),
            record(3, key=None, value=b"xy", headers=[("i", b"2"), ("h", None)]),
            record(4, key=b"c", value=None, headers=[("h", b"0"), ("h", b"12")]),
        ]
    )
    assert printed() == offsets.encode()
    assert made.printed == len(offsets) // 2


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


@pytest.mark.parametrize(
    ("where", "offsets"),
    [
        (Position("beginning"), {A: 5, B: 0, C: 7}),
        (Position("end"), {A: 10, B: 3, C: 7}),
        (Position("offset", 0), {A: 0, B: 0, C: 0}),
        (Position("offset", 6), {A: 6, B: 6, C: 6}),
        (Position("last", 0), {A: 10, B: 3, C: 7}),
        (Position("last", 2), {A: 8, B: 1, C: 7}),
        (Position("last", 9), {A: 5, B: 0, C: 7}),
        (Position("time", 6500), {A: 6, B: 3, C: 6}),
    ],
)
async def test_a_position_is_an_offset_in_each_partition(
    where: Position, offsets: dict[TopicPartition, int]
) -> None:
    consumer: Any = StandIn()
    assert await _offsets(consumer, where, (FIRST, LAST)) == offsets


async def print_topics(consumer: StandIn, made: Printer, **options: Any) -> None:
    given: Any = consumer
    await _print_topics(given, {**OPTIONS, **options}, made)


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
async def test_it_reads_from_one_position_to_the_other_and_no_further_than_the_end(
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
    assert [one[0] for one in consumer.asked("until")] == [lasts] * 3
    assert consumer.asked("batch") == []
    assert printed() == b"5,6,7,"


async def test_partitions_of_several_topics_are_looked_up_and_missing_ones_named(
    printed: Callable[[], bytes],
) -> None:
    consumer = StandIn()
    with pytest.raises(CommandError, match=r"^topic t has no partition 3, 9$"):
        await print_topics(consumer, printer(), partitions=(9, 1, 3))
    assert consumer.asked("partitions") == [("t",)]
    assert printed() == b""


async def test_it_ends_once_as_much_is_printed_as_was_asked_for(printed: Callable[[], bytes]) -> None:
    consumer = StandIn([record(5)], [record(6), record(7)], [record(8)])
    await print_topics(consumer, printer(count=3))
    assert [one[1] for one in consumer.asked("until")] == [3, 2]
    assert printed() == b"5,6,7,"


@pytest.mark.parametrize("follow", [False, True])
async def test_it_ends_when_nothing_has_come_for_so_long(
    printed: Callable[[], bytes], autojump_clock: object, follow: bool
) -> None:
    class Slow(StandIn):
        async def _next(self, at_the_end: Any) -> list[ConsumedRecord]:
            await trio.sleep(4 if self.batches else 6)
            return await super()._next(at_the_end)

    consumer = Slow([record(5)], [record(6)])
    began = trio.current_time()
    await print_topics(consumer, printer(), follow=follow, idle=5.0)
    assert trio.current_time() - began == pytest.approx(13)
    assert printed() == b"5,6,"
    assert len(consumer.asked("batch" if follow else "until")) == 3
    assert consumer.asked("until" if follow else "batch") == []


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


@pytest.mark.parametrize(
    ("topics", "regex", "subscribed"),
    [
        (("a", "b.*"), False, (("a", "b.*"), None)),
        (("a", "b.*"), True, ((), "(?:a)$|(?:b.*)$")),
        (("a|b",), True, ((), "(?:a|b)$")),
    ],
)
async def test_a_member_subscribes_to_names_or_to_patterns_of_whole_names(
    printed: Callable[[], bytes], topics: tuple[str, ...], regex: bool, subscribed: tuple[Any, ...]
) -> None:
    consumer: Any = StandIn([record(5)])
    await _print_group(consumer, {**OPTIONS, "topics": topics, "regex": regex}, printer(count=1))
    assert consumer.calls == [("subscribe", *subscribed), ("batch", 1)]
    assert printed() == b"5,"


async def test_a_member_ends_when_nothing_has_come_for_so_long(
    printed: Callable[[], bytes], autojump_clock: object
) -> None:
    consumer: Any = StandIn([record(5)])
    await _print_group(consumer, {**OPTIONS, "idle": 5.0}, printer())
    assert printed() == b"5,"
