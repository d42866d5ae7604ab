"""A consumer against a broker in the same loop: positions, groups of both protocols, commits, isolation."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from barnabas.client import (
    ClientSettings,
    CommitFailedError,
    Consumer,
    ConsumerSettings,
    NoOffsetError,
    NotAssignedError,
    OffsetAndMetadata,
    OffsetOutOfRangeError,
    ProducerFencedError,
    ProducerSettings,
    TopicPartition,
    TransactionFailedError,
    open_producer,
)
from barnabas.client import open_consumer as open_patient_consumer
from barnabas.testing import open_broker

PLACE = TopicPartition("t", 0)
PROTOCOLS = ("classic", "consumer")
PATIENCE_S = 60
FAST = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "100",
}


@pytest.fixture
async def bootstrap() -> AsyncIterator[str]:
    async with open_broker(FAST, seeds={"topics": {"t": {"partitions": 4}}}) as broker:
        yield broker.bootstrap


@asynccontextmanager
async def open_consumer(*arguments: Any, **options: Any) -> AsyncIterator[Consumer]:
    """A consumer, for as long as a test may take."""
    with trio.fail_after(PATIENCE_S):
        async with open_patient_consumer(*arguments, **options) as consumer:
            yield consumer


def settings_of(**changes: Any) -> ConsumerSettings:
    return ConsumerSettings(**{"offset_reset": "earliest", "heartbeat_interval_ms": 100, **changes})


async def fill(bootstrap: str, count: int, *, partitions: int = 1, first: int = 0) -> None:
    async with open_producer(bootstrap) as producer:
        for number in range(first, first + count):
            await producer.send(
                "t", b"%d" % number, partition=number % partitions, timestamp_ms=1_000 * number
            )


async def numbers(consumer: Consumer, count: int) -> list[int]:
    return [int((await consumer.receive()).value or b"") for _ in range(count)]


async def until_shared(*consumers: Consumer) -> None:
    """Wait until each has an even share, and all partitions have an owner."""
    while True:
        shares = [consumer.assignment for consumer in consumers]
        if len(set().union(*shares)) == 4 and {len(share) for share in shares} == {4 // len(consumers)}:
            return
        await trio.sleep(0.01)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_auto_commit_does_not_undo_a_commit_of_the_program(bootstrap: str, protocol: str) -> None:
    """A record that was handed out last counts as not done, until the program asks for more or commits it."""
    await fill(bootstrap, 3)
    settings = settings_of(group_id="g", group_protocol=protocol, auto_commit_interval_ms=50)

    async def committed() -> int:
        result = (await consumer.committed([PLACE]))[PLACE]
        return -1 if result is None else result.offset

    async with open_consumer(bootstrap, "t", settings=settings) as consumer:
        assert await numbers(consumer, 2) == [0, 1]
        while await committed() < 1:
            await trio.sleep(0.01)
        assert await committed() == 1, "the second is not done"
        await consumer.commit()
        assert await committed() == 2
        await trio.sleep(0.3)
        assert await committed() == 2
        consumer.seek(PLACE, 0)
        while await committed():
            await trio.sleep(0.01)


async def test_positions_move_as_they_are_told(bootstrap: str) -> None:
    await fill(bootstrap, 20)
    async with open_consumer(bootstrap, settings=settings_of()) as consumer:
        consumer.assign([PLACE])
        assert await consumer.position(PLACE) == 0
        assert await numbers(consumer, 3) == [0, 1, 2]
        consumer.seek(PLACE, 15)
        assert await numbers(consumer, 2) == [15, 16]
        assert consumer.lag(PLACE) == 3
        consumer.seek_to_end(PLACE)
        assert await consumer.position(PLACE) == 20
        consumer.seek_to_beginning()
        assert await numbers(consumer, 1) == [0]
        result = await consumer.offsets_for_times({PLACE: 7_500, ("t", 1): 0})
        assert result[PLACE] is not None
        assert result[PLACE][:2] == (8, 8_000)
        assert result[TopicPartition("t", 1)] is None
        ends = await consumer.end_offsets([PLACE])
        assert (ends, await consumer.beginning_offsets([PLACE])) == ({PLACE: 20}, {PLACE: 0})
        assert [record.offset for record in await consumer.receive_until({PLACE: 5})] == [1, 2, 3, 4]
        assert await consumer.receive_until({PLACE: 5}) == []
        with pytest.raises(NotAssignedError):
            consumer.seek(("t", 1), 0)
        consumer.assign([("t", 1)])
        assert consumer.assignment == {("t", 1)}


async def test_seek_during_a_fetch_keeps_its_position(bootstrap: str) -> None:
    await fill(bootstrap, 20)
    async with open_consumer(bootstrap, settings=settings_of(fetch_wait_ms_max=1)) as consumer:
        consumer.assign([PLACE])
        for attempt in range(60):
            consumer.seek(PLACE, 3)
            for _ in range(attempt % 6):
                await trio.lowlevel.checkpoint()
            consumer.seek_to_end(PLACE)
            assert await consumer.position(PLACE) == 20
            await trio.sleep(0.01)  # until a fetch that was begun is answered
            assert await consumer.position(PLACE) == 20


async def test_a_paused_partition_hands_nothing_out_and_loses_nothing(bootstrap: str) -> None:
    await fill(bootstrap, 8, partitions=2)
    async with open_consumer(bootstrap, settings=settings_of()) as consumer:
        consumer.assign([("t", 0), ("t", 1)])
        await numbers(consumer, 1)
        consumer.pause(("t", 0))
        assert consumer.paused == {PLACE}
        consumer.seek_to_beginning()
        assert [number % 2 for number in await numbers(consumer, 4)] == [1] * 4
        with trio.move_on_after(0.05):
            await consumer.receive()
        consumer.resume(("t", 0))
        assert await numbers(consumer, 4) == [0, 2, 4, 6]


async def test_without_an_offset_the_policy_decides(bootstrap: str) -> None:
    await fill(bootstrap, 3)
    async with open_consumer(bootstrap, settings=settings_of(offset_reset="none", group_id="g")) as consumer:
        consumer.assign([PLACE])
        with pytest.raises(NoOffsetError):
            await consumer.receive()
        consumer.seek(PLACE, 99)
        with pytest.raises(OffsetOutOfRangeError):
            await consumer.receive()
        consumer.seek(PLACE, 1)
        assert await numbers(consumer, 2) == [1, 2]
    async with open_consumer(bootstrap, settings=settings_of()) as consumer:
        consumer.assign([PLACE])
        consumer.seek(PLACE, 99)
        assert await numbers(consumer, 1) == [0]


async def test_no_more_is_fetched_ahead_than_allowed(bootstrap: str) -> None:
    async with open_producer(bootstrap, ProducerSettings(batch_bytes=2_000)) as producer:
        for _ in range(100):
            await producer.send("t", bytes(1_000), partition=0)
    limits = settings_of(prefetch_bytes=10_000, partition_bytes_max=4_000)
    async with open_consumer(bootstrap, settings=limits) as consumer:
        consumer.assign([PLACE])
        count = 0
        while count < 100:
            count += len(await consumer.receive_batch(7))
            assert consumer.buffered_bytes <= 10_000
            await trio.sleep(0.001)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_members_share_partitions_and_offsets(bootstrap: str, protocol: str) -> None:
    settings = settings_of(group_id="g", group_protocol=protocol)
    calls: list[tuple[str, int]] = []

    async def revoked(places: set[TopicPartition]) -> None:
        calls.append(("revoked", len(places)))

    async def assigned(places: set[TopicPartition]) -> None:
        calls.append(("assigned", len(places)))

    async with open_consumer(bootstrap, settings=settings) as first:
        first.subscribe("t", on_assigned=assigned, on_revoked=revoked)
        await until_shared(first)
        async with open_consumer(bootstrap, "t", settings=settings) as second:
            await until_shared(first, second)
            await fill(bootstrap, 40, partitions=4)
            theirs = await numbers(second, 20)
            ours = await numbers(first, 20)
            assert sorted(ours + theirs) == list(range(40))
        await fill(bootstrap, 4, partitions=4, first=40)
        assert sorted(await numbers(first, 4)) == [40, 41, 42, 43]  # what the other has read is committed
        result = await first.committed([("t", entry) for entry in range(4)])
        assert sum(entry.offset for entry in result.values() if entry) >= 20
    assert calls[0] == ("assigned", 4)
    assert ("revoked", 2) in calls or ("revoked", 4) in calls


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_partitions_are_revoked_after_the_record_is_processed(bootstrap: str, protocol: str) -> None:
    await fill(bootstrap, 8, partitions=4)
    settings = settings_of(group_id="g", group_protocol=protocol)
    async with open_consumer(bootstrap, "t", settings=settings) as first:
        record = await first.receive()
        async with open_consumer(bootstrap, "t", settings=settings) as second:
            for _ in range(30):
                await trio.sleep(0.02)
                assert second.assignment == set()
            with trio.move_on_after(0.3):
                while True:
                    await first.receive()
            await until_shared(first, second)
            committed = await second.committed([record.topic_partition])
            assert (entry := committed[record.topic_partition]) is None or entry.offset >= 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_block_that_fails_is_handed_the_record_again(bootstrap: str, protocol: str) -> None:
    await fill(bootstrap, 5)
    settings = settings_of(group_id="g", group_protocol=protocol)

    async def fail_at(number: int) -> None:
        async with open_consumer(bootstrap, "t", settings=settings) as consumer:
            async for record in consumer:
                if record.offset == number:
                    raise KeyError(number)

    with pytest.raises(KeyError):
        await fail_at(2)
    async with open_consumer(bootstrap, "t", settings=settings) as consumer:
        assert await numbers(consumer, 1) == [2]
    async with open_consumer(bootstrap, "t", settings=settings) as consumer:
        assert await numbers(consumer, 1) == [3]


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_slow_program_loses_its_partitions_and_rejoins(bootstrap: str, protocol: str) -> None:
    await fill(bootstrap, 4)
    lost = trio.Event()

    async def on_lost(places: set[TopicPartition]) -> None:
        lost.set()

    settings = settings_of(
        group_id="g", group_protocol=protocol, max_poll_interval_ms=400, is_auto_committing=False
    )
    async with open_consumer(bootstrap, settings=settings) as consumer:
        consumer.subscribe("t", on_lost=on_lost)
        record = await consumer.receive()
        await lost.wait()
        assert consumer.assignment == set()
        with pytest.raises(CommitFailedError):
            await consumer.commit({record.topic_partition: record.offset + 1})
        assert await numbers(consumer, 1) == [0]


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_pattern_finds_topics_that_come_later(bootstrap: str, protocol: str) -> None:
    common = ClientSettings(metadata_max_age_ms=200)
    settings = settings_of(group_id="g", group_protocol=protocol)
    async with open_consumer(bootstrap, settings=settings, client_settings=common) as consumer:
        consumer.subscribe(pattern="later-.")
        async with open_producer(bootstrap) as producer:
            for topic in ("later-1", "other", "later-2"):
                await producer.send(topic, topic.encode())
        result = {(await consumer.receive()).topic for _ in range(2)}
        assert result == {"later-1", "later-2"}


async def test_a_text_is_a_pattern_of_re2_a_compiled_one_is_taken(bootstrap: str) -> None:
    async with open_consumer(bootstrap, settings=settings_of(group_id="g")) as consumer:
        with pytest.raises(ValueError, match="it looks ahead or behind"):
            consumer.subscribe(pattern="(?!other)later-.")
        async with open_producer(bootstrap) as producer:
            for topic in ("other-1", "later-1"):
                await producer.send(topic, topic.encode())
        consumer.subscribe(pattern=re.compile("(?!other).*-1"))
        assert (await consumer.receive()).topic == "later-1"


async def test_callback_errors_are_raised_by_receive(bootstrap: str) -> None:
    async def broken(places: set[TopicPartition]) -> None:
        raise KeyError("mine")

    async with open_consumer(bootstrap, settings=settings_of(group_id="g")) as consumer:
        consumer.subscribe("t", on_assigned=broken)
        with pytest.raises(KeyError, match="mine"):
            await consumer.receive()


async def test_commits_have_metadata_and_epochs(bootstrap: str) -> None:
    await fill(bootstrap, 3)
    async with open_consumer(
        bootstrap, settings=settings_of(group_id="g", is_auto_committing=False)
    ) as consumer:
        consumer.assign([PLACE])
        await numbers(consumer, 2)
        await consumer.commit()
        assert await consumer.committed([PLACE, ("t", 3)]) == {
            PLACE: OffsetAndMetadata(2, 0, ""),
            ("t", 3): None,
        }
        await consumer.commit({("t", 3): OffsetAndMetadata(7, -1, "note"), PLACE: 1})
        result = await consumer.committed([("t", 3), PLACE])
        assert [offset.offset for offset in result.values() if offset] == [7, 1]
        assert result[TopicPartition("t", 3)].metadata == "note"  # type: ignore[union-attr]


async def test_aborted_transactions_are_skipped_and_open_ones_awaited(bootstrap: str) -> None:
    chosen = ProducerSettings(transactional_id="x")
    async with open_producer(bootstrap, chosen) as producer:
        async with producer.transaction():
            await producer.send("t", b"1", partition=0)
        with pytest.raises(KeyError):
            await _fail_in_transaction(producer)
        async with (
            open_consumer(bootstrap, settings=settings_of(isolation="read_committed")) as careful,
            open_consumer(bootstrap, settings=settings_of()) as careless,
        ):
            careful.assign([PLACE])
            careless.assign([PLACE])
            async with producer.transaction():
                await (await producer.send("t", b"3", partition=0)).wait()
                assert await numbers(careless, 3) == [1, 2, 3]
                assert await numbers(careful, 1) == [1]
                with trio.move_on_after(0.2) as waited:
                    await careful.receive()
                assert waited.cancelled_caught
            assert await numbers(careful, 1) == [3]


async def _fail_in_transaction(producer: Any) -> None:
    async with producer.transaction():
        await (await producer.send("t", b"2", partition=0)).wait()
        raise KeyError


async def test_offsets_join_transaction_and_newer_producer_fences(bootstrap: str) -> None:
    await fill(bootstrap, 3)
    chosen = ProducerSettings(transactional_id="x")
    reading = settings_of(group_id="g", is_auto_committing=False)
    async with (
        open_consumer(bootstrap, "t", settings=reading) as consumer,
        open_producer(bootstrap, chosen) as producer,
    ):
        record = await consumer.receive()
        async with producer.transaction():
            await producer.send("t", b"out", partition=1)
            await producer.send_offsets(
                {record.topic_partition: record.offset + 1}, consumer.group_metadata()
            )
        assert (await consumer.committed([PLACE]))[PLACE] == (1, -1, "")
        stale = consumer.group_metadata()._replace(generation_id=99)
        with pytest.raises(CommitFailedError):
            async with producer.transaction():
                await producer.send_offsets({PLACE: 2}, stale)
        with pytest.raises(RuntimeError, match="has to be begun"):
            await producer.send("t", b"outside")
        async with open_producer(bootstrap, chosen):
            with pytest.raises(ProducerFencedError):
                await _send_in_transaction(producer)
            with pytest.raises(ProducerFencedError):
                producer.begin_transaction()


async def _send_in_transaction(producer: Any) -> None:
    async with producer.transaction():
        await producer.send("t", b"late", partition=0)


async def test_transaction_with_a_lost_record_cannot_commit(bootstrap: str) -> None:
    async with open_producer(bootstrap, ProducerSettings(transactional_id="x")) as producer:
        producer.begin_transaction()
        await producer.send("t", bytes(100), partition=0, timestamp_ms=2**60)  # too far in the future
        await producer.send("t", b"", partition=1)
        with pytest.raises(TransactionFailedError, match="INVALID_TIMESTAMP"):
            await producer.commit_transaction()
        with pytest.raises(TransactionFailedError):
            await producer.send("t", b"")
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"7", partition=0)
    async with open_consumer(bootstrap, settings=settings_of(isolation="read_committed")) as consumer:
        consumer.assign([("t", 0), ("t", 1)])
        assert await numbers(consumer, 1) == [7]


@pytest.mark.parametrize(
    "wrong",
    [
        {"offset_reset": "soon"}, {"isolation": "none"}, {"group_protocol": "new"}, {"assignors": ("mine",)},
        {"heartbeat_interval_ms": 45_000}, {"instance_id": "i"}, {"group_id": ""}, {"prefetch_bytes": 0},
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        ConsumerSettings(**wrong)


def test_settings_have_names_of_kafka_and_librdkafka() -> None:
    read = ConsumerSettings.of(
        {
            "group.id": "g",
            "auto.offset.reset": "smallest",
            "partition.assignment.strategy": "org.apache.kafka.clients.consumer.StickyAssignor, roundrobin",
            "isolation.level": "read_committed",
            "enable.auto.commit": "false",
            "linger.ms": "5",
        }
    )
    assert (read.group_id, read.offset_reset, read.assignors) == ("g", "earliest", ("sticky", "roundrobin"))
    assert read.is_committed_only
    assert not read.is_auto_committing
    assert not read.is_cooperative
    with pytest.raises(ValueError, match="assignors are"):
        ConsumerSettings.of({"partition.assignment.strategy": "mine"})
