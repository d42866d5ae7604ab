"""Message sets of the formats v0 and v1."""

import struct
import zlib

import pytest

from barnabas.records import batch, legacy
from barnabas.records.batch import TimestampType
from barnabas.records.compression import Codec, compress
from barnabas.records.errors import Code, CorruptRecordsError, DecompressedTooLargeError, InvalidRecordsError
from barnabas.records.record import Record

CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
RECORDS = [Record(1000, 50, b"k", b"v"), Record(1001, 70, None, b"x" * 200), Record(1005, 60, b"t", None)]


def message(offset, magic, attributes, key, value, timestamp=5):
    """Write a message by hand."""
    body = bytes((magic, attributes)) + (struct.pack(">q", timestamp) if magic else b"")
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def read_all(raw, **kwargs):
    return [
        record for pos, _ in batch.iter_batches(raw) for record in legacy.read_records(raw, pos, **kwargs)
    ]


def test_messages_written_by_hand():
    raw = message(7, 0, 0, b"k", b"v") + message(8, 1, 0, None, None, 99)
    assert read_all(raw) == [Record(7, -1, b"k", b"v"), Record(8, 99, None, None)]
    assert legacy.encode_message(Record(7, 5, b"k", b"v"), magic=0) == message(7, 0, 0, b"k", b"v")
    assert legacy.encode_message(Record(8, 99, None, None), magic=1) == message(8, 1, 0, None, None, 99)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_round_trip_keeps_offsets_and_gaps(magic, codec):
    raw = legacy.encode_message_set(RECORDS, magic=magic, codec=codec)
    expected = [Record(r.offset, r.timestamp if magic else -1, r.key, r.value) for r in RECORDS]
    assert read_all(raw) == expected
    assert legacy.base_offset(raw) == 1000
    headers = [header for _, header in batch.iter_batches(raw)]
    assert len(headers) == (1 if codec else 3)
    assert headers[-1].last_offset == 1005
    assert headers[-1].records_count == (batch.UNKNOWN_COUNT if codec else 1)
    assert max(header.max_timestamp for header in headers) == (70 if magic else -1)


@pytest.mark.parametrize("codec", CODECS)
def test_log_append_time(codec):
    raw = legacy.encode_message_set(
        RECORDS, magic=1, codec=codec, timestamp_type=TimestampType.LOG_APPEND_TIME, append_timestamp=500
    )
    assert {record.timestamp for record in read_all(raw)} == {500}
    for _, header in batch.iter_batches(raw):
        assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
        assert header.max_timestamp == 500


def test_wrapper_of_type_log_append_time_outranks_its_messages():
    inner = message(0, 1, 0, b"a", b"b", 1) + message(1, 1, 0, b"c", b"d", 2)
    raw = message(11, 1, 0x08 | Codec.GZIP, None, compress(Codec.GZIP, inner), 777)
    assert read_all(raw) == [Record(10, 777, b"a", b"b"), Record(11, 777, b"c", b"d")]


def test_wrapper_of_v0_has_absolute_offsets():
    inner = message(10, 0, 0, b"a", b"b") + message(15, 0, 0, b"c", b"d")
    raw = message(15, 0, Codec.GZIP, None, compress(Codec.GZIP, inner))
    assert [record.offset for record in read_all(raw)] == [10, 15]


def test_wrapper_of_v1_with_offset_zero_means_what_is_inside():
    inner = message(0, 1, 0, b"a", b"b") + message(1, 1, 0, b"c", b"d")
    raw = message(0, 1, Codec.GZIP, None, compress(Codec.GZIP, inner))
    assert [record.offset for record in read_all(raw)] == [0, 1]


def test_wrapper_of_v1_with_too_small_an_offset():
    inner = message(5, 1, 0, b"a", b"b")
    with pytest.raises(InvalidRecordsError, match="offset 3"):
        read_all(message(3, 1, Codec.GZIP, None, compress(Codec.GZIP, inner)))


@pytest.mark.parametrize(
    "inner",
    [
        b"",
        message(0, 1, Codec.GZIP, None, compress(Codec.GZIP, message(0, 1, 0, b"a", b"b"))),
        message(0, 1, 0, b"a", b"b") + message(1, 1, Codec.SNAPPY, None, b"not even snappy"),
    ],
    ids=["empty", "nested", "nested second"],
)
def test_wrappers_that_hold_nothing_or_wrappers(inner):
    with pytest.raises(InvalidRecordsError) as caught:
        read_all(message(0, 1, Codec.GZIP, None, compress(Codec.GZIP, inner)))
    assert caught.value.code == Code.INVALID_RECORD


def test_wrapper_that_holds_null():
    with pytest.raises(InvalidRecordsError, match="null"):
        read_all(message(0, 1, Codec.GZIP, None, None))


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_is_unknown_here(magic):
    with pytest.raises(InvalidRecordsError, match="zstd"):
        read_all(message(0, magic, Codec.ZSTD, None, b"(\xb5/\xfd"))


def test_wrong_checksums_outside_and_inside():
    good = message(0, 1, 0, b"a", b"b")
    bad = bytearray(good)
    bad[-1] ^= 1
    for raw in (bytes(bad), message(0, 1, Codec.GZIP, None, compress(Codec.GZIP, bytes(bad)))):
        with pytest.raises(CorruptRecordsError, match="checksum"):
            read_all(raw)
    assert not legacy.read_message(bad).is_crc_valid


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_any_flipped_byte_is_seen(magic, codec):
    raw = legacy.encode_message_set(RECORDS, magic=magic, codec=codec)
    sizes = [(pos, header.size) for pos, header in batch.iter_batches(raw)]
    for pos, size in sizes:
        for at in range(pos + 8, pos + size):
            damaged = bytearray(raw)
            damaged[at] ^= 0x21
            with pytest.raises((CorruptRecordsError, InvalidRecordsError)):
                legacy.read_records(damaged, pos)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_cuts_anywhere_are_refused(magic, codec):
    raw = legacy.encode_message_set(RECORDS[:1], magic=magic, codec=codec)
    for cut in range(len(raw)):
        assert list(batch.iter_batches(raw[:cut])) == []
        with pytest.raises(CorruptRecordsError):
            legacy.read_records(raw[:cut])


@pytest.mark.parametrize("cut", [1, 13, 20, 30])
def test_a_wrapper_whose_last_message_is_cut(cut):
    inner = message(0, 1, 0, b"a", b"b") + message(1, 1, 0, b"c", b"d")[:-cut]
    with pytest.raises(CorruptRecordsError):
        read_all(message(1, 1, Codec.GZIP, None, compress(Codec.GZIP, inner)))


@pytest.mark.parametrize(
    "body",
    [
        b"\x01\x00" + bytes(8) + struct.pack(">i", 100) + b"k" * 10,
        b"\x01\x00" + bytes(8) + struct.pack(">ii", -1, 100) + b"v" * 10,
        b"\x01\x00" + bytes(8) + struct.pack(">ii", -1, 2) + b"v" * 10,
        b"\x01\x00" + bytes(8) + struct.pack(">i", 2**31 - 1) + b"k" * 10,
        b"\x01\x00" + bytes(8) + struct.pack(">i", 8) + b"k" * 10,
        b"\x02\x00" + bytes(8) + struct.pack(">ii", -1, -1),
        b"\x01\x00" + bytes(8) + struct.pack(">i", -1),
    ],
    ids=[
        "key too long",
        "value too long",
        "left over",
        "key huge",
        "no room for value",
        "magic 2",
        "no value",
    ],
)
def test_fields_that_do_not_fill_the_message(body):
    raw = struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body
    with pytest.raises(CorruptRecordsError):
        legacy.read_message(raw)


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 13, 2**31 - 1])
def test_lengths_that_cannot_be(length):
    raw = bytearray(message(0, 1, 0, b"a", b"b"))
    raw[8:12] = struct.pack(">i", length)
    with pytest.raises(CorruptRecordsError):
        legacy.read_message(raw)


def test_header_view_masks_what_old_formats_did_not_have():
    header = batch.read_any_header(message(3, 0, 0xF8, b"a", b"b"))
    assert header.timestamp_type is TimestampType.NO_TIMESTAMP
    assert (header.is_control, header.is_transactional, header.has_delete_horizon) == (False, False, False)
    header = batch.read_any_header(message(3, 1, 0xF8, b"a", b"b"))
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (header.is_control, header.is_transactional, header.has_delete_horizon) == (False, False, False)
    assert (header.base_offset, header.last_offset, header.next_offset) == (3, 3, 4)
    assert (header.producer_id, header.last_sequence, header.leader_epoch) == (-1, -1, -1)


def test_a_bomb_in_a_wrapper_is_bounded():
    inner = message(0, 1, 0, None, bytes(1 << 20))
    raw = message(0, 1, Codec.GZIP, None, compress(Codec.GZIP, inner))
    with pytest.raises(DecompressedTooLargeError):
        read_all(raw, decompressed_bytes_max=1 << 20)
    assert len(read_all(raw, decompressed_bytes_max=(1 << 20) + 100)) == 1


def test_writing_a_wrapper_is_bounded():
    records = (Record(at, 0, None, b"") for at in range(10**9))
    with pytest.raises(DecompressedTooLargeError):
        legacy.encode_message_set(records, magic=1, codec=Codec.GZIP, decompressed_bytes_max=10_000)


def test_no_records_make_no_messages():
    assert legacy.encode_message_set([], magic=1, codec=Codec.GZIP) == b""
    assert legacy.encode_message_set([], magic=0) == b""
