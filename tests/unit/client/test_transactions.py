"""A producer with transactions and a broker in the same process, with both protocols of transactions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from barnabas.client import (
    ClosedError,
    CommitFailedError,
    ConsumerSettings,
    Producer,
    ProducerSettings,
    ResponseError,
    TransactionFailedError,
    open_client,
    open_consumer,
    open_producer,
)
from barnabas.client.admin import Admin
from barnabas.client.values import GroupMetadata, OffsetAndMetadata, TopicPartition
from tests.support.brokers import Client, running

SETTINGS = {
    "transaction_state_log_num_partitions": "2", "transaction_state_log_replication_factor": "1",
    "offsets_topic_num_partitions": "2", "group_initial_rebalance_delay_ms": "0",
}  # fmt: skip
RELEASES = ["3.9", "4.0"]
"""Partitions are added by the client, or by what is sent to them (KIP-890)."""


@asynccontextmanager
async def transacting(directory: Path, release: str) -> AsyncIterator[tuple[Client, str]]:
    """Run a broker like a release of Kafka, with a topic of two partitions."""
    async with running([directory], kafka_version=release, **SETTINGS) as broker:
        host, port = broker.broker.listeners[0].addresses[0]
        address = f"{host}:{port}"
        async with open_client(address) as client:
            levels = {entry.name: entry.finalized_level for entry in await Admin(client).features()}
            assert (levels.get("transaction.version") or 0) == (2 if release == "4.0" else 0)
        await broker.create("t", 2, max_message_bytes="1000")
        yield broker, address


def producer_of(address: str, **more: Any) -> Any:
    return open_producer(address, ProducerSettings(transactional_id="tx", linger_ms=0, **more))


async def committed(address: str, partition: int = 0) -> list[bytes | None]:
    """Return what a consumer sees that reads what is committed."""
    settings = ConsumerSettings(offset_reset="earliest", isolation="read_committed")
    async with open_consumer(address, settings=settings) as consumer:
        place = TopicPartition("t", partition)
        consumer.assign([place])
        ends = await consumer.end_offsets([place])
        result: list[bytes | None] = []
        while records := await consumer.receive_until(ends):
            result += [record.value for record in records]
        return result


async def send(producer: Producer, *values: bytes, partition: int = 0) -> None:
    for value in values:
        await producer.send("t", value, partition=partition)


@pytest.mark.parametrize("release", RELEASES)
async def test_what_is_committed_is_seen_and_what_is_aborted_never(tmp_path: Path, release: str) -> None:
    async with transacting(tmp_path, release) as (_, address), producer_of(address) as producer:
        with pytest.raises(RuntimeError, match="a transaction has to be begun"):
            await send(producer, b"before")
        async with producer.transaction():
            await send(producer, b"1", b"2")
            await send(producer, b"3", partition=1)
            assert await committed(address) == []
            with pytest.raises(RuntimeError, match="the producer is in a transaction"):
                producer.begin_transaction()
        assert (await committed(address), await committed(address, 1)) == ([b"1", b"2"], [b"3"])
        with pytest.raises(KeyError):  # noqa: PT012 - the block is what fails
            async with producer.transaction():
                await send(producer, b"never")
                raise KeyError
        async with producer.transaction():
            pass
        async with producer.transaction():
            await send(producer, b"4")
        assert await committed(address) == [b"1", b"2", b"4"]
        with pytest.raises(RuntimeError, match="the producer is without a transaction"):
            await producer.commit_transaction()
        with pytest.raises(RuntimeError, match="the producer is without a transaction"):
            await producer.abort_transaction()


@pytest.mark.parametrize("release", RELEASES)
async def test_failed_record_fails_its_transaction_but_not_the_next(tmp_path: Path, release: str) -> None:
    async with transacting(tmp_path, release) as (_, address), producer_of(address) as producer:
        producer.begin_transaction()
        await send(producer, b"good")
        large = await producer.send("t", bytes(2000), partition=0)
        with pytest.raises(ResponseError, match="MESSAGE_TOO_LARGE"):
            await large.wait()
        with pytest.raises(TransactionFailedError, match=r"has to be aborted: .*MESSAGE_TOO_LARGE"):
            await send(producer, b"more")
        with pytest.raises(TransactionFailedError) as failed:
            await producer.commit_transaction()
        assert isinstance(failed.value.__cause__, ResponseError)
        await producer.abort_transaction()
        for value in (b"1", b"2"):
            async with producer.transaction():
                await send(producer, value)
        assert await committed(address) == [b"1", b"2"]


@pytest.mark.parametrize("release", RELEASES)
async def test_offsets_are_committed_with_the_records_or_not_at_all(tmp_path: Path, release: str) -> None:
    place = ("t", 1)
    async with (
        transacting(tmp_path, release) as (_, address),
        producer_of(address) as producer,
        open_client(address) as other,
    ):
        admin = Admin(other)

        async def offset() -> Any:
            result: Any = (await admin.committed(["g"]))["g"]
            return result.get(place) and (result[place].offset, result[place].metadata)

        async with producer.transaction():
            await send(producer, b"1")
            await producer.send_offsets({TopicPartition(*place): OffsetAndMetadata(5, 0, "note")}, "g")
        assert await offset() == (5, "note")
        producer.begin_transaction()
        await send(producer, b"2")
        await producer.send_offsets({TopicPartition(*place): 9}, "g")
        await producer.abort_transaction()
        assert await offset() == (5, "note")
        async with producer.transaction():
            await producer.send_offsets({TopicPartition(*place): 7}, "g")
        assert await offset() == (7, "")
        producer.begin_transaction()
        with pytest.raises(CommitFailedError, match="committing offsets of 'g'"):
            await producer.send_offsets({TopicPartition(*place): 8}, GroupMetadata("g", 3, "nobody"))
        with pytest.raises(TransactionFailedError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        assert await offset() == (7, "")
        assert await committed(address) == [b"1"]


@pytest.mark.parametrize("fails", [False, True])
async def test_transaction_open_at_block_end_is_aborted(tmp_path: Path, fails: bool) -> None:
    async with transacting(tmp_path, "4.0") as (_, address), open_client(address) as client:
        with pytest.raises(KeyError) if fails else nullcontext():
            async with producer_of(address) as producer:
                producer.begin_transaction()
                await send(producer, b"never")
                await producer.flush()
                if fails:
                    raise KeyError
        with pytest.raises(ClosedError):
            await send(producer, b"late")
        ends: Any = await Admin(client).offsets({("t", 0): -1}, is_committed=True)
        assert ends["t", 0].offset == 2, "the record, and the mark of its abort"
        assert await committed(address) == []
