"""A producer: batches, back-pressure, sequences, failures of records and of the whole producer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.client import (
    BufferFullError,
    ClientSettings,
    ClosedError,
    DeliveryTimeoutError,
    Producer,
    ProducerSettings,
    RecordTooLargeError,
    ResponseError,
    TimedOutError,
    open_producer,
)
from barnabas.records.batch import read_header, read_records
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.produce import ProduceRequest
from tests.support.appending_broker import CLOSES, SILENT, AppendingCluster
from tests.support.scripted_broker import BOOTSTRAP

Clock = trio.testing.MockClock
"""Of the fixture `autojump_clock`, which counts only as an argument of a test."""


@asynccontextmanager
async def producing(
    cluster: AppendingCluster, common: ClientSettings | None = None, **settings: Any
) -> AsyncIterator[Producer]:
    chosen = ProducerSettings(**settings)
    async with (
        cluster.serving(),
        open_producer([BOOTSTRAP], chosen, client_settings=common, dial=cluster.dial) as producer,
    ):
        yield producer


def batches(cluster: AppendingCluster) -> list[tuple[int, int, int]]:
    """Partition, sequence and number of records of each batch, in the order of the requests."""
    result = []
    for request in cluster.produced:
        for topic in request.topic_data:
            for part in topic.partition_data:
                header = read_header(bytes(part.records))  # type: ignore[arg-type]
                result.append((part.index, header.base_sequence, header.records_count))
    return result


def values(cluster: AppendingCluster, partition: int = 0) -> list[bytes | None]:
    return [value for value, _ in cluster.logs[partition].records]


async def test_records_that_come_in_time_share_a_batch(autojump_clock: Clock) -> None:
    cluster = AppendingCluster()
    async with producing(cluster, linger_ms=100) as producer:
        first = await producer.send("t", b"a", partition=0, key=b"k", headers={"h": None}, timestamp_ms=5)
        await trio.sleep(0.05)
        second = await producer.send("t", b"b", partition=0)
        assert not first.is_done
        assert (await second.wait()).offset == 1
        assert first.result() == ("t", 0, 0, 5)
        await producer.send_and_wait("t", b"c", partition=0)
    assert batches(cluster) == [(0, 0, 2), (0, 2, 1)]
    record = read_records(bytes(cluster.produced[0].topic_data[0].partition_data[0].records))[0]  # type: ignore[arg-type]
    assert (record.key, record.value, record.headers, record.timestamp) == (b"k", b"a", [("h", None)], 5)


async def test_send_waits_while_the_buffer_is_full_and_no_longer(autojump_clock: Clock) -> None:
    cluster = AppendingCluster()
    cluster.fault = lambda partition: SILENT if not cluster.logs[0].records else 0
    common = ClientSettings(request_timeout_ms=1_500)
    async with producing(cluster, common, buffer_bytes=3_000, max_block_ms=1_000) as producer:
        for _ in range(2):
            await producer.send("t", bytes(1_000), partition=0)
        assert producer.buffered_bytes <= 3_000
        with pytest.raises(trio.WouldBlock):
            producer.send_nowait("t", bytes(1_000), partition=0)
        began = trio.current_time()
        with pytest.raises(BufferFullError):
            await producer.send("t", bytes(1_000), partition=0)
        assert trio.current_time() == pytest.approx(began + 1)
        cluster.fault = lambda partition: 0
        waited = await producer.send(
            "t", bytes(900), partition=0
        )  # room comes when the first are acknowledged
        await waited.wait()
        with trio.move_on_after(0):
            await producer.send("t", b"", partition=0)
        await producer.flush()
        assert producer.buffered_bytes == 0
    assert [len(value or b"") for value in values(cluster)] == [1_000, 1_000, 900]


async def test_one_who_gives_up_waiting_for_room_takes_none(autojump_clock: Clock) -> None:
    cluster = AppendingCluster()
    cluster.fault = lambda partition: SILENT
    async with producing(cluster, buffer_bytes=2_000) as producer:
        await producer.send("t", bytes(1_500), partition=0)
        with trio.move_on_after(0.5) as impatient:
            await producer.send("t", bytes(1_500), partition=0)
        assert impatient.cancelled_caught
        cluster.fault = lambda partition: 0
        await producer.flush()
        assert producer.buffered_bytes == 0
    assert len(values(cluster)) == 1


async def test_a_record_that_is_too_large_is_refused_at_once(autojump_clock: Clock) -> None:
    async with producing(AppendingCluster(), request_bytes_max=2_000) as producer:
        with pytest.raises(RecordTooLargeError):
            await producer.send("t", bytes(2_000))
        with pytest.raises(ValueError, match="no partition 9"):
            await producer.send("t", b"", partition=9)
        with pytest.raises(TypeError):
            await producer.send("t", "text")  # type: ignore[arg-type]
        assert producer.buffered_bytes == 0


async def test_batches_behind_a_retried_one_are_resent_after_it(autojump_clock: Clock) -> None:
    cluster = AppendingCluster()
    faults = [ErrorCode.NOT_ENOUGH_REPLICAS]
    cluster.fault = lambda partition: faults.pop() if faults and not partition else 0
    async with producing(cluster, linger_ms=0, batch_bytes=1) as producer:
        await producer.send_and_wait("t", b"first", partition=1)
        cluster.latency_s = 0.1
        deliveries = [await producer.send("t", b"%d" % n, partition=0) for n in range(5)]
        await producer.flush()
        assert [delivery.result().offset for delivery in deliveries] == list(range(5))
    assert values(cluster) == [b"%d" % n for n in range(5)]
    sequences = [sequence for partition, sequence, _ in batches(cluster) if partition == 0]
    assert sequences[:5] == [0, 1, 2, 3, 4], "all were on their way when the first failed"
    assert sequences[5:] == [0, 1, 2, 3, 4]
    assert cluster.producer_ids == 1
    epochs = {
        read_header(bytes(part.records)).producer_epoch  # type: ignore[arg-type]
        for request in cluster.produced for topic in request.topic_data for part in topic.partition_data
    }  # fmt: skip
    assert epochs == {0}, "no new epoch is needed"


async def test_records_that_fail_for_good_leave_no_gap(autojump_clock: Clock) -> None:
    cluster = AppendingCluster()
    faults = [ErrorCode.INVALID_RECORD]
    cluster.fault = lambda partition: faults.pop() if faults else 0
    async with producing(cluster, linger_ms=0, batch_bytes=1) as producer:
        deliveries = [await producer.send("t", b"%d" % n, partition=0) for n in range(6)]
        for delivery in deliveries[1:]:
            await delivery.wait()
        with pytest.raises(ResponseError, match="appending to t-0: INVALID_RECORD"):
            await deliveries[0].wait()
    assert values(cluster) == [b"%d" % n for n in range(1, 6)]
    assert cluster.producer_ids == 1  # a new epoch begins, with the same id


async def test_unawaited_failure_is_raised_by_flush_and_at_the_end(autojump_clock: Clock) -> None:
    cluster = AppendingCluster()
    cluster.fault = lambda partition: ErrorCode.TOPIC_AUTHORIZATION_FAILED

    async def produce() -> None:
        async with producing(cluster) as producer:
            seen = await producer.send("t", b"", partition=0)
            with pytest.raises(ResponseError):
                await seen.wait()
            await producer.flush()
            await producer.send("t", b"", partition=0)
            with pytest.raises(ResponseError):
                await producer.flush()
            await producer.flush()
            await producer.send("t", b"", partition=0)

    with pytest.raises(ResponseError, match="TOPIC_AUTHORIZATION_FAILED"):
        await produce()


async def test_a_batch_that_is_too_large_is_sent_in_halves(autojump_clock: Clock) -> None:
    cluster = AppendingCluster()

    def answer(host: str, request: Any) -> Any:
        if isinstance(request, ProduceRequest):
            part = request.topic_data[0].partition_data[0]
            is_large = read_header(bytes(part.records)).records_count > 2  # type: ignore[arg-type]
            cluster.fault = lambda partition: ErrorCode.MESSAGE_TOO_LARGE if is_large else 0
        return cluster._answer(host, request)

    cluster.answer = answer
    async with producing(cluster, linger_ms=50, compression="lz4") as producer:
        deliveries = [await producer.send("t", b"%d" % n, partition=0) for n in range(9)]
        await producer.flush()
        assert [delivery.result().offset for delivery in deliveries] == list(range(9))
    assert values(cluster) == [b"%d" % n for n in range(9)]


async def test_records_expire_and_later_ones_go_on(autojump_clock: Clock) -> None:
    cluster = AppendingCluster()
    cluster.fault = lambda partition: CLOSES
    async with producing(cluster, delivery_timeout_ms=3_000) as producer:
        late = [await producer.send("t", b"%d" % n, partition=0) for n in range(3)]
        began = trio.current_time()
        for delivery in late:
            with pytest.raises(DeliveryTimeoutError):
                await delivery.wait()
        assert trio.current_time() == pytest.approx(began + 3, abs=0.1)
        cluster.fault = lambda partition: 0
        await producer.send_and_wait("t", b"later", partition=0)
    assert values(cluster) == [b"later"]


async def test_one_request_in_flight_keeps_order_without_idempotence(autojump_clock: Clock) -> None:
    cluster = AppendingCluster()
    faults = [CLOSES, ErrorCode.NOT_LEADER_OR_FOLLOWER, CLOSES]
    cluster.fault = lambda partition: faults.pop() if faults else 0
    settings = {"is_idempotent": False, "acks": 1, "in_flight_max": 1}
    async with producing(cluster, linger_ms=0, batch_bytes=1, **settings) as producer:
        for number in range(10):
            await producer.send("t", b"%d" % number, partition=0)
    assert values(cluster) == [b"%d" % n for n in range(10)]
    assert cluster.producer_ids == 0


async def test_with_acks_0_nothing_is_answered_and_no_offset_is_known(autojump_clock: Clock) -> None:
    cluster = AppendingCluster()
    async with producing(cluster, acks=0, is_idempotent=False) as producer:
        assert (await producer.send_and_wait("t", b"x", partition=1)).offset == -1
        await trio.testing.wait_all_tasks_blocked()
    assert values(cluster, 1) == [b"x"]


async def test_keys_choose_partitions_and_others_stick_for_a_batch(autojump_clock: Clock) -> None:
    cluster = AppendingCluster(4)
    async with producing(cluster, batch_bytes=3_000) as producer:
        keyed = [await producer.send("t", b"", key=b"abc") for _ in range(3)]
        assert {metadata.partition for metadata in keyed} == {(479470107 & 0x7FFFFFFF) % 4}
        runs = [(await producer.send("t", bytes(700))).partition for _ in range(12)]
        assert len(set(runs[0:4])) == len(set(runs[4:8])) == 1
        assert runs[0] != runs[4] != runs[8]


async def test_a_topic_that_is_not_there_is_waited_for_and_no_longer(autojump_clock: Clock) -> None:
    cluster = AppendingCluster()
    cluster.topic_ids["t"] = None
    async with producing(cluster, max_block_ms=2_000) as producer:
        began = trio.current_time()
        with pytest.raises(TimedOutError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await producer.send("t", b"")
        assert trio.current_time() == pytest.approx(began + 2)
        with pytest.raises(trio.WouldBlock):
            producer.send_nowait("t", b"")
        del cluster.topic_ids["t"]
        await producer.send_and_wait("t", b"x", partition=0)


async def test_after_the_block_nothing_can_be_sent(autojump_clock: Clock) -> None:
    async with producing(AppendingCluster()) as producer:
        delivery = await producer.send("t", b"x", partition=0)
    assert delivery.result().offset == 0
    with pytest.raises(ClosedError):
        await producer.send("t", b"x")


async def test_failing_block_flushes_and_cancelled_one_does_not(autojump_clock: Clock) -> None:
    cluster = AppendingCluster()

    async def fail() -> None:
        async with producing(cluster) as producer:
            await producer.send("t", b"x", partition=0)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await fail()
    assert values(cluster) == [b"x"]
    cluster.fault = lambda partition: SILENT
    with trio.move_on_after(1):
        async with producing(cluster) as producer:
            await producer.send("t", b"y", partition=0)
            await trio.sleep_forever()
    assert values(cluster) == [b"x"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"acks": 2}, {"acks": 1}, {"compression": "rar"}, {"compression": "gzip", "compression_level": 99},
        {"in_flight_max": 6}, {"transactional_id": ""}, {"batch_bytes": 0}, {"buffer_bytes": 0}, {"request_bytes_max": 0},
        {"transactional_id": "t", "is_idempotent": False},
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        ProducerSettings(**wrong)


def test_settings_have_names_of_kafka_and_librdkafka() -> None:
    read = ProducerSettings.of(
        {"acks": "1", "linger.ms": "7.5", "compression.codec": "zstd", "client.id": "x", "max.in.flight": "9"}
    )
    assert (read.acks, read.linger_ms, read.compression, read.in_flight_max) == (1, 7.5, "zstd", 9)
    assert not read.is_idempotent
    assert ProducerSettings.of({"acks": "all", "enable.idempotence": "true"}) == ProducerSettings()
    for name, text in [("acks", "most"), ("batch.size", "-1"), ("enable.idempotence", "maybe")]:
        with pytest.raises(ValueError, match=name):
            ProducerSettings.of({name: text})
