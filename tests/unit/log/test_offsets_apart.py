"""A log in which no two offsets are equal: start, last stable, high watermark, recovery point, end, segments, epochs."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.errors import RequestError
from barnabas.log.format import names
from barnabas.log.format.checkpoints import decode_offsets
from barnabas.log.partition_log import PartitionLog
from barnabas.records import legacy
from barnabas.records.building import encode_batch
from barnabas.records.compression import Codec
from barnabas.records.record import Record
from barnabas.records.validate import Origin
from barnabas.testing.memory_disk import MemoryDisk
from tests.support.logs import NOW_MS, Broker, append, batch, marker, rebase

SIZE = len(batch(b"v"))


@pytest.fixture
def broker() -> Broker:
    return Broker("/d", disk=MemoryDisk())  # type: ignore[arg-type]


def filled(broker: Broker, count: int = 10, **options: Any) -> PartitionLog:
    """A log of so many records, each a batch, all committed."""
    log = broker.log()
    for n in range(count):
        append(log, batch(b"v", timestamp=NOW_MS + n), **options)
    return log


def offsets(log: PartitionLog) -> tuple[int, int, int, int]:
    return log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset


def transactional(producer_id: int, sequence: int = 0) -> bytearray:
    return batch(
        b"%d" % producer_id,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )


def end(log: PartitionLog, producer_id: int, *, commit: bool) -> None:
    append(log, marker(commit=commit, producer_id=producer_id), origin=Origin.COORDINATOR)


def at(offset: int, records: bytes | bytearray, epoch: int = 0) -> bytes:
    data = bytearray(records)
    rebase(data, 0, offset, epoch)
    return bytes(data)


# --- truncating and deleting --------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [4, 5, 20])
def test_a_log_that_begins_anew_knows_nothing_of_before(broker: Broker, cut: int) -> None:
    log = filled(broker, epoch=3)
    append(log, transactional(1))
    log.clean_offset = 6
    log.flush(NOW_MS)
    log.truncate_fully_and_start_at(cut)
    assert offsets(log) == (cut,) * 4
    assert (log.clean_offset, log.recovery_point, log.epochs.entries) == (min(6, cut), min(11, cut), [])
    assert (len(log.producers), log.producers.first_unstable_offset) == (0, None)


# --- what a follower appends --------------------------------------------------------------------------------------


def test_records_of_old_formats_are_not_counted(broker: Broker) -> None:
    log = broker.log()
    records = [Record(n, NOW_MS, None, b"v") for n in range(3)]
    packed = legacy.encode_message_set(records, magic=1, codec=Codec.GZIP)
    plain = legacy.encode_message_set([Record(3, NOW_MS, None, b"v")], magic=1)
    result = log.append_as_follower(packed + plain, now_ms=NOW_MS)
    assert (result.record_count, log.appended_messages, log.log_end_offset) == (1, 1, 4)


@pytest.mark.parametrize("as_follower", [False, True])
def test_segment_age_is_the_largest_time_of_its_first_batch(as_follower: bool) -> None:
    broker = Broker("/d", disk=MemoryDisk(), segment_ms=1_000)  # type: ignore[arg-type]
    log = broker.log()

    def put(offset: int, *times: int) -> None:
        data = encode_batch([Record(n, NOW_MS + time, None, b"v") for n, time in enumerate(times)])
        if as_follower:
            log.append_as_follower(at(offset, data), now_ms=NOW_MS)
        else:
            append(log, bytearray(data))

    put(0, 0, 500)
    put(2, 1_500)
    assert [segment.base_offset for segment in log.segments] == [0]
    put(3, 1_501)
    assert [segment.base_offset for segment in log.segments] == [0, 3]


# --- checkpoints --------------------------------------------------------------------------------------------------


def checkpoint(broker: Broker, name: str) -> dict[tuple[str, int], int]:
    assert broker.disk is not None
    return decode_offsets(broker.disk.read(f"/d/{name}"))


@pytest.mark.parametrize(("start", "is_kept"), [(0, False), (1, True), (4, True), (9, True)])
def test_log_start_is_checkpointed_unless_its_segment_says_it(
    broker: Broker, start: int, is_kept: bool
) -> None:
    broker.config = type(broker.config)(segment_bytes=3 * SIZE)
    log = filled(broker, 10)
    log.append_as_leader(batch(b"v"), leader_epoch=0, now_ms=NOW_MS)
    log.delete_records_before(start)
    log.recovery_point = 7
    broker.manager.write_checkpoints()
    key = ("t", 0)
    assert checkpoint(broker, names.LOG_START_CHECKPOINT) == ({key: start} if is_kept else {})
    assert checkpoint(broker, names.RECOVERY_POINT_CHECKPOINT) == {key: 7}
    assert checkpoint(broker, names.HIGH_WATERMARK_CHECKPOINT) == {key: 10}


# --- reads --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "upper", "producers"),
    [
        (0, 10, [1, 2]),
        (0, 3, [1]),
        (0, 4, [1, 2]),
        (6, 10, [1, 2]),
        (7, 10, [2]),
        (8, 10, [2]),
        (9, 10, []),
        (0, 2, []),
        (0, 1, []),
    ],
)
@pytest.mark.parametrize("segment_bytes", [1 << 20, 300])
def test_aborted_transactions_are_those_with_records_in_between(
    start: int, upper: int, producers: list[int], segment_bytes: int
) -> None:
    """Producer 1 has written at 2 and 4 and was aborted at 6, producer 2 at 3 and 5, at 8; producer 3 committed at 7."""
    broker = Broker("/d", disk=MemoryDisk(), segment_bytes=segment_bytes)  # type: ignore[arg-type]
    log = filled(broker, 1)
    append(log, transactional(3))
    for producer_id, sequence in ((1, 0), (2, 0), (1, 1), (2, 1)):
        append(log, transactional(producer_id, sequence))
    end(log, 1, commit=False)
    end(log, 3, commit=True)
    end(log, 2, commit=False)
    append(log, batch(b"v"))
    assert offsets(log) == (0, 10, 10, 10)
    assert [transaction.producer_id for transaction in log.aborted_transactions(start, upper)] == producers


@pytest.mark.parametrize("index_interval_bytes", [0, 200, 1 << 20])
@pytest.mark.parametrize("upper", [7, 10])
def test_a_read_says_where_to_go_on(index_interval_bytes: int, upper: int) -> None:
    broker = Broker("/d", disk=MemoryDisk(), index_interval_bytes=index_interval_bytes)  # type: ignore[arg-type]
    log = filled(broker, 10)
    for offset in range(upper):
        for count in range(1, upper - offset + 2):
            result = log.read(offset, max_bytes=count * SIZE, upper_offset=upper)
            whole = min(count, upper - offset)
            assert len(result.records) == whole * SIZE
            assert offset + whole <= result.next_offset <= upper
            if not index_interval_bytes:
                assert result.next_offset <= offset + whole + 1


# --- producers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("after_ms", "is_gone"), [(999, False), (1_000, True)])
@pytest.mark.parametrize("is_open", [False, True])
def test_producers_expire_that_are_silent_and_have_nothing_open(
    broker: Broker, after_ms: int, is_gone: bool, is_open: bool
) -> None:
    log = broker.log()
    append(
        log, transactional(1) if is_open else batch(b"v", producer_id=1, producer_epoch=0, base_sequence=0)
    )
    log.producers.expiration_ms = 1_000
    expected = is_gone and not is_open
    assert log.producers.expire(NOW_MS + after_ms) == expected
    assert (log.producers.get(1) is None) is expected


@pytest.mark.parametrize(("high_watermark", "unstable"), [(2, 1), (3, 1), (4, None)])
def test_transaction_is_open_until_its_marker_is_committed(
    broker: Broker, high_watermark: int, unstable: int | None
) -> None:
    log = filled(broker, 1)
    for data, origin in (
        (transactional(1), Origin.CLIENT), (batch(b"v"), Origin.CLIENT),
        (marker(commit=True, producer_id=1), Origin.COORDINATOR), (batch(b"v"), Origin.CLIENT),
    ):  # fmt: skip
        log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS, origin=origin)
    log.advance_high_watermark(high_watermark)
    assert log.producers.first_unstable_offset == unstable
    assert log.last_stable_offset == (high_watermark if unstable is None else unstable)


# --- who appends --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("from_zero", [False, True])
def test_transaction_of_version_2_begins_with_sequence_0(broker: Broker, from_zero: bool) -> None:
    log = broker.log()
    for producer_id, sequence in ((7, 5), (8, 0)):
        log.producers.expect(producer_id, 0, sequence, from_zero=from_zero, now_ms=NOW_MS)
    if from_zero:
        with pytest.raises(RequestError):
            append(log, transactional(7, 5))
    else:
        append(log, transactional(7, 5))
    append(log, transactional(8, 0))
    append(log, batch(b"v", producer_id=9, producer_epoch=0, base_sequence=5))


def test_every_result_says_where_the_log_begins(broker: Broker) -> None:
    log = filled(broker)
    log.delete_records_before(4)
    log.clean_offset = 3
    results = [
        append(log, batch(b"a", b"b", producer_id=7, producer_epoch=0, base_sequence=0)),
        append(log, batch(b"a", b"b", producer_id=7, producer_epoch=0, base_sequence=0)),
        log.append_as_follower(at(12, batch(b"c")), now_ms=NOW_MS),
        append(log, b""[:0], api_version=2),  # type: ignore[arg-type]
    ]
    appended = [
        (row.base_offset, row.last_offset, row.log_start_offset, row.record_count, row.duplicate)
        for row in results
    ]
    assert appended == [
        (10, 11, 4, 2, False),
        (10, 11, 4, 0, True),
        (12, 12, 4, 1, False),
        (-1, -1, 4, 0, False),
    ]
    assert [result.size for result in results] == [len(batch(b"a", b"b")), 0, SIZE, 0]
    assert results[1].log_append_time_ms == NOW_MS
