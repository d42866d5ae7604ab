"""Conversion between message formats."""

import pytest

from barnabas.records import batch, building, control, convert, legacy
from barnabas.records.batch import TimestampType
from barnabas.records.compression import Codec
from barnabas.records.errors import CorruptRecordsError, InvalidRecordsError, UnsupportedCompressionError
from barnabas.records.record import Record
from tests.support.conversion import up_convert
from tests.support.whole_steps import down_convert

OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
RECORDS = [
    Record(20, 100, b"a", b"1", [("h", b"x")]),
    Record(21, 90, None, b"2"),
    Record(25, 110, b"c", None),
]
BIG = 1 << 20


def plain(records, magic):
    return [Record(r.offset, r.timestamp if magic else -1, r.key, r.value) for r in records]


def read_all(raw):
    records = []
    for pos, header in batch.iter_batches(raw):
        assert batch.check_crc(raw, pos, header)
        records += (batch if header.magic == 2 else legacy).read_records(raw, pos)
    return records


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_down(magic, codec):
    raw = building.encode_batch(RECORDS, base_offset=18, last_offset=30, codec=codec)
    converted = down_convert(raw, magic, bytes_max=BIG)
    assert read_all(converted) == plain(RECORDS, magic)
    headers = [header for _, header in batch.iter_batches(converted)]
    assert {header.magic for header in headers} == {magic}
    assert {header.codec for header in headers} == {codec}
    assert len(headers) == (1 if codec else 3)


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_down_from_v1_to_v0(codec):
    raw = legacy.encode_message_set(RECORDS, magic=1, codec=codec)
    assert read_all(down_convert(raw, 0, bytes_max=BIG)) == plain(RECORDS, 0)


@pytest.mark.parametrize("magic", [0, 1])
def test_what_is_old_enough_stays_as_it_is(magic):
    raw = legacy.encode_message_set(RECORDS, magic=0, codec=Codec.LZ4) + legacy.encode_message_set(
        RECORDS, magic=0
    )
    assert down_convert(raw, magic, bytes_max=BIG) == raw


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_down_keeps_append_time(codec):
    raw = building.encode_batch(
        RECORDS, codec=codec, timestamp_type=TimestampType.LOG_APPEND_TIME, max_timestamp=5_000
    )
    converted = down_convert(raw, 1, bytes_max=BIG)
    assert [record.timestamp for record in read_all(converted)] == [5_000] * 3
    assert batch.read_any_header(converted).timestamp_type is TimestampType.LOG_APPEND_TIME


def test_records_before_the_fetch_offset_drop_if_uncompressed():
    plain_batch, packed = building.encode_batch(RECORDS), building.encode_batch(RECORDS, codec=Codec.GZIP)
    assert [r.offset for r in read_all(down_convert(plain_batch, 1, bytes_max=BIG, fetch_offset=21))] == [
        21,
        25,
    ]
    assert [r.offset for r in read_all(down_convert(packed, 1, bytes_max=BIG, fetch_offset=21))] == [
        20,
        21,
        25,
    ]
    assert down_convert(plain_batch, 1, bytes_max=BIG, fetch_offset=26) == b""


def test_control_batches_are_left_out():
    marker = control.encode_end_marker(
        commit=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=5, base_offset=26
    )
    data = building.encode_batch(RECORDS)
    assert down_convert(marker, 1, bytes_max=BIG) == b""
    assert len(read_all(down_convert(marker + data + marker, 1, bytes_max=BIG))) == 3


def test_empty_batches_vanish():
    raw = building.encode_batch([], base_offset=0, last_offset=5) + building.encode_batch(RECORDS)
    assert len(read_all(down_convert(raw, 0, bytes_max=BIG))) == 3


def test_zstd_is_refused_unless_something_came_before():
    zstd = building.encode_batch(RECORDS, codec=Codec.ZSTD)
    with pytest.raises(UnsupportedCompressionError):
        down_convert(zstd, 1, bytes_max=BIG)
    data = building.encode_batch(RECORDS)
    assert len(read_all(down_convert(data + zstd, 1, bytes_max=BIG))) == 3


def test_corrupt_batches_are_not_laundered():
    raw = bytearray(building.encode_batch(RECORDS))
    raw[-2] ^= 1
    with pytest.raises(CorruptRecordsError):
        down_convert(raw, 1, bytes_max=BIG)
    good = building.encode_batch(RECORDS)
    assert len(read_all(down_convert(good + raw, 1, bytes_max=BIG))) == 3


def test_size_is_limited_after_the_first_batch():
    raw = building.encode_batch(RECORDS, codec=Codec.GZIP)
    first = down_convert(raw, 1, bytes_max=0)
    assert len(read_all(first)) == 3
    assert down_convert(raw * 3, 1, bytes_max=2 * len(first)) == first * 2
    assert down_convert(raw * 3, 1, bytes_max=2 * len(first) - 1) == first


def test_down_conversion_ends_where_it_has_enough():
    raw = building.encode_batch(RECORDS)
    converted = down_convert(raw + raw + b"\0" * 40, 1, bytes_max=1)  # the damage is never met
    assert len(read_all(converted)) == 3


def test_partial_batch_at_the_end_is_ignored():
    raw = building.encode_batch(RECORDS)
    assert len(read_all(down_convert(raw + raw[:-1], 1, bytes_max=BIG))) == 3


@pytest.mark.parametrize("target", list(Codec))
@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_up(magic, codec, target):
    raw = legacy.encode_message_set(RECORDS, magic=magic, codec=codec)
    converted = up_convert(raw, convert.new_header(500, codec=target, leader_epoch=3))
    header = batch.read_header(converted)
    assert batch.check_crc(converted, 0, header)
    assert (header.codec, header.leader_epoch, header.size) == (target, 3, len(converted))
    assert (header.base_offset, header.last_offset, header.records_count) == (500, 502, 3)
    assert header.max_timestamp == (110 if magic else -1)
    expected = plain(RECORDS, magic)
    for offset, record in enumerate(expected, 500):
        record.offset = offset
    assert batch.read_records(converted) == expected


def test_up_with_append_time():
    raw = legacy.encode_message_set(RECORDS, magic=0)
    header = convert.new_header(0, timestamp_type=TimestampType.LOG_APPEND_TIME, append_timestamp=9_000)
    converted = up_convert(raw, header)
    assert batch.read_header(converted) == header
    assert {record.timestamp for record in batch.read_records(converted)} == {9_000}


def test_nothing_makes_no_batch():
    with pytest.raises(InvalidRecordsError):
        up_convert(b"", convert.new_header(0))
