"""A log that is cut off or read again knows how much is flushed, and up to where transactions are decided."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.log.format import names
from barnabas.log.partition_log import PartitionLog
from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from barnabas.records.validate import Origin
from tests.support.logs import NOW_MS, Broker, append, batch, marker, read_all


@pytest.fixture
def broker(tmp_path):
    broker = Broker(tmp_path)
    yield broker
    broker.crash()


@pytest.fixture
def log(broker):
    return broker.log()


# --- the recovery point -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 1, 3, 4])
def test_earlier_flush_does_not_cover_records_after_truncation(log, offset):
    for n in range(5):
        append(log, batch(b"old %d" % n))
    log.flush(NOW_MS)
    assert log.recovery_point == 5
    assert log.truncate_to(offset, now_ms=NOW_MS)
    assert log.recovery_point == offset
    append(log, batch(b"new"), epoch=1)
    task = log.begin_flush()
    assert task is not None, "the new record would never be flushed"
    task.run()
    task.finish(NOW_MS)
    assert log.recovery_point == offset + 1


def test_start_finds_damage_written_after_a_truncation(broker, log):
    """The recovery point says from where on an unclean start checks batches: here from the cut on."""
    for n in range(5):
        append(log, batch(b"old %d" % n))
    log.flush(NOW_MS)
    broker.manager.write_checkpoints()
    log.truncate_to(2, now_ms=NOW_MS)
    append(log, batch(b"new"), epoch=1)
    broker.manager.write_checkpoints()
    path = Path(log.active.path(names.LOG))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    broker.restart(clean=False)
    again = broker.log()
    again.advance_high_watermark(again.log_end_offset)
    assert again.log_end_offset == 2
    assert [record.value for record in read_all(again)] == [b"old 0", b"old 1"]


# --- the last stable offset ---------------------------------------------------------------------------------------


def transactional(producer_id: int, sequence: int = 0) -> bytearray:
    return batch(b"%d" % producer_id, producer_id=producer_id, producer_epoch=0, base_sequence=sequence,
                 transactional=True)  # fmt: skip


def end(log: PartitionLog, **transaction: object) -> None:
    append(log, marker(**transaction), origin=Origin.COORDINATOR)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("again_ms", [0, 1])
def test_the_last_stable_offset_is_the_same_after_a_restart(broker, log, clean, again_ms):
    """The producer that came first has begun its open transaction last: a snapshot names it first."""
    append(log, transactional(1))
    append(log, transactional(2))
    append(log, transactional(3))
    end(log, commit=True, producer_id=1)
    append(log, transactional(1, sequence=1))
    assert (log.last_stable_offset, log.high_watermark) == (1, 5)
    broker.restart(clean=clean, now_ms=NOW_MS + again_ms)
    again = broker.log()
    again.advance_high_watermark(5)
    assert again.last_stable_offset == 1
    end(again, commit=False, producer_id=2)
    assert again.last_stable_offset == 2
    end(again, commit=True, producer_id=3)
    assert again.last_stable_offset == 4
    end(again, commit=True, producer_id=1)
    assert again.last_stable_offset == again.high_watermark == 8


# --- timestamps ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_follower", [False, True])
@pytest.mark.parametrize("clean", [True, False])
def test_batch_is_found_by_the_largest_of_its_times(broker, log, as_follower, clean):
    """The base timestamp of a batch is that of its first record, neither its smallest nor its largest."""
    times = (NOW_MS - 5, NOW_MS - 40, NOW_MS - 2, NOW_MS - 30)
    records = [Record(n, time, b"k", b"v") for n, time in enumerate(times)]
    data = bytearray(encode_batch(records))
    if as_follower:
        log.append_as_follower(data, now_ms=NOW_MS)
        log.advance_high_watermark(4)
    else:
        append(log, data)
    for again in (log, None):
        if again is None:
            broker.restart(clean=clean)
            again = broker.log()
            again.advance_high_watermark(4)
        place = again.offset_of_max_timestamp()
        assert place is not None
        assert (place.timestamp, place.offset) == (NOW_MS - 2, 2)
        first = again.offset_for_timestamp(NOW_MS - 4)
        assert first is not None
        assert (first.timestamp, first.offset) == (NOW_MS - 2, 2)
        assert again.offset_for_timestamp(NOW_MS - 1) is None
        assert [record.timestamp for record in read_all(again)] == list(times)


@pytest.mark.parametrize("settings", [{}, {"segment_bytes": 200}, {"index_interval_bytes": 1}], ids=str)
@pytest.mark.parametrize("way", ["written", "truncated", "clean", "crashed"])
def test_first_of_several_largest_timestamps_is_found(tmp_path, settings, way):
    broker = Broker(tmp_path, **settings)
    log = broker.log()
    for after_ms in (1, 7, 7, 3, 7, 9):
        append(log, batch(b"v", timestamp=NOW_MS + after_ms))
    log.truncate_to(5, now_ms=NOW_MS)
    if way == "truncated":
        log.truncate_to(4, now_ms=NOW_MS)
    elif way != "written":
        broker.restart(clean=way == "clean")
        log = broker.log()
        log.advance_high_watermark(5)
    place = log.offset_of_max_timestamp()
    assert place is not None
    assert (place.timestamp, place.offset) == (NOW_MS + 7, 1)
    broker.crash()


@pytest.mark.parametrize("commit", [True, False])
def test_uncommitted_end_holds_up_readers_after_a_truncation(log, commit):
    """The snapshot is of after the transaction's end, and does not say that the end is above the high watermark."""
    append(log, batch(b"committed"))
    append(log, batch(b"a", producer_id=7, base_sequence=0, transactional=True))
    end = marker(commit=commit, producer_id=7, producer_epoch=0)
    log.append_as_leader(end, leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR)
    log.roll()
    for value in (b"b", b"c"):
        log.append_as_leader(batch(value), leader_epoch=0, now_ms=NOW_MS)
    for offset in (4, 3):
        assert (log.high_watermark, log.last_stable_offset) == (2, 1)
        assert log.truncate_to(offset, now_ms=NOW_MS)
    assert (log.high_watermark, log.last_stable_offset) == (2, 1)
    log.advance_high_watermark(3)
    assert log.last_stable_offset == 3
