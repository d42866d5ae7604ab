"""Record batches of magic 2: headers, iteration, checksums, patches in place, records."""

import pytest

from barnabas.records import batch as b
from barnabas.records import building, legacy
from barnabas.records.any_magic import iter_any_records
from barnabas.records.errors import CorruptRecordsError, InvalidRecordsError
from barnabas.records.record import Record

RECORDS = [
    Record(0, 1_000, b"k", b"v", [("trace", b"1"), ("none", None)]),
    Record(1, 1_005, None, b"x" * 300),
    Record(2, 990, b"tombstone", None),
]


def test_header_tells_what_was_encoded():
    raw = building.encode_batch(
        RECORDS,
        base_offset=0,
        producer_id=7,
        producer_epoch=2,
        base_sequence=5,
        transactional=True,
        leader_epoch=9,
    )
    header = b.read_header(raw)
    assert header.size == len(raw)
    assert (header.base_offset, header.last_offset, header.next_offset) == (0, 2, 3)
    assert (header.base_timestamp, header.max_timestamp) == (1_000, 1_005)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (
        7,
        2,
        5,
        7,
    )
    assert header.leader_epoch == 9
    assert header.is_transactional
    assert not header.is_control
    assert header.has_producer_id
    assert not header.has_delete_horizon
    assert header.timestamp_type is b.TimestampType.CREATE_TIME
    assert header.records_count == 3
    assert b.check_crc(raw, 0, header)


def test_records_survive_a_round_trip():
    assert b.read_records(building.encode_batch(RECORDS)) == RECORDS


def test_sequence_wraps_after_its_maximum():
    raw = building.encode_batch(RECORDS, producer_id=1, producer_epoch=0, base_sequence=b.SEQUENCE_MAX - 1)
    assert b.read_header(raw).last_sequence == 0


def test_log_append_time_replaces_timestamps_and_checksum():
    raw = bytearray(building.encode_batch(RECORDS))
    b.set_max_timestamp(raw, 0, b.TimestampType.LOG_APPEND_TIME, 5_000)
    header = b.read_header(raw)
    assert b.check_crc(raw, 0, header)
    assert header.timestamp_type is b.TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in b.read_records(raw)] == [5_000] * 3


def test_unchanged_max_timestamp_leaves_every_byte():
    raw = bytearray(building.encode_batch(RECORDS))
    before = bytes(raw)
    b.set_max_timestamp(raw, 0, b.TimestampType.CREATE_TIME, 1_005)
    assert raw == before


def test_delete_horizon_is_the_base_timestamp():
    raw = building.encode_batch(RECORDS, delete_horizon_ms=77)
    header = b.read_header(raw)
    assert header.has_delete_horizon
    assert header.delete_horizon_ms == 77
    assert b.read_records(raw) == RECORDS


def test_compacted_batch_keeps_its_offsets():
    raw = building.encode_batch([RECORDS[1]], base_offset=0, last_offset=9)
    header = b.read_header(raw)
    assert (header.base_offset, header.last_offset, header.records_count) == (0, 9, 1)
    assert b.read_records(raw)[0].offset == 1


def test_empty_batch_keeps_producer_state():
    raw = building.encode_batch(
        [], base_offset=4, last_offset=6, producer_id=3, producer_epoch=0, base_sequence=10
    )
    header = b.read_header(raw)
    assert (header.records_count, header.last_offset, header.last_sequence) == (0, 6, 12)
    assert b.check_crc(raw, 0, header)
    assert b.read_records(raw) == []
    with pytest.raises(InvalidRecordsError):
        building.encode_batch([])


def test_iteration_stops_before_a_partial_batch():
    first = building.encode_batch(RECORDS)
    two = building.encode_batch(RECORDS[:1])
    for cut in range(len(two)):
        buf = first + two[:cut]
        assert [pos for pos, _ in b.iter_batches(buf)] == [0]
        assert b.whole_size(buf) == len(first)
    assert [pos for pos, _ in b.iter_batches(first + two)] == [0, len(first)]
    assert b.whole_size(first + two) == len(first + two)


@pytest.mark.parametrize("length", [-1, 0, 13, -(2**31)])
def test_impossible_length_is_corrupt(length):
    raw = bytearray(building.encode_batch(RECORDS))
    raw[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptRecordsError, match="less than"):
        list(b.iter_batches(raw))
    with pytest.raises(CorruptRecordsError, match="less than"):
        b.read_header(raw)


@pytest.mark.parametrize("magic", [3, 127, 128, 255])
def test_unknown_magic_is_corrupt(magic):
    raw = bytearray(building.encode_batch(RECORDS))
    raw[16] = magic
    with pytest.raises(CorruptRecordsError, match="magic"):
        list(b.iter_batches(raw))
    with pytest.raises(CorruptRecordsError, match="magic"):
        list(b.iter_batches(raw[:40]))
    with pytest.raises(CorruptRecordsError, match="magic"):
        b.read_any_header(raw)


def test_any_flipped_byte_under_the_checksum_is_seen():
    raw = building.encode_batch(RECORDS)
    header = b.read_header(raw)
    for at in range(b.CRC_OFFSET, len(raw)):
        damaged = bytearray(raw)
        damaged[at] ^= 0x41
        assert not b.check_crc(damaged, 0, b.read_header(damaged) if at != b.MAGIC_OFFSET else header), at


def test_batch_that_is_not_whole_has_no_valid_checksum():
    raw = building.encode_batch(RECORDS)
    assert not b.check_crc(raw[:-1], 0, b.read_header(raw))
    with pytest.raises(CorruptRecordsError, match="cut short"):
        b.read_records(raw[:-1])


@pytest.mark.parametrize("count", [0, 1, 2, 4, 1_000_000, -1])
def test_a_lie_about_the_count_is_invalid(count):
    raw = bytearray(building.encode_batch(RECORDS))
    raw[b.RECORDS_COUNT_OFFSET : b.HEADER_SIZE] = count.to_bytes(4, "big", signed=True)
    with pytest.raises(InvalidRecordsError):
        b.read_records(raw)


@pytest.mark.parametrize("codec", range(5))
def test_cleaned_batch_keeps_all_but_the_removed_records(codec):
    raw = building.encode_batch(
        RECORDS,
        codec=codec,
        producer_id=7,
        producer_epoch=2,
        base_sequence=5,
        transactional=True,
        leader_epoch=4,
    )
    header = b.read_header(raw)
    cleaned = building.retain_records(header, RECORDS[2:], delete_horizon_ms=9_999)
    after = b.read_header(cleaned)
    assert b.check_crc(cleaned, 0, after)
    assert b.read_records(cleaned) == RECORDS[2:]
    assert (after.base_offset, after.last_offset, after.last_sequence) == (0, 2, header.last_sequence)
    assert (after.codec, after.is_transactional, after.leader_epoch) == (codec, True, 4)
    assert (after.max_timestamp, after.delete_horizon_ms, after.records_count) == (990, 9_999, 1)
    again = b.read_header(building.retain_records(after, RECORDS[2:]))
    assert (again.delete_horizon_ms, again.base_timestamp) == (None, 990)


def test_batch_that_was_cleaned_away_keeps_offsets_and_sequence():
    raw = building.encode_batch(RECORDS, codec=1, producer_id=7, producer_epoch=2, base_sequence=5)
    header = b.read_header(raw)
    after = b.read_header(building.retain_records(header, []))
    assert (after.records_count, after.last_offset, after.last_sequence, after.codec) == (0, 2, 7, 0)
    assert (after.max_timestamp, after.size) == (1_005, b.HEADER_SIZE)


def test_cleaned_batch_of_log_append_time_keeps_its_timestamp():
    raw = building.encode_batch(RECORDS, timestamp_type=b.TimestampType.LOG_APPEND_TIME, max_timestamp=5_000)
    cleaned = building.retain_records(b.read_header(raw), RECORDS[:1])
    assert b.read_records(cleaned)[0].timestamp == 5_000


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_records_of_any_magic(magic):
    plain = [Record(r.offset, r.timestamp if magic else -1, r.key, r.value) for r in RECORDS]
    if magic == 2:
        raw = building.encode_batch(plain, codec=1)
    else:
        raw = legacy.encode_message_set(plain, magic=magic, codec=1)
    assert list(iter_any_records(raw)) == plain
    for cut in (0, 10, 17, 30):
        with pytest.raises(CorruptRecordsError):
            list(iter_any_records(raw[:cut]))
