"""Compaction of whole logs."""

import os
from pathlib import Path

import pytest

from barnabas.log.format import names
from barnabas.records.batch import read_records
from barnabas.records.legacy import encode_message_set
from barnabas.records.legacy import read_records as read_legacy
from barnabas.records.record import Record
from barnabas.records.validate import Origin
from tests.support.cleaning import (
    COMPACTED,
    clean,
    cleaner,
    contents,
    dirty_log,
    headers,
    last_of_each_key,
    write,
)
from tests.support.logs import NOW_MS, Broker, append, batch, marker, read_all

DAY_MS = 86_400_000


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("restart", [None, True, False])
def test_only_the_last_record_of_each_key_stays(broker, codec, restart):
    log = broker.log()
    for n in range(200):
        write(log, (b"%d" % (n % 7), b"%d" % n), (b"%d" % (n % 3), b"%d" % -n), codec=codec)
    log.roll()
    before = contents(log)
    clean(broker)
    assert contents(log) == last_of_each_key(before)
    assert (log.log_start_offset, log.log_end_offset) == (0, 400)
    assert {header.codec for header in headers(log)} <= {codec, 0}
    if restart is not None:
        broker.restart(clean=restart)
        broker.log().advance_high_watermark(400)
        assert contents(broker.log()) == last_of_each_key(before)
    assert append(broker.log(), batch(b"next")).base_offset == 400


def test_what_has_been_cleaned_is_counted(broker):
    log = broker.log()
    for n in range(100):
        write(log, (b"%d" % (n % 5), b"x" * 50))
    log.roll()
    before = log.size_bytes
    work = cleaner(broker)
    assert work.totals.count == 0
    assert work.clean(NOW_MS)
    totals = work.totals
    assert totals.count == 1
    assert totals.bytes_read >= before
    assert totals.bytes_written == log.size_bytes
    assert totals.last_recopy_percent == 100 * totals.bytes_written // totals.bytes_read < 20
    assert not work.clean(NOW_MS)
    assert totals.count == 1


def test_readers_may_begin_at_any_offset_of_a_cleaned_log(broker):
    log = broker.log()
    for n in range(100):
        write(log, (b"%d" % (n % 30), b"x" * 50))
    clean(broker)
    remaining = contents(log)
    assert len(remaining) < 60
    for offset in range(100):
        assert [record.offset for record in read_all(log, offset, max_bytes=100)] == [
            pair[0] for pair in remaining if pair[0] >= offset
        ]


def test_the_active_segment_is_not_cleaned(broker):
    log = broker.log()
    for _ in range(30):
        write(log, (b"k", b"v"))
    active = log.active.base_offset
    clean(broker)
    assert [offset for offset, _, _ in contents(log)] == list(range(active - 1, 30))


def test_cleaning_goes_on_where_it_ended(broker):
    log = broker.log()
    for n in range(50):
        write(log, (b"%d" % (n % 5), b"v" * 20))
    clean(broker)
    clean_offset = log.clean_offset
    assert clean_offset == log.active.base_offset
    assert cleaner(broker).next_task(NOW_MS) is None
    for n in range(50):
        write(log, (b"%d" % (n % 4), b"w" * 20))
    before = contents(log)
    clean(broker)
    assert contents(log) == last_of_each_key(before, before=log.clean_offset)
    broker.restart(clean=True)
    assert broker.log().clean_offset == log.clean_offset > clean_offset


def test_shrunk_segments_are_joined_by_the_next_cleaning(broker):
    log = broker.log()
    for n in range(100):
        write(log, (b"%d" % (n % 5), b"v" * 20))
    log.roll()
    clean(broker)
    assert len([segment for segment in log.segments if not segment.size]) > 3
    write(log, (b"k", b"v"))
    log.roll()
    before = contents(log)
    clean(broker)
    assert len(log.segments) == 2
    assert contents(log) == before
    assert len(list(Path(log.dir).glob("*.log"))) == 2
    assert len(list(Path(log.dir).glob("*.snapshot"))) == 1


def test_a_map_that_is_full_ends_the_dirty_part(broker):
    log = broker.log()
    for n in range(300):
        write(log, (b"%d" % n, b"old"))
    for n in range(300):
        write(log, (b"%d" % n, b"new"))
    log.roll()
    clean(broker, dedupe_bytes=24 * 100)
    assert log.clean_offset == 90
    rounds = 1
    while cleaner(broker).next_task(NOW_MS) is not None:
        clean(broker, dedupe_bytes=24 * 100)
        rounds += 1
    assert rounds == 7
    assert contents(log) == [(300 + n, b"%d" % n, b"new") for n in range(300)]


def test_tombstones_stay_until_all_readers_could_see_them(broker):
    log = broker.log()
    write(log, (b"a", b"1"), (b"b", b"1"))
    write(log, (b"a", None))
    write(log, (b"other", b"1"))
    log.roll()
    clean(broker)
    assert contents(log) == [(1, b"b", b"1"), (2, b"a", None), (3, b"other", b"1")]
    horizons = [header.delete_horizon_ms for header in headers(log)]
    assert horizons == [None, NOW_MS + DAY_MS, None]
    assert [record.timestamp for record in read_all(log)] == [NOW_MS] * 3
    write(log, (b"c", b"1"))
    log.roll()
    clean(broker, NOW_MS + DAY_MS - 1)
    assert [key for _, key, _ in contents(log)] == [b"b", b"a", b"other", b"c"]
    write(log, (b"d", b"1"))
    log.roll()
    clean(broker, NOW_MS + DAY_MS)
    assert [key for _, key, _ in contents(log)] == [b"b", b"other", b"c", b"d"]


def test_the_last_batch_of_a_round_stays_even_if_empty(broker):
    log = broker.log()
    for _ in range(3):
        write(log, (b"k", b"v"))
    append(log, marker(commit=True, producer_id=1), origin=Origin.COORDINATOR)
    log.roll()
    log.producers.clear(log.log_end_offset)
    clean(broker)
    clean_end = log.log_end_offset
    broker.restart(clean=False)
    assert broker.log().log_end_offset == clean_end


def test_the_last_batch_of_a_producer_keeps_its_sequence(broker):
    log = broker.log()
    for n in range(20):
        write(log, (b"k", b"v%d" % n), producer_id=5, producer_epoch=1, base_sequence=n)
    for _ in range(20):
        write(log, (b"k", b"w"))
    log.roll()
    clean(broker)
    assert contents(log) == [(39, b"k", b"w")]
    kept = [header for header in headers(log) if header.producer_id == 5]
    assert [(header.base_offset, header.records_count, header.last_sequence) for header in kept] == [
        (19, 0, 19)
    ]
    for snapshot in Path(log.dir).glob("*.snapshot"):
        snapshot.unlink()
    broker.restart(clean=False)
    log = broker.log()
    again = write(log, (b"k", b"v19"), producer_id=5, producer_epoch=1, base_sequence=19)
    assert (again.duplicate, again.base_offset) == (True, 19)
    assert write(log, (b"k", b"x"), producer_id=5, producer_epoch=1, base_sequence=20).base_offset == 40


def test_aborted_records_go_and_their_marker_later(broker):
    log = broker.log()
    for n in range(5):
        write(
            log,
            (b"k%d" % n, b"aborted"),
            producer_id=1,
            producer_epoch=0,
            base_sequence=n,
            transactional=True,
        )
    append(log, marker(commit=False, producer_id=1), origin=Origin.COORDINATOR)
    for n in range(5, 10):
        write(log, (b"k%d" % n, b"ok"), producer_id=1, producer_epoch=0, base_sequence=n, transactional=True)
    append(log, marker(commit=True, producer_id=1), origin=Origin.COORDINATOR)
    write(log, (b"z", b"1"), producer_id=1, producer_epoch=0, base_sequence=10)
    log.roll()
    clean(broker)
    assert [(key, value) for _, key, value in contents(log) if value in (b"ok", b"aborted")] == [
        (b"k%d" % n, b"ok") for n in range(5, 10)
    ]
    remaining = [(header.base_offset, header.is_control, header.delete_horizon_ms) for header in headers(log)]
    assert remaining == [
        (5, True, None), *((n, False, None) for n in range(6, 11)), (11, True, None), (12, False, None),
    ]  # fmt: skip
    # The first round has still seen the aborted batches, so the index keeps the entry for those who read on.
    assert [entry.first_offset for entry in log.aborted_transactions(0, 12)] == [0]
    write(log, (b"y", b"1"))
    log.roll()
    clean(broker)
    remaining = [header for header in headers(log) if header.is_control]
    assert [header.delete_horizon_ms for header in remaining] == [NOW_MS + DAY_MS, None]
    assert log.aborted_transactions(0, 12) == []
    write(log, (b"x", b"1"))
    log.roll()
    clean(broker, NOW_MS + DAY_MS)
    assert [header.base_offset for header in headers(log) if header.is_control] == [11]


def test_committed_markers_stay_as_long_as_their_records(broker):
    log = broker.log()
    write(log, (b"k", b"1"), producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    append(log, marker(commit=True, producer_id=1), origin=Origin.COORDINATOR)
    write(log, (b"z", b"1"), producer_id=1, producer_epoch=0, base_sequence=1)
    log.roll()
    for day in range(3):
        clean(broker, NOW_MS + day * DAY_MS)
        assert [header.base_offset for header in headers(log) if header.is_control] == [1]
        write(log, (b"y", b"1"))
        log.roll()
    write(log, (b"k", b"2"))
    log.roll()
    clean(broker, NOW_MS)  # the record goes
    write(log, (b"y", b"2"))
    log.roll()
    clean(broker, NOW_MS)  # the marker gets its horizon
    write(log, (b"y", b"3"))
    log.roll()
    clean(broker, NOW_MS + DAY_MS)
    assert [header.base_offset for header in headers(log) if header.is_control] == []


def test_open_transactions_hold_up_the_cleaning(broker):
    log = broker.log()
    write(log, (b"k", b"1"))
    write(log, (b"k", b"2"))
    log.roll()
    write(log, (b"k", b"3"), producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    log.roll()
    write(log, (b"k", b"4"))
    log.roll()
    clean(broker)
    assert [value for _, _, value in contents(log)] == [b"2", b"3", b"4"]
    assert cleaner(broker).next_task(NOW_MS) is None


def test_young_records_are_left_alone(tmp_path):
    broker = Broker(tmp_path, min_compaction_lag_ms=1_000, **COMPACTED)
    log = broker.log()
    write(log, (b"k", b"1"), (b"k", b"2"))
    log.roll()
    assert cleaner(broker).next_task(NOW_MS + 999) is None
    clean(broker, NOW_MS + 1_000)
    assert [value for _, _, value in contents(log)] == [b"2"]


def test_old_records_are_cleaned_in_any_case(tmp_path):
    broker = Broker(
        tmp_path,
        max_compaction_lag_ms=5_000,
        min_cleanable_dirty_ratio=1.0,
        cleanup_policy=frozenset({"compact"}),
    )
    log = broker.log()
    write(log, (b"k", b"1"), (b"k", b"2"))
    log.roll()
    assert cleaner(broker).next_task(NOW_MS + 5_000) is None
    clean(broker, NOW_MS + 5_001)
    assert [value for _, _, value in contents(log)] == [b"2"]


def test_partly_dirty_segment_is_as_old_as_its_first_record(tmp_path):
    broker = Broker(
        tmp_path,
        max_compaction_lag_ms=5_000,
        min_cleanable_dirty_ratio=1.0,
        cleanup_policy=COMPACTED["cleanup_policy"],
    )
    log = broker.log()
    for value in (b"1", b"2", b"3"):
        write(log, (b"k", value))
    log.roll()
    log.delete_records_before(1)
    assert cleaner(broker).next_task(NOW_MS + 5_000) is None
    clean(broker, NOW_MS + 5_001)
    assert [value for _, _, value in contents(log)] == [b"3"]


def test_the_dirtiest_log_is_cleaned_first(broker):
    for name, share in (("a", 10), ("b", 2)):
        log = broker.log(name)
        for n in range(100):
            write(log, (b"%d" % (n % 50), b"v" * 30))
        log.roll()
        clean(broker)
        for _ in range(share):
            write(log, (b"k", b"v" * 100))
        log.roll()
    task = cleaner(broker).next_task(NOW_MS)
    assert task.partition_log is broker.log("a")


def test_logs_that_are_not_compacted_are_left_alone(tmp_path):
    broker = Broker(tmp_path, min_cleanable_dirty_ratio=0.0)
    write(broker.log(), (b"k", b"1"), (b"k", b"2"))
    broker.log().roll()
    assert not cleaner(broker).clean(NOW_MS)


def test_records_without_a_key_are_removed_and_counted(tmp_path, caplog):
    broker = Broker(tmp_path)
    log = broker.log()
    write(log, (None, b"1"), (b"k", b"2"), (None, b"3"))
    log.roll()
    broker.config = log.config = log.config.of(
        {"cleanup.policy": ["compact"], "min.cleanable.dirty.ratio": 0.0}
    )
    clean(broker)
    assert contents(log) == [(1, b"k", b"2")]
    assert "2 records without a key" in caplog.text


def test_compacted_and_deleted_logs_are_both(tmp_path):
    broker = Broker(
        tmp_path,
        cleanup_policy=frozenset({"compact", "delete"}),
        retention_ms=1_000,
        min_cleanable_dirty_ratio=0.0,
    )
    log = broker.log()
    write(log, (b"k", b"1"), (b"k", b"2"))
    log.roll()
    clean(broker)
    assert log.apply_retention(NOW_MS + 1_000) == 0
    assert log.apply_retention(NOW_MS + 1_001) == 1
    assert log.log_start_offset == 2


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1])
def test_old_formats_are_cleaned_and_kept(broker, magic, codec):
    log = broker.log()
    broker.manager.close()
    data = b""
    for n in range(10):
        pairs = [(b"a", b"%d" % n), (b"b%d" % n, b"x"), (b"gone", None)]
        records = [Record(3 * n + k, NOW_MS + n, *pair) for k, pair in enumerate(pairs)]
        data += encode_message_set(records, magic=magic, codec=codec)
    path = Path(log.dir) / names.file_name(0, ".log")
    path.write_bytes(data)
    for suffix in (".index", ".timeindex"):
        path.with_suffix(suffix).unlink()
    broker.start()
    log = broker.log()
    log.advance_high_watermark(30)
    log.roll()
    clean(broker)
    remaining = [
        (record.offset, record.key)
        for segment in log.segments
        for position, header in segment.headers()
        for record in read_legacy(segment.file.read(header.size, position))
    ]
    assert remaining == [*((3 * n + 1, b"b%d" % n) for n in range(9)), (27, b"a"), (28, b"b9"), (29, b"gone")]
    assert {header.magic for header in headers(log)} == {magic}
    assert log.log_end_offset == 30


def test_tombstones_of_old_formats_expire_with_their_segment(tmp_path):
    broker = Broker(tmp_path, segment_bytes=300, **COMPACTED)  # so that no two segments fit together
    log = broker.log()
    broker.manager.close()
    records = [Record(0, NOW_MS, b"gone", None), Record(1, NOW_MS, b"k", b"v" * 150)]
    path = Path(log.dir) / names.file_name(0, ".log")
    path.write_bytes(encode_message_set(records, magic=1))
    for suffix in (".index", ".timeindex"):
        path.with_suffix(suffix).unlink()
    os.utime(path, (NOW_MS / 1000, NOW_MS / 1000))
    broker.start()
    log = broker.log()
    log.advance_high_watermark(2)
    log.roll()
    clean(broker)
    offsets = [[0, 1]]
    for day in (0.9, 1.1, 5):
        write(log, (b"%d" % day, b"v" * 150))
        log.roll()
        modified = NOW_MS / 1000 + day * 86_400
        os.utime(log.segments[-2].path(".log"), (modified, modified))
        clean(broker)
        offsets.append([header.base_offset for _, header in log.segments[0].headers()])
    assert offsets == [[0, 1], [0, 1], [0, 1], [1]]


def test_the_age_of_files_survives(broker):
    log = broker.log()
    for n in range(30):
        write(log, (b"%d" % n, b"v" * 50))
    for segment in log.segments:
        os.utime(segment.path(".log"), (5_000_000, 5_000_000))
    clean(broker)
    assert os.stat(log.segments[0].path(".log")).st_mtime == 5_000_000


def test_throttling_sees_every_byte(broker):
    log = dirty_log(broker)
    seen = []
    size = sum(segment.size for segment in log.segments)
    clean(broker, throttle=seen.append)
    written = sum(segment.size for segment in log.segments)
    assert 0 < written < size
    assert sum(seen) == 2 * size + written  # read once for the map, once for the copy


def test_batches_larger_than_a_read_are_cleaned(tmp_path):
    broker = Broker(tmp_path, max_message_bytes=10 << 20, **COMPACTED)
    log = broker.log()
    for value in (b"1", b"2"):
        write(log, (b"big", value * (3 << 20)), (b"small%s" % value, b"x"))
    log.roll()
    clean(broker)
    assert [(offset, key) for offset, key, _ in contents(log)] == [
        (1, b"small1"),
        (2, b"big"),
        (3, b"small2"),
    ]
    assert read_records(log.read(2, max_bytes=1, upper_offset=4).to_bytes())[0].value == b"2" * (3 << 20)


def test_damaged_logs_are_passed_over_until_they_are_closed(broker):
    for name in ("a", "b"):
        log = broker.log(name)
        write(log, (b"k", b"1"), (b"k", b"2"))
        log.roll()
    work = cleaner(broker)
    work.uncleanable.update(broker.manager)
    assert work.next_task(NOW_MS) is None
    assert work.uncleanable == {broker.log("a"), broker.log("b")}
    gone = broker.log("a")
    gone.close()
    assert work.next_task(NOW_MS) is None
    assert work.uncleanable == {broker.log("b")}
