"""A log in which no two offsets are equal: start, last stable, high watermark, recovery point, end, segments, epochs."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.errors import RequestError
from barnabas.log.partition_log import PartitionLog
from barnabas.records import legacy
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


def test_records_of_old_formats_are_not_counted_where_nobody_knows_how_many_there_are(broker: Broker) -> None:
    log = broker.log()
    records = [Record(n, NOW_MS, None, b"v") for n in range(3)]
    packed = legacy.encode_message_set(records, magic=1, codec=Codec.GZIP)
    plain = legacy.encode_message_set([Record(3, NOW_MS, None, b"v")], magic=1)
    result = log.append_as_follower(packed + plain, now_ms=NOW_MS)
    assert (result.record_count, log.appended_messages, log.log_end_offset) == (1, 1, 4)


# --- reads --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "upper", "found"),
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
    start: int, upper: int, found: list[int], segment_bytes: int
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
    assert [one.producer_id for one in log.aborted_transactions(start, upper)] == found


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
