"""The log of a partition: appends, reads, offsets."""

import os

import pytest

from barnabas.errors import RequestError
from barnabas.log.errors import Code
from barnabas.records.batch import iter_batches, read_header, read_records
from barnabas.records.building import encode_batch
from barnabas.records.errors import CorruptRecordsError
from barnabas.records.record import Record
from tests.support.logs import NOW_MS, Broker, append, batch, read_all, rebase
from tests.support.systems import open_descriptors


@pytest.fixture
def broker(tmp_path):
    return Broker(tmp_path, segment_bytes=2_000, index_interval_bytes=200)


@pytest.fixture
def log(broker):
    return broker.log()


def test_offsets_are_given_in_order(log):
    first = append(log, batch(b"a", b"b"))
    second = append(log, batch(b"c"))
    assert (first.base_offset, first.last_offset, second.base_offset, second.last_offset) == (0, 1, 2, 2)
    assert (first.log_append_time_ms, first.log_start_offset, first.duplicate) == (-1, 0, False)
    assert [record.value for record in read_all(log)] == [b"a", b"b", b"c"]


def test_the_batch_is_patched_and_stored_with_the_leader_epoch(log):
    append(log, batch(b"a"), epoch=4)
    header = read_header(log.read(0, max_bytes=1000, upper_offset=1).to_bytes())
    assert (header.base_offset, header.leader_epoch) == (0, 4)
    assert log.epochs.entries == [(4, 0)]


def test_nothing_beyond_the_upper_offset_is_read(log):
    for value in (b"a", b"b", b"c"):
        log.append_as_leader(batch(value), leader_epoch=0, now_ms=NOW_MS)
    log.advance_high_watermark(2)
    assert [record.value for record in read_all(log)] == [b"a", b"b"]
    data = log.read(0, max_bytes=10_000, upper_offset=2).to_bytes()
    assert [header.base_offset for _, header in iter_batches(data)] == [0, 1]
    assert len(log.read(2, max_bytes=10_000, upper_offset=2).records) == 0


def test_reads_go_on_through_all_segments(log):
    for n in range(100):
        append(log, batch(b"%d" % n, b"x" * 50))
    assert len(log.segments) > 5
    assert [record.offset for record in read_all(log)] == list(range(200))
    assert [record.offset for record in read_all(log, 77, max_bytes=10)] == list(range(77, 200))


def test_a_read_in_the_middle_of_a_batch_gets_the_whole_batch(log):
    append(log, batch(*[b"v"] * 10))
    result = log.read(5, max_bytes=1_000, upper_offset=10)
    assert read_header(result.to_bytes()).base_offset == 0
    assert result.next_offset == 10


def test_read_without_its_end_returns_the_same_records(log):
    for n in range(100):
        append(log, batch(b"%d" % n, b"x" * 50))
    for offset in range(0, 200, 7):
        exact = log.read(offset, max_bytes=150, upper_offset=180)
        quick = log.read(offset, max_bytes=150, upper_offset=180, is_end_wanted=False)
        assert quick.to_bytes() == exact.to_bytes()
        assert quick.next_offset >= exact.next_offset


def test_first_batch_is_whole_only_if_asked_for(log):
    append(log, batch(b"x" * 500))
    append(log, batch(b"y"))
    whole = log.read(0, max_bytes=10, upper_offset=2, min_one_batch=True)
    part = log.read(0, max_bytes=10, upper_offset=2, min_one_batch=False)
    nothing = log.read(0, max_bytes=0, upper_offset=2, min_one_batch=False)
    assert [header.base_offset for _, header in iter_batches(whole.to_bytes())] == [0]
    assert (len(part.records), len(nothing.records)) == (10, 0)


@pytest.mark.parametrize("offset", [-1, 3, 1 << 40])
def test_offsets_out_of_range_are_refused(log, offset):
    append(log, batch(b"a", b"b"))
    with pytest.raises(RequestError) as error:
        log.read(offset, max_bytes=1_000, upper_offset=2)
    assert error.value.code == Code.OFFSET_OUT_OF_RANGE


def test_a_region_outlives_the_segment(broker, log):
    append(log, batch(b"a" * 1000))
    region = log.read(0, max_bytes=2_000, upper_offset=1).records
    for _ in range(5):
        append(log, batch(b"b" * 1000))
    assert log.apply_retention(NOW_MS + 10**12) > 0
    broker.manager.remove_due(NOW_MS + 10**13)
    assert os.pread(region.fd, region.size, region.position)[-1001:] == b"a" * 1000 + b"\0"


def test_records_are_found_by_timestamp(log):
    for n in range(100):
        append(log, batch(b"a", b"b", timestamp=NOW_MS + 10 * n))
    assert log.offset_for_timestamp(NOW_MS + 501) == (NOW_MS + 510, 102, 0)
    assert log.offset_for_timestamp(NOW_MS + 500) == (NOW_MS + 500, 100, 0)
    assert log.offset_for_timestamp(0).offset == 0
    assert log.offset_for_timestamp(NOW_MS + 991) is None
    assert log.offset_of_max_timestamp() == (NOW_MS + 990, 198, 0)


def test_a_record_inside_of_a_batch_is_found_by_timestamp(log):
    records = [Record(n, NOW_MS + n, b"k", b"v") for n in (0, 1, 2, 3)]
    append(log, bytearray(encode_batch(records)))
    assert log.offset_for_timestamp(NOW_MS + 2) == (NOW_MS + 2, 2, 0)


def test_no_timestamp_is_found_in_an_empty_log(log):
    assert log.offset_for_timestamp(0) is None
    assert log.offset_of_max_timestamp() is None


def test_retention_keeps_segments_above_the_high_watermark(broker, log):
    for _ in range(5):
        log.append_as_leader(batch(b"b" * 1500), leader_epoch=0, now_ms=NOW_MS)
    log.advance_high_watermark(2)
    assert log.apply_retention(NOW_MS + 10**12) == 2
    assert (log.log_start_offset, log.log_end_offset) == (2, 5)


def test_records_are_deleted_before_an_offset(broker, log):
    for _ in range(10):
        append(log, batch(b"b" * 600))
    assert log.delete_records_before(5) == 5
    with pytest.raises(RequestError):
        log.read(4, max_bytes=10, upper_offset=10)
    with pytest.raises(RequestError):
        log.delete_records_before(11)
    log.apply_retention(NOW_MS)
    assert log.segments[0].base_offset <= 5 < log.segments[1].base_offset
    assert log.delete_records_before(-1) == 10
    broker.restart(clean=True)
    assert (broker.log().log_start_offset, broker.log().log_end_offset) == (10, 10)


@pytest.mark.parametrize("clean", [True, False])
def test_everything_is_there_after_a_restart(broker, log, clean):
    for n in range(50):
        append(log, batch(b"%d" % n, b"x" * 50, timestamp=NOW_MS + n), epoch=n // 10)
    before = read_all(log)
    broker.restart(clean=clean)
    again = broker.log()
    again.advance_high_watermark(again.log_end_offset)
    assert again is not log
    assert read_all(again) == before
    assert again.epochs.entries == [(n, 20 * n) for n in range(5)]
    assert again.offset_of_max_timestamp().offset == 98
    assert again.topic_id == log.topic_id
    assert append(again, batch(b"next"), epoch=9).base_offset == 100


def test_a_follower_takes_offsets_and_epochs_as_they_come(broker, log):
    leader = broker.log("leader")
    for n in range(10):
        append(leader, batch(b"%d" % n, b"x"), epoch=n // 5)
    data = leader.read(0, max_bytes=1 << 20, upper_offset=20).to_bytes()
    result = log.append_as_follower(data + data[:30], now_ms=NOW_MS)
    log.advance_high_watermark(20)
    assert (result.base_offset, result.last_offset, log.log_end_offset) == (0, 19, 20)
    assert log.epochs.entries == [(0, 0), (1, 10)]
    assert read_all(log) == read_all(leader)
    with pytest.raises(RequestError) as error:
        log.append_as_follower(data, now_ms=NOW_MS)
    assert error.value.code == Code.OFFSET_OUT_OF_RANGE
    damaged = batch(b"abc")
    rebase(damaged, 0, 20, 1)
    damaged[-2] ^= 1
    with pytest.raises(CorruptRecordsError):
        log.append_as_follower(damaged, now_ms=NOW_MS)
    assert log.log_end_offset == 20


@pytest.mark.parametrize("offset", [0, 1, 7, 40, 99])
@pytest.mark.parametrize("clean", [True, False])
def test_a_log_is_truncated(broker, log, offset, clean):
    for n in range(100):
        append(log, batch(b"%d" % n + b"x" * 50, timestamp=NOW_MS + n), epoch=n // 10)
    before = read_all(log)
    assert log.truncate_to(offset, now_ms=NOW_MS)
    assert (log.log_end_offset, log.high_watermark) == (offset, offset)
    assert read_all(log) == before[:offset]
    assert all(start < offset for _, start in log.epochs.entries)
    append(log, batch(b"new", timestamp=NOW_MS - 5), epoch=77)
    broker.restart(clean=clean)
    again = broker.log()
    again.advance_high_watermark(offset + 1)
    assert [record.value for record in read_all(again)] == [record.value for record in before[:offset]] + [
        b"new"
    ]
    assert again.epochs.entries[-1] == (77, offset)
    if offset:
        assert again.offset_of_max_timestamp().timestamp == NOW_MS + offset - 1


def test_truncating_beyond_the_end_changes_nothing(log):
    append(log, batch(b"a"))
    assert not log.truncate_to(1, now_ms=NOW_MS)
    assert log.log_end_offset == 1


def test_a_log_can_begin_anew_at_an_offset(broker, log):
    for _ in range(10):
        append(log, batch(b"x" * 700))
    log.truncate_fully_and_start_at(500)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (500, 500, 500)
    append(log, batch(b"a"), epoch=3)
    broker.restart(clean=False)
    assert (broker.log().log_start_offset, broker.log().log_end_offset) == (500, 501)
    assert broker.log().epochs.entries == [(3, 500)]


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_segment_is_rolled_when_its_records_are_too_old(tmp_path, is_clean):
    broker = Broker(tmp_path, segment_ms=1_000)
    append(broker.log(), batch(b"a", timestamp=NOW_MS))
    append(broker.log(), batch(b"b", timestamp=NOW_MS + 1_000))
    assert len(broker.log().segments) == 1
    broker.restart(clean=is_clean)
    log = broker.log()
    append(log, batch(b"c", timestamp=NOW_MS + 1_001))
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_a_segment_is_rolled_when_its_index_is_full(tmp_path):
    log = Broker(tmp_path, segment_index_bytes=40, index_interval_bytes=0).log()
    for n in range(20):
        append(log, batch(b"a", timestamp=NOW_MS + n))
    assert len(log.segments) > 4
    assert all(len(segment.offset_index.entries) <= 40 for segment in log.segments)
    assert all(len(segment.time_index.entries) <= 40 for segment in log.segments)


def test_many_logs_share_few_open_files(tmp_path):
    broker = Broker(tmp_path)
    broker.manager.pool.count_max = 8
    open_before = len(open_descriptors())
    logs = [broker.log("t", n) for n in range(50)]
    for turn in range(3):
        for log in logs:
            append(log, batch(b"%d" % turn))
    assert len(broker.manager.pool) <= 8
    assert len(open_descriptors()) <= open_before + 8
    assert all(len(read_all(log)) == 3 for log in logs)
    broker.restart(clean=True)
    assert all(broker.log("t", n).log_end_offset == 3 for n in range(50))


@pytest.mark.parametrize("clean", [True, False])
def test_segments_can_be_preallocated(tmp_path, clean):
    broker = Broker(tmp_path, segment_bytes=5_000, preallocate=True)
    log = broker.log()
    for n in range(100):
        append(log, batch(b"%d" % n + b"x" * 100))
    before = read_all(log)
    sizes = [os.stat(segment.path(".log")).st_size for segment in log.segments]
    assert sizes == [*(segment.size for segment in log.segments[:-1]), 5_000]
    broker.restart(clean=clean)
    log = broker.log()
    assert os.stat(log.active.path(".log")).st_size == log.active.size
    log.advance_high_watermark(100)
    assert read_all(log) == before


def test_a_directory_that_is_there_already_is_opened(broker, log):
    append(log, batch(b"a"))
    broker.manager.close()
    os.rename(log.dir, f"{log.dir}.aside")
    broker.start()
    os.rename(f"{log.dir}.aside", log.dir.removesuffix("t-0") + "u-0")
    assert broker.manager.get("u", 0) is None
    assert broker.log("u").log_end_offset == 1


def test_offsets_too_far_for_an_index_are_found_without(tmp_path):
    broker = Broker(tmp_path, index_interval_bytes=0)
    log = broker.log()
    for base in (0, 1, 1 << 31, (1 << 31) + 1):
        record = Record(base, NOW_MS, b"k", b"v%d" % base)
        data = encode_batch([record])
        # As some old releases did: all in one segment.
        log.active.append(data, base, NOW_MS, NOW_MS, base)
    log.log_end_offset = (1 << 31) + 2
    log.advance_high_watermark(log.log_end_offset)
    assert len(log.active.offset_index) == 1
    for offset, expected in (
        (0, 0),
        (1, 1),
        (2, 1 << 31),
        (1 << 31, 1 << 31),
        ((1 << 31) + 1, (1 << 31) + 1),
    ):
        assert read_all(log, offset)[0].offset == expected


@pytest.mark.parametrize("max_bytes", [10, 900, 100_000])
def test_readers_that_keep_up_find_what_follows_after_any_change(log, max_bytes):
    values: list[bytes] = []  # by offset
    readers = [0, 0, 0]
    for step in range(120):
        for _ in range(step % 5):
            values.append(b"%d " % step + b"x" * (len(values) * 37 % 300))
            append(log, batch(values[-1]))
        at = readers[step % 3]
        records = read_all(log, at, max_bytes=max_bytes)
        assert [record.value for record in records] == values[at:]
        readers[step % 3] = len(values)
        if step % 13 == 12:
            log.truncate_to(len(values) - 2, now_ms=NOW_MS)
            del values[-2:]
            readers = [min(reader, len(values)) for reader in readers]
        if step % 17 == 16:
            log.roll()
    assert len(log.segments) > 5


@pytest.mark.parametrize("max_bytes", [10, 900])
def test_lagging_reader_reads_what_was_appended_since(log, max_bytes):
    values: list[bytes] = []  # by offset
    at = 0
    for step in range(200):
        values.append(b"%d " % step + b"x" * (step * 37 % 300))
        append(log, batch(values[-1]))
        if at < len(values):
            data = log.read(at, max_bytes=max_bytes, upper_offset=log.high_watermark).to_bytes()
            (first,) = read_records(data[: read_header(data).size])
            assert (first.offset, first.value) == (at, values[at])
        if step % 10 == 9:
            at = len(values) - 1
        if at and step % 10 == 4:
            log.truncate_to(at - 2, now_ms=NOW_MS)
            del values[at - 2 :]
        if step % 17 == 16:
            log.roll()
    assert len(log.segments) > 5


def test_control_records_without_an_end_are_no_producers_batches(tmp_path):
    """Later releases may have types of their own."""
    log = Broker(tmp_path).log()
    unknown = (0).to_bytes(2, "big") + (9).to_bytes(2, "big")
    for offset, control in enumerate((False, True)):
        raw = batch(
            b"v", key=unknown, producer_id=7, producer_epoch=3, base_sequence=4 + offset, control=control
        )
        rebase(raw, 0, offset, 0)
        log.append_as_follower(raw, now_ms=NOW_MS)
    producer = log.producers.get(7)
    assert (producer.last_sequence, producer.last_offset) == (4, 0)


def test_followers_segment_begins_with_the_first_fetched_offset(log):
    for start in (0, 6):
        fetched = b""
        for offset in (start, start + 3):
            raw = batch(b"a", b"b", b"x" * 900)
            rebase(raw, 0, offset, 0)
            fetched += raw
        log.append_as_follower(fetched, now_ms=NOW_MS)
        assert log.active.base_offset == start
