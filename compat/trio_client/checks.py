"""Checks of the producer and the consumer with any broker: each creates its topics and returns a summary.

The rule: a check raises AssertionError, and says in its result what was counted.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import confluent_kafka
import trio

from barnabas.client import (
    ConsumerSettings,
    ProducerFencedError,
    ProducerSettings,
    TopicPartition,
    open_client,
    open_consumer,
    open_producer,
)
from barnabas.client.errors import check
from barnabas.records.compression import CODECS_BY_NAME
from barnabas.wire.generated.create_topics import CreateTopicsRequest

WAIT_S = 90.0
"""A rebalance takes as long as a heartbeat interval of each member; a loaded machine takes its time too."""
RECORDS = 300
SESSION_MS, HEARTBEAT_MS = 10_000, 500
_names = itertools.count(time.time_ns() // 1_000_000)

Check = Callable[[str], Awaitable[str]]


async def new_topic(bootstrap: str, partitions: int) -> str:
    """Make a topic of its own name."""
    topic = f"trio-client-{next(_names)}"
    topic_request = CreateTopicsRequest.CreatableTopic(topic, num_partitions=partitions, replication_factor=1)
    async with open_client(bootstrap) as client:
        response = await client.ask_controller(CreateTopicsRequest([topic_request]))
        check(response.topics[0].error_code, f"creating {topic}", response.topics[0].error_message)
    return topic


async def read_all(bootstrap: str, topic: str, *, isolation: str = "read_committed") -> list[Any]:
    """Return all records of a topic."""
    settings = ConsumerSettings(offset_reset="earliest", isolation=isolation)
    records = []
    async with open_consumer(bootstrap, settings=settings) as consumer:
        places = [TopicPartition(topic, assignor_name) for assignor_name in await consumer.partitions(topic)]
        consumer.assign(places)
        ends = await consumer.end_offsets(places)
        with trio.fail_after(WAIT_S):
            while batch := await consumer.receive_until(ends):
                records += batch
    return records


async def check_all_codecs(bootstrap: str) -> str:
    """Records of each codec come back as they were sent, in the partitions that librdkafka would choose."""
    topic = await new_topic(bootstrap, 3)
    sent: dict[bytes, tuple[bytes, str]] = {}
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        async with open_producer(bootstrap, ProducerSettings(compression=codec)) as producer:
            for number in range(RECORDS):
                key, value = f"{codec}-{number}".encode(), f"{codec} {number} ".encode() * 20
                await producer.send(topic, value, key=key, headers={"codec": codec.encode()})
                sent[key] = value, codec
    theirs = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
    placed: dict[bytes, int] = {}

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        placed[message.key()] = message.partition()

    for key in sent:
        theirs.produce(topic, b"", key=key, on_delivery=delivered)
    await trio.to_thread.run_sync(theirs.flush, WAIT_S)
    ours = [record for record in await read_all(bootstrap, topic) if record.value]
    assert {record.key: record.value for record in ours} == {key: value for key, (value, _) in sent.items()}
    assert len(ours) == len(sent)
    for record in ours:
        assert record.headers == [("codec", sent[record.key][1].encode())]
        assert record.partition == placed[record.key], record.key
    assert set(CODECS_BY_NAME.values()) == set(range(5))
    return f"{len(ours)} records in 5 codecs, all in librdkafka's partitions"


async def check_positions(bootstrap: str) -> str:
    """Offsets by time, seeks, pauses, lag and commits without a group's members."""
    topic = await new_topic(bootstrap, 1)
    place = TopicPartition(topic, 0)
    base = 1_700_000_000_000
    async with open_producer(bootstrap) as producer:
        for number in range(100):
            await producer.send(topic, b"%d" % number, timestamp_ms=base + number * 1000)
    settings = ConsumerSettings(group_id=f"{topic}-g", offset_reset="earliest", is_auto_committing=False)
    async with open_consumer(bootstrap, settings=settings) as consumer:
        consumer.assign([place])
        offsets = await consumer.offsets_for_times({place: base + 41_500})
        assert (offset := offsets[place]) is not None
        assert (offset.offset, offset.timestamp_ms) == (42, base + 42_000)
        assert (await consumer.offsets_for_times({place: base * 2}))[place] is None
        consumer.seek(place, 90)
        with trio.fail_after(WAIT_S):
            assert [(await consumer.receive()).offset for _ in range(3)] == [90, 91, 92]
            assert consumer.lag(place) == 7
            await consumer.commit()
            assert (await consumer.committed([place]))[place].offset == 93  # type: ignore[union-attr]
            consumer.seek_to_beginning()
            assert (await consumer.receive()).offset == 0
            consumer.pause(place)
            with trio.move_on_after(0.3) as paused:
                await consumer.receive()
            assert paused.cancelled_caught
            consumer.resume(place)
            assert (await consumer.receive()).offset == 1
    async with open_consumer(bootstrap, settings=settings) as consumer:
        consumer.assign([place])
        with trio.fail_after(WAIT_S):
            assert (await consumer.receive()).offset == 93
    return "times, seeks, pause, lag, commit"


async def check_transactions(bootstrap: str) -> str:
    """Committed transactions are read, aborted ones not, offsets go with them, and an older producer is fenced."""
    topic = await new_topic(bootstrap, 2)
    group = f"{topic}-g"
    settings = ProducerSettings(transactional_id=f"{topic}-t")
    expected = []
    async with open_producer(bootstrap, settings) as producer:
        is_v2 = producer.has_transactions_v2
        for number in range(20):
            try:
                async with producer.transaction():
                    for partition in (0, 1):
                        await producer.send(topic, b"%d" % number, partition=partition)
                    await producer.send_offsets({(topic, 0): number}, group)
                    if number % 3 == 2:
                        await producer.flush()
                        raise KeyError(number)
            except KeyError:
                continue
            expected += [(number, 0), (number, 1)]
        async with open_consumer(bootstrap, settings=ConsumerSettings(group_id=group)) as consumer:
            committed = (await consumer.committed([(topic, 0)]))[TopicPartition(topic, 0)]
            assert committed is not None
            assert committed.offset == 19
        async with open_producer(bootstrap, settings) as newer:
            try:
                async with producer.transaction():
                    await producer.send(topic, b"late", partition=0)
                raise AssertionError("the older producer was not fenced")
            except ProducerFencedError:
                pass
            async with newer.transaction():
                await newer.send(topic, b"99", partition=0)
    expected.append((99, 0))
    read = [(int(record.value or b""), record.partition) for record in await read_all(bootstrap, topic)]
    assert sorted(read) == sorted(expected)
    dirty = await read_all(bootstrap, topic, isolation="read_uncommitted")
    assert len(dirty) >= len(read) + 12
    return f"{len(read)} records of 15 committed, {len(dirty)} with those of aborted transactions, KIP-890: {is_v2}"


@asynccontextmanager
async def librdkafka_member(
    bootstrap: str, topic: str, settings: dict[str, Any], seen: list[tuple[int, int]]
) -> AsyncIterator[set[int]]:
    """A member of confluent-kafka in the group, which notes partition and offset of what it reads; its partitions."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest", **settings}
    )
    consumer.subscribe([topic])
    stop = False
    assigned: set[int] = set()

    def poll() -> None:
        while not stop:
            message = consumer.poll(0.1)
            now = {
                assignor_name.partition for assignor_name in consumer.assignment()
            }  # from another thread, it blocks for ever
            assigned.intersection_update(now)
            assigned.update(now)
            if message is not None and message.error() is None:
                seen.append((message.partition(), message.offset()))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, poll)
        try:
            yield assigned
        finally:
            stop = True
    await trio.to_thread.run_sync(consumer.close)


async def check_group(bootstrap: str, protocol: str, assignor: str) -> str:
    """Two members of ours and one of librdkafka share a topic; one of ours leaves; everything is read."""
    partitions = 6
    topic = await new_topic(bootstrap, partitions)
    group = f"{topic}-g"
    theirs_settings: dict[str, Any] = {"group.id": group, "group.protocol": protocol}
    if protocol == "classic":
        theirs_settings |= {
            "partition.assignment.strategy": assignor,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
        }
    else:
        theirs_settings["group.remote.assignor"] = assignor
    ours_settings = ConsumerSettings(
        group_id=group, group_protocol=protocol, offset_reset="earliest", auto_commit_interval_ms=500,
        assignors=(assignor,) if protocol == "classic" else ("range",),
        server_assignor=assignor if protocol == "consumer" else None,
        session_timeout_ms=SESSION_MS, heartbeat_interval_ms=HEARTBEAT_MS,
    )  # fmt: skip
    ours: list[tuple[int, int]] = []
    theirs: list[tuple[int, int]] = []
    events = []

    async def assigned(places: set[TopicPartition]) -> None:
        events.append(("assigned", len(places)))

    async def revoked(places: set[TopicPartition]) -> None:
        events.append(("revoked", len(places)))

    async def member(
        leaves: trio.Event, consumers: list[Any], task_status: Any = trio.TASK_STATUS_IGNORED
    ) -> None:
        async with open_consumer(bootstrap, settings=ours_settings) as consumer:
            consumer.subscribe(topic, on_assigned=assigned, on_revoked=revoked)
            consumers.append(consumer)
            task_status.started()

            async def read() -> None:
                while True:
                    ours.extend(
                        (assignor_name.partition, assignor_name.offset)
                        for assignor_name in await consumer.receive_batch()
                    )

            async with trio.open_nursery() as nursery:
                nursery.start_soon(read)
                await leaves.wait()
                nursery.cancel_scope.cancel()

    async def settle(consumers: Iterable[Any], other: set[int], members: int) -> list[int]:
        """Wait until all partitions are assigned evenly; returns their counts."""
        while True:
            shares = [{place.partition for place in assignor_name.assignment} for assignor_name in consumers]
            shares.append(set(other))
            everything = [assignor_name for share in shares for assignor_name in share]
            sizes = sorted(len(share) for share in shares)
            even = sizes == [partitions // members] * members
            if even and sorted(everything) == list(range(partitions)):
                return sizes
            await trio.sleep(0.1)

    async def produce(count: int) -> None:
        async with open_producer(bootstrap) as producer:
            for number in range(count):
                await producer.send(topic, b"%d" % number, partition=number % partitions)

    leaves = [trio.Event(), trio.Event()]
    consumers: list[list[Any]] = [[], []]
    with trio.fail_after(WAIT_S):
        async with trio.open_nursery() as nursery:
            for event, place in zip(leaves, consumers, strict=True):
                await nursery.start(member, event, place)
            async with librdkafka_member(bootstrap, topic, theirs_settings, theirs) as other:
                await settle([assignor_name[0] for assignor_name in consumers], other, 3)
                await produce(RECORDS)
                while len(set(ours) | set(theirs)) < RECORDS:
                    await trio.sleep(0.05)
                leaves[0].set()
                await settle([consumers[1][0]], other, 2)
                await produce(RECORDS)
                while len(set(ours) | set(theirs)) < 2 * RECORDS:
                    await trio.sleep(0.05)
            leaves[1].set()
    twice = len(ours) + len(theirs) - len(set(ours) | set(theirs))
    assert set(ours) & set(theirs) == set() or twice <= RECORDS
    assert theirs
    assert ours
    return f"{len(ours)} + {len(theirs)} of {2 * RECORDS} records, {twice} twice, {len(events)} callbacks"


async def check_static_member(bootstrap: str) -> str:
    """A static member that goes and comes back has its partitions again, without a rebalance."""
    topic = await new_topic(bootstrap, 4)
    generations = []
    for protocol in ("classic", "consumer"):
        settings = ConsumerSettings(
            group_id=f"{topic}-{protocol}", instance_id="one", group_protocol=protocol,
            session_timeout_ms=SESSION_MS, heartbeat_interval_ms=HEARTBEAT_MS,
        )  # fmt: skip
        seen = []
        for _ in range(2):
            async with open_consumer(bootstrap, topic, settings=settings) as consumer:
                with trio.fail_after(WAIT_S):
                    while len(consumer.assignment) < 4:
                        await trio.sleep(0.02)
                seen.append(consumer.group_metadata().generation_id)
        generations.append(tuple(seen))
    assert len(set(generations[0])) == 1, generations
    return f"generations {generations[0]}, epochs {generations[1]}"


GROUPS = [("classic", assignor_name) for assignor_name in ("range", "roundrobin", "cooperative-sticky")] + [
    ("consumer", assignor_name) for assignor_name in ("uniform", "range")
]
CHECKS: dict[str, Check] = {
    "codecs": check_all_codecs,
    "positions": check_positions,
    "transactions": check_transactions,
    "static member": check_static_member,
    **{
        f"group {protocol} {assignor}": lambda bootstrap, protocol=protocol, assignor=assignor: check_group(  # type: ignore[misc]
            bootstrap, protocol, assignor
        )
        for protocol, assignor in GROUPS
    },
}
