"""Dead letters: recognised by their headers, and sent again as the records that they stand for."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from barnabas.client import ProducerSettings, open_producer
from barnabas.console.dead_letters import letter_of
from barnabas.console.redriving import GAP_MAX, REDRIVEN_MAX
from barnabas.coordinators.share.dead_letters import DeadLetters, Origin, headers_of
from tests.support.console import LOGIN, PASSWORD, Console, Visitor, console_beside

QUEUE = "dlq.billing"
PATH = f"/api/topics/{QUEUE}/redrive"
Headers = list[tuple[str, bytes | None]]


def share(offset: int, partition: int = 0, topic: str = "orders") -> Headers:
    """Return the headers that a broker writes."""
    letters = DeadLetters(offset, offset, 2, "Offset rejected by client.")
    return headers_of(Origin(topic, partition, "billing"), letters, offset)


def connect(topic: str, partition: str, offset: str) -> Headers:
    values = {"topic": topic, "partition": partition, "offset": offset, "exception.message": "no schema"}
    values["connector.name"] = "sink"
    return [(f"__connect.errors.{name}", value.encode()) for name, value in values.items()]


SPRING: Headers = [
    ("kafka_dlt-original-topic", b"orders"),
    ("kafka_dlt-original-partition", b"\0\0\0\2"),
    ("kafka_dlt-original-offset", b"\0\0\0\0\0\0\1\0"),
    ("kafka_dlt-exception-message", b"boom"),
    ("kafka_dlt-original-consumer-group", b"billing"),
]
STREAMS: Headers = [
    ("__streams.errors.topic", b"orders"), ("__streams.errors.partition", b"1"), ("__streams.errors.offset", b"9"),
    ("__streams.errors.message", None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("headers", "origin", "reader", "reason"),
    [
        (share(17, 2), ("orders", 2, 17), ("share group", "billing"), "Offset rejected by client."),
        (connect("orders", "2", "17"), ("orders", 2, 17), ("connector", "sink"), "no schema"),
        (STREAMS, ("orders", 1, 9), ("Kafka Streams", ""), ""),
        (SPRING, ("orders", 2, 256), ("group", "billing"), "boom"),
        (connect("orders", "-1", "x"), ("orders", None, None), ("connector", "sink"), "no schema"),
        (connect("orders", "9" * 5_000, "0"), ("orders", None, 0), ("connector", "sink"), "no schema"),
        ([*SPRING, ("kafka_dlt-original-offset", b"7")], ("orders", 2, None), ("group", "billing"), "boom"),
    ],
)
def test_origin_is_read_from_headers_of_each_writer(
    headers: Headers, origin: tuple[str, int | None, int | None], reader: tuple[str, str], reason: str
) -> None:
    trace = ("trace", b"7")
    letter = letter_of([trace, *headers])
    assert letter is not None
    names = ("topic", "partition", "offset", "kind", "reader", "reason")
    assert letter.as_json() == dict(zip(names, (*origin, *reader, reason), strict=True))
    assert letter.headers == [trace]


@pytest.mark.parametrize(
    "headers", [[], [("topic", b"orders")], connect("", "0", "0"), [("__dlq.errors.topic", None)]]
)
def test_record_without_a_topic_of_origin_is_no_letter(headers: Headers) -> None:
    assert letter_of(headers) is None


Record = tuple[bytes | None, bytes | None, Headers]


async def produce(console: Console, topic: str, *records: Record, partition: int = 0) -> None:
    async with open_producer(console.bootstrap, ProducerSettings(creates_topics=False)) as producer:
        for key, value, headers in records:
            await producer.send_and_wait(topic, value, key=key, headers=headers, partition=partition)


@asynccontextmanager
async def queue_beside(
    tmp_path: Path, *letters: Record, orders: tuple[Record, ...] = ()
) -> AsyncIterator[tuple[Console, Visitor]]:
    """A console with a visitor, records in partition 1 of orders, and letters in a queue."""
    async with console_beside(tmp_path) as console:
        await console.make_topic("orders", 2)
        await console.make_topic(QUEUE)
        await produce(console, "orders", *orders, partition=1)
        await produce(console, QUEUE, *letters)
        yield console, await console.visitor()


async def redrive(visitor: Visitor, *offsets: int, execute: bool = True, **more: Any) -> list[dict[str, Any]]:
    """Redrive letters of partition 0, and return the outcome of each."""
    answer = await visitor.do("POST", PATH, {"offsets": {"0": offsets}, "execute": execute, **more})
    rows: list[dict[str, Any]] = answer["rows"]
    assert answer["executed"] is execute
    assert answer["failed"] == sum(1 for row in rows if row["error"])
    return rows


async def records_of(visitor: Visitor, topic: str, **query: Any) -> list[Any]:
    """Return key, value and headers of a topic's records, the oldest first."""
    page = await visitor.get(f"/api/topics/{topic}/records", **{"from": "oldest", **query})
    return [
        (row["key"]["text"], row["value"]["text"], [(header["name"], header["value"]["text"]) for header in row["headers"]])
        for row in page["records"]
    ]  # fmt: skip


async def test_letter_of_a_share_group_is_sent_as_its_record(tmp_path: Path) -> None:
    order: Record = (b"ann", b'{"total": 60}', [("trace", b"7"), ("trace", b"8")])
    letters: list[Record] = [
        (b"ann", b'{"total": 60}', share(0, 1)),  # with a copy
        (None, None, share(0, 1)),  # headers alone
    ]
    async with queue_beside(tmp_path, *letters, orders=(order,)) as (_, visitor):
        planned = await redrive(visitor, 0, 1, execute=False)
        assert [(row["topic"], row["to_partition"], row["headers"], row["sent"]) for row in planned] == [
            ("orders", 1, 2, None)
        ] * 2
        assert len(await records_of(visitor, "orders")) == 1
        rows = await redrive(visitor, 0, 1)
        assert [(row["sent"], row["note"], row["error"]) for row in rows] == [
            ({"partition": 1, "offset": offset}, "", "") for offset in (1, 2)
        ]
        record = ("ann", '{"total": 60}', [("trace", "7"), ("trace", "8")])
        assert await records_of(visitor, "orders") == [record] * 3
        assert len(await records_of(visitor, QUEUE)) == 2, "a queue is a log: letters stay"


async def test_letter_with_its_headers_is_sent_without_those_of_death(tmp_path: Path) -> None:
    letters: list[Record] = [
        (None, b"\xff\0", [("trace", b"7"), *connect("orders", "1", "40")]),
        (b"k", None, [*share(3, topic="dlq.sink"), *SPRING[:1]]),
    ]
    async with queue_beside(tmp_path, *letters) as (console, visitor):
        await console.make_topic("dlq.sink")
        first, second = await redrive(visitor, 0, 1)
        assert first["sent"] == {"partition": 1, "offset": 0}
        assert await records_of(visitor, "orders") == [("", "ff 00", [("trace", "7")])]
        assert second["sent"] == {"partition": 0, "offset": 0}
        assert "partition holds offsets 0 to -1" in second["note"]
        assert await records_of(visitor, "dlq.sink") == [("k", "", [("kafka_dlt-original-topic", "orders")])]


async def test_letters_go_to_another_topic_by_their_keys(tmp_path: Path) -> None:
    letters: list[Record] = [
        (b"%d" % number, b"v", connect("gone", str(number), "0")) for number in range(20)
    ]
    async with queue_beside(tmp_path, *letters) as (_, visitor):
        (row,) = await redrive(visitor, 0)
        assert (row["error"], row["sent"]) == ("There is no topic 'gone'", None)
        rows = await redrive(visitor, *range(20), target="orders")
        assert {row["sent"]["partition"] for row in rows} == {0, 1}
        assert all(row["to_partition"] is None for row in rows)


async def test_record_that_is_another_one_now_is_not_sent(tmp_path: Path) -> None:
    letters: list[Record] = [
        (b"ann", b"old", share(0, 1)),
        (None, None, share(0, 1)),
        (None, None, share(9, 1)),
        (None, None, share(0, 7)),
        (None, None, share(0, 0, topic="gone")),
    ]
    async with queue_beside(tmp_path, *letters) as (console, visitor):
        later = time.time_ns() // 1_000_000 + 60_000
        async with open_producer(console.bootstrap) as producer:
            await producer.send_and_wait("orders", b"new", partition=1, timestamp_ms=later)
        rows = await redrive(visitor, 0, 1, 2, 3, 4)
        assert rows[0]["note"].endswith("(orders-1 offset 0 is another record now)")
        assert rows[0]["sent"] == {"partition": 1, "offset": 1}
        assert [row["error"] for row in rows[1:]] == [
            "the queue has no copy, and orders-1 offset 0 is younger than its dead letter: another record",
            "the queue has no copy, and orders-1 offset 9: the partition holds offsets 0 to 0",
            "the queue has no copy, and orders-7 offset 0: there is no partition 7",
            "the queue has no copy, and gone-0 offset 0: There is no topic 'gone'",
        ]
        assert len(await records_of(visitor, "orders")) == 2


async def test_what_is_no_letter_fails_by_itself(tmp_path: Path) -> None:
    letters: list[Record] = [
        (None, b"plain", []),
        (None, b"x" * 1_200_000, connect("orders", "0", "0")),
        (None, b"good", connect("orders", "0", "1")),
    ]
    async with queue_beside(tmp_path) as (console, visitor):
        await visitor.do("PATCH", f"/api/topics/{QUEUE}/settings", {"set": {"max.message.bytes": "9000000"}})
        async with open_producer(
            console.bootstrap, ProducerSettings(request_bytes_max=9_000_000)
        ) as producer:
            for _, value, headers in letters:
                await producer.send_and_wait(QUEUE, value, headers=headers)
        rows = await redrive(visitor, 0, 1, 2, 3)
        assert "no dead letter" in rows[0]["error"]
        assert "MESSAGE_TOO_LARGE" in rows[1]["error"]
        assert rows[2]["sent"] == {"partition": 0, "offset": 0}
        assert rows[3]["error"] == "the partition holds offsets 0 to 2"
        await visitor.do("POST", f"/api/topics/{QUEUE}/trim", {"before": {"0": 1}, "confirm": QUEUE})
        assert (await redrive(visitor, 0))[0]["error"] == "the partition holds offsets 1 to 2"


async def test_letters_far_from_each_other_are_read_together(tmp_path: Path) -> None:
    chosen = [0, 1, 4, 2 * GAP_MAX, 2 * GAP_MAX + 1]
    async with queue_beside(tmp_path) as (console, visitor):
        async with open_producer(console.bootstrap) as producer:
            for number in range(chosen[-1] + 1):
                await producer.send(QUEUE, b"%d" % number, headers=connect("orders", "0", "0"))
        rows = await redrive(visitor, *chosen)
        assert [row["offset"] for row in rows] == chosen
        values = [value for _, value, _ in await records_of(visitor, "orders")]
        assert values == [str(number) for number in chosen]


async def test_offsets_are_numbers_by_partition(tmp_path: Path) -> None:
    bodies: list[object] = [{}, {"0": []}, {"x": [1]}, {"0": 1}, {"0": [-1]}, {"0": [True]}, {"²": [1]}, [0]]
    async with console_beside(tmp_path) as console:
        visitor = await console.visitor()
        for offsets in (*bodies, {"0": [*range(REDRIVEN_MAX + 1)]}):
            answer = await visitor.ask("POST", PATH, {"offsets": offsets})
            assert answer.status == 400
            assert answer.json["error"].startswith("offsets: ")


async def test_rights_are_those_of_the_visitor(tmp_path: Path) -> None:
    async with console_beside(tmp_path, LOGIN) as console:
        operator = await console.visitor(user="operator", password=PASSWORD)
        for topic in ("orders", "private", QUEUE):
            await operator.do("POST", "/api/topics", {"name": topic, "partitions": 1})
        await produce(console, "private", (b"k", b"v", [("trace", b"7")]))
        letters: list[Record] = [
            (None, b"v", connect("private", "0", "0")),
            (None, b"v", connect("orders", "0", "0")),
            (b"k", b"v", share(0, topic="private")),
        ]
        await produce(console, QUEUE, *letters)
        for topic, operation in ((QUEUE, "read"), ("orders", "write")):
            await operator.do("POST", "/api/acls", allowed(topic, operation))
        ann = await console.visitor(user="ann", password=PASSWORD)
        private, orders, unread = await redrive(ann, 0, 1, 2)
        assert (private["error"], private["sent"]) == ("You may not do this with topic 'private'", None)
        assert orders["sent"] == {"partition": 0, "offset": 0}
        assert unread["error"] == private["error"]
        (copied,) = await redrive(ann, 2, target="orders")
        assert "You may not do this with topic 'private'" in copied["note"]
        assert copied["sent"] == {"partition": 0, "offset": 1}
        await operator.do("POST", "/api/acls", allowed("private", "describe"))
        assert (await redrive(ann, 0))[0]["error"] == "You may not do this with topic 'private'"
        refused = await ann.ask("POST", "/api/topics/private/redrive", {"offsets": {"0": [0]}})
        assert refused.status == 403


def allowed(topic: str, operation: str) -> Mapping[str, str]:
    """Return the body that lets ann do something with a topic."""
    return {
        "resource_type": "topic", "resource_name": topic, "pattern_type": "literal", "principal": "User:ann",
        "host": "*", "operation": operation, "permission": "allow",
    }  # fmt: skip
