"""Every record a consumer would be shown, once, over the wire and from disk, whatever its format and codec."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trio
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client import Endpoint, blocking
from barnabas.client.connection import dial_tcp
from barnabas.records import legacy
from barnabas.records.batch import TimestampType, read_header
from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from barnabas_pipeline.errors import DataLossError, UsageError
from barnabas_pipeline.log import disk, transports
from barnabas_pipeline.log.columns import Body, Columns, decode_bodies, from_records
from barnabas_pipeline.log.model import (
    READ_UNCOMMITTED,
    CorruptSpan,
    Log,
    LogOptions,
    OffsetRange,
    RangeCounts,
)
from barnabas_pipeline.log.planning import Selection, resolve, split
from barnabas_pipeline.log.reader import RangeReader

from .conftest import Stream
from .given import GivenLog, stored

API_VERSIONS = b"\0\x12"
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    base, timestamp = draw(st.integers(0, 2**40)), draw(st.integers(0, 2**42))
    deltas = sorted(draw(st.sets(st.integers(0, 300), min_size=1, max_size=20)))
    records = [
        Record(
            base + delta,
            timestamp + draw(st.integers(-(2**20), 2**20)),
            draw(st.none() | st.binary(max_size=200)),
            draw(st.none() | st.binary(max_size=200)),
            draw(HEADERS),
        )
        for delta in deltas
    ]
    return bytes(encode_batch(records, base_offset=base, codec=draw(st.sampled_from([0, 1, 2, 3, 4]))))


def rows(columns: Columns) -> list[tuple[Any, ...]]:
    headers = [[(pair["key"], pair["value"]) for pair in row] for row in columns.headers.to_pylist()]
    return list(
        zip(
            columns.offset.tolist(),
            columns.timestamp_ms.tolist(),
            columns.key.to_pylist(),
            columns.value.to_pylist(),
            headers,
            strict=True,
        )
    )


@given(st.lists(batches(), min_size=1, max_size=4))
@settings(max_examples=200)
def test_the_fast_decoder_gives_what_the_strict_one_gives(many: list[bytes]) -> None:
    from barnabas.records.batch import read_body, read_records

    bodies, strict = [], []
    for data in many:
        header = read_header(data)
        bodies.append(Body(header, read_body(data, 0, header, decompressed_bytes_max=1 << 20)))
        strict += rows(from_records(read_records(data), header))
    assert rows(decode_bodies(bodies)) == strict


def read_all(items: list[Any], start: int, end: int, **options: Any) -> tuple[list[Any], RangeCounts]:
    reader = RangeReader(GivenLog(items), OffsetRange(0, start, end), **options)  # type: ignore[arg-type]
    return list(reader), reader.counts


def batch(base: int, count: int, **options: Any) -> bytes:
    records = [Record(base + n, 1000 + n, None, b"v%d" % (base + n)) for n in range(count)]
    return bytes(encode_batch(records, base_offset=base, **options))


@given(batches(), st.data())
@settings(max_examples=300)
def test_any_damage_is_reported_with_every_offset(data: bytes, draw: st.DataObject) -> None:
    header = read_header(data)
    at = draw.draw(st.integers(21, len(data) - 1))
    broken = bytearray(data)
    broken[at] ^= draw.draw(st.integers(1, 255))
    many = min(2, header.base_offset)
    start = header.base_offset - many
    before = [batch(start, many)] if many else []
    items = [stored(encoded) for encoded in (*before, bytes(broken), batch(header.next_offset, 3))]
    read, counts = read_all(items, start, header.next_offset + 3)
    spans = [item for item in read if isinstance(item, CorruptSpan)]
    assert [(span.start, span.end, span.reason) for span in spans] == [
        (header.base_offset, header.next_offset, "crc")
    ]
    assert spans[0].data == bytes(broken)
    assert counts.span == len(OffsetRange(0, start, header.next_offset + 3))
    assert counts.records == 3 + many


@given(batches(), st.integers(0, 63))
@settings(max_examples=300)
def test_batch_with_wrong_offsets_is_reported_alone(data: bytes, bit: int) -> None:
    header = read_header(data)
    broken = ((header.base_offset ^ 1 << bit) % (1 << 64)).to_bytes(8, "big") + data[8:]
    start, end = header.base_offset - 2, header.next_offset + 5
    rest = [batch(header.next_offset, 3), batch(header.next_offset + 3, 2)]
    blocks, counts = read_all([stored(encoded) for encoded in (batch(start, 2), broken, *rest)], start, end)
    spans = [(x.start, x.end, x.reason, x.data) for x in blocks if isinstance(x, CorruptSpan)]
    assert spans == [(header.base_offset, header.next_offset, "order", broken)]
    assert (counts.span, counts.records) == (end - start, 7)


def test_offsets_are_records_control_aborted_or_compacted() -> None:
    from barnabas.records.control import encode_end_marker

    marker = encode_end_marker(
        commit=False, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=5, base_offset=14
    )
    items = [stored(batch(3, 5)), stored(batch(10, 4), is_aborted=True), stored(marker)]
    blocks, counts = read_all(items, 5, 20)
    assert [offset for block in blocks for offset in block.offset.tolist()] == [5, 6, 7]
    assert (counts.records, counts.aborted, counts.control, counts.compacted) == (3, 4, 1, 7)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_legacy_messages_are_read(magic: int, codec: int) -> None:
    records = [Record(5 + n, 1000 + n if magic else -1, b"k", b"v%d" % n) for n in range(4)]
    data = legacy.encode_message_set(records, magic=magic, codec=codec)
    items, at = [], 0
    while at < len(data):
        size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        items.append(stored(data[at : at + size]))
        at += size
    blocks, counts = read_all(items, 6, 8)
    assert [row for block in blocks for row in rows(block)] == [
        (offset, 995 + offset if magic else -1, b"k", b"v%d" % (offset - 5), []) for offset in (6, 7)
    ]
    assert counts.records == 2


def test_log_append_time_is_the_time_of_all_records() -> None:
    data = batch(0, 3, timestamp_type=TimestampType.LOG_APPEND_TIME, max_timestamp=777)
    blocks, _ = read_all([stored(data)], 0, 3)
    assert blocks[0].timestamp_ms.tolist() == [777] * 3
    assert blocks[0].timestamp_type.tolist() == [1] * 3


def test_a_batch_that_grows_too_large_is_a_corrupt_span() -> None:
    data = encode_batch([Record(0, 0, None, bytes(1 << 20))], codec=4)
    spans, counts = read_all([stored(bytes(data))], 0, 1, decompressed_bytes_max=1 << 16)
    assert [(span.start, span.end, span.reason) for span in spans] == [(0, 1, "too_large")]
    assert counts.corrupt == 1


# --- a real broker --------------------------------------------------------------------------------------------------


OpenLog = Callable[[LogOptions], Log]


@pytest.fixture
def open_log() -> Iterator[OpenLog]:
    """Open logs that are closed with the test."""
    opened: list[Log] = []

    def opening(options: LogOptions) -> Log:
        opened.append(transports.open_log(options))
        return opened[-1]

    yield opening
    for log in opened:
        log.close()


def options(stream: Stream, transport: str, topic: str, **more: Any) -> LogOptions:
    return LogOptions(
        topic=topic,
        transport=transport,
        bootstrap=stream.bootstrap,
        log_dirs=(str(stream.broker.data),),
        **more,
    )


def wait_for_checkpoint(log: Any, ends: dict[int, int]) -> None:
    """The disk transport sees what the broker has checkpointed, which is soon everything."""
    deadline = time.monotonic() + 30
    while {p: bound.high_watermark for p, bound in log.bounds().items()} != ends:
        assert time.monotonic() < deadline, "the broker did not write its checkpoint"
        time.sleep(0.05)


@pytest.mark.parametrize("transport", ["wire", "disk"])
def test_a_topic_is_read_whole_in_splits(stream: Stream, open_log: OpenLog, transport: str) -> None:
    wire = open_log(options(stream, "wire", "views"))
    ends = {partition: bound.end for partition, bound in wire.bounds().items()}
    log = open_log(options(stream, transport, "views"))
    wait_for_checkpoint(log, ends)
    assert log.identity() == wire.identity()
    assert log.identity().topic_id
    tasks = split(log, resolve(log, Selection()), bytes_max=32 * 1024)
    assert len(tasks) > 3, "several splits a partition"
    keys: list[bytes] = []
    for task in tasks:
        reader = RangeReader(log, task)
        for columns in reader:
            assert isinstance(columns, Columns)
            keys += columns.key.to_pylist()
        assert reader.counts.records == len(task)
    assert sorted(keys) == sorted(event.key.encode() for event in stream.of("views"))


def test_zeros_behind_the_entries_of_an_index_are_cut_off() -> None:
    first, entry = bytes(8), bytes.fromhex("0000000100000100")
    for whole in (b"", first, first + entry, first + entry + entry):
        assert disk.trim(whole + bytes(10 << 20), 8) == (whole or first)
        assert disk.trim(whole + bytes(3), 8) == whole


def test_tasks_are_large_but_leave_no_core_without_work() -> None:
    class Even:
        """A log of one byte an offset."""

        def cut_points(self, span: OffsetRange, bytes_max: int) -> list[int]:
            return list(range(span.start + bytes_max, span.end, bytes_max))

    mib = 1 << 20

    def sizes(*ends: int, cores: int) -> list[int]:
        ranges = [OffsetRange(partition, 0, end) for partition, end in enumerate(ends)]
        return [len(part) for part in split(Even(), ranges, tasks_min=cores)]  # type: ignore[arg-type]

    assert sizes(200 * mib, cores=2) == [64 * mib] * 3 + [8 * mib]
    assert sizes(48 * mib, 48 * mib, cores=2) == [48 * mib] * 2
    assert sizes(64 * mib, cores=2) == [32 * mib] * 2
    assert sizes(64 * mib, 0, cores=64) == [8 * mib] * 8, "smaller ones are not worth a task"


@pytest.mark.parametrize("transport", ["wire", "disk"])
def test_offsets_are_found_by_timestamp_as_kafka_finds_them(
    stream: Stream, open_log: OpenLog, transport: str
) -> None:
    log = open_log(options(stream, transport, "votes"))
    wait_for_checkpoint(
        log, {p: bound.end for p, bound in open_log(options(stream, "wire", "votes")).bounds().items()}
    )
    consumer = Consumer({"bootstrap.servers": stream.bootstrap, "group.id": "t"})
    events = stream.of("votes")
    for timestamp_ms in (
        0,
        events[0].delivered,
        events[len(events) // 2].delivered,
        events[-1].delivered + 1,
    ):
        for partition in range(3):
            (expected,) = consumer.offsets_for_times(
                [TopicPartition("votes", partition, timestamp_ms)], timeout=10
            )
            offset = log.offset_for_time(partition, timestamp_ms)
            assert (-1 if offset is None else offset) == expected.offset
    consumer.close()


@pytest.mark.parametrize("transport", ["wire", "disk"])
def test_a_topic_that_is_not_there_is_a_usage_error(
    stream: Stream, open_log: OpenLog, transport: str
) -> None:
    with pytest.raises(UsageError, match="no topic 'nothing'"):
        open_log(options(stream, transport, "nothing")).bounds()


class ClosesOnApiVersions(trio.abc.Stream):
    """A stream to a broker that closes it on ApiVersions, as brokers before 0.10 do."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream

    async def send_all(self, data: Any) -> None:
        if data[4:6] == API_VERSIONS:
            await self._stream.aclose()
        else:
            await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        await self._stream.aclose()


def test_a_broker_before_0_10_can_be_read(
    stream: Stream, open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dial(endpoint: Endpoint) -> trio.abc.Stream:
        return ClosesOnApiVersions(await dial_tcp(endpoint))

    new = open_log(options(stream, "wire", "votes"))
    identity, bounds = new.identity(), new.bounds()
    monkeypatch.setattr(blocking, "open_client", partial(blocking.open_client, dial=dial))
    old = open_log(options(stream, "wire", "votes", isolation=READ_UNCOMMITTED))
    assert old.identity() == identity._replace(cluster_id="", topic_id="")
    assert {p: (bound.start, bound.end) for p, bound in old.bounds().items()} == {
        p: (bound.start, bound.end) for p, bound in bounds.items()
    }
    for partition, bound in bounds.items():
        span = OffsetRange(partition, bound.start, bound.end)
        assert keys_and_values(old, span) == keys_and_values(new, span)


def keys_and_values(log: Log, span: OffsetRange) -> list[tuple[int, Any, Any]]:
    pairs = []
    for part in RangeReader(log, span):
        assert isinstance(part, Columns)
        pairs += zip(part.offset.tolist(), part.key.to_pylist(), part.value.to_pylist(), strict=True)
    return pairs


@pytest.mark.parametrize("transport", ["wire", "disk"])
def test_data_loss_error_names_the_range_of_deleted_records(
    stream: Stream, open_log: OpenLog, transport: str
) -> None:
    admin = AdminClient({"bootstrap.servers": stream.bootstrap})
    topic = f"deleted-{transport}"
    admin.create_topics([NewTopic(topic, 1)])[topic].result(10)
    producer = Producer({"bootstrap.servers": stream.bootstrap})
    for n in range(100):
        producer.produce(topic, b"%d" % n)
    producer.flush(10)
    admin.delete_records([TopicPartition(topic, 0, 40)])
    log = open_log(options(stream, transport, topic))
    wait_for_checkpoint(log, {0: 100})
    deadline = time.monotonic() + 30
    while log.bounds()[0].start != 40:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with pytest.raises(DataLossError) as caught:
        resolve(log, Selection(starting='{"0": 10}'))
    assert [tuple(range_) for range_ in caught.value.missing] == [(0, 10, 40)]


def test_disk_log_hides_open_and_aborted_transactions(tmp_path: Path, open_log: OpenLog) -> None:
    """By hand, since only the files matter: committed, aborted and open transactions in one segment."""
    from barnabas.log.format import checkpoints
    from barnabas.records.control import encode_end_marker

    directory = tmp_path / "t-0"
    directory.mkdir()

    def transactional(base: int, producer_id: int) -> bytes:
        return batch(base, 2, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)

    def marker(base: int, producer_id: int, *, commit: bool) -> bytes:
        return encode_end_marker(
            commit=commit, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1, base_offset=base
        )  # fmt: skip

    data = [
        transactional(0, 1), transactional(2, 2), marker(4, 1, commit=True), marker(5, 2, commit=False),
        batch(6, 2), transactional(8, 3), batch(10, 2),
    ]  # fmt: skip
    (directory / f"{0:020d}.log").write_bytes(b"".join(data))
    (tmp_path / "replication-offset-checkpoint").write_bytes(checkpoints.encode_offsets({("t", 0): 12}))
    log = open_log(LogOptions("t", transport="disk", log_dirs=(str(tmp_path),)))
    assert log.bounds()[0][:3] == (0, 8, 12)
    reader = RangeReader(log, OffsetRange(0, 0, 8))
    assert [offset for columns in reader for offset in columns.offset.tolist()] == [0, 1, 6, 7]  # type: ignore[union-attr]
    assert (reader.counts.aborted, reader.counts.control) == (2, 2)
    everything = open_log(
        LogOptions("t", transport="disk", log_dirs=(str(tmp_path),), isolation=READ_UNCOMMITTED)
    )
    assert everything.bounds()[0].end == 12
    reader = RangeReader(everything, OffsetRange(0, 0, 12))
    assert np.concatenate([columns.offset for columns in reader]).tolist() == [0, 1, 2, 3, 6, 7, 8, 9, 10, 11]  # type: ignore[union-attr]
