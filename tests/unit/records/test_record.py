"""The body of a batch: records one by one, and the scan that makes nothing of them."""

import pytest

from barnabas.records.errors import InvalidRecordsError
from barnabas.records.record import Record, encode_body, iter_body
from barnabas.records.scan import BodyScan, scan_body
from barnabas.records.varint import encode_varint


def record(*fields):
    """Join fields, ints as varints, behind their length and attributes."""
    body = b"\x00" + b"".join(encode_varint(field) if isinstance(field, int) else field for field in fields)
    return encode_varint(len(body)) + body


GOOD = record(0, 0, 1, b"k", 1, b"v", 0)

MALFORMED = {
    "length is negative": b"\x01" + GOOD[1:],
    "length beyond the batch": b"\x7e" + GOOD[1:],
    "length too short": b"\x0e" + GOOD[1:],
    "length too long by one": encode_varint(10) + GOOD[1:] + b"\x00",
    "length of nothing": b"\x00" * 7,
    "key beyond the record": record(0, 0, 5, b"k", 1, b"v", 0),
    "value beyond the record": record(0, 0, 1, b"k", 100, b"v", 0),
    "no header count": record(0, 0, 1, b"k", 1, b"v"),
    "negative header count": record(0, 0, 1, b"k", 1, b"v", -1),
    "more headers than bytes": record(0, 0, 1, b"k", 1, b"v", 1_000_000),
    "null header key": record(0, 0, 1, b"k", 1, b"v", 1, -1, 1, b"x"),
    "header key beyond the record": record(0, 0, 1, b"k", 1, b"v", 1, 9, b"x", -1),
    "header value beyond the record": record(0, 0, 1, b"k", 1, b"v", 1, 1, b"x", 9),
    "bytes after the headers": record(0, 0, 1, b"k", 1, b"v", 1, 1, b"x", 1, b"y", b"zz"),
    "varint too long": record(b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00", 0, 1, b"k", 1, b"v", 0),
    "offset delta beyond int32": record(0, 2**31, 1, b"k", 1, b"v", 0),
    "key size beyond int32": record(0, 0, 2**40, b"k", 1, b"v", 0),
    "timestamp beyond int64": record(2**63 - 1, 0, 1, b"k", 1, b"v", 0),
}


@pytest.mark.parametrize("place", ["alone", "first", "last"])
@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_records_are_refused_by_both_readers(name, place):
    body = (
        {"alone": b"", "first": b"", "last": GOOD}[place] + MALFORMED[name] + {"first": GOOD}.get(place, b"")
    )
    count = 1 if place == "alone" else 2
    with pytest.raises(InvalidRecordsError):
        list(iter_body(body, count, 0, 1_000))
    with pytest.raises(InvalidRecordsError):
        scan_body(body, count, 1_000)


def test_every_cut_is_refused():
    body = GOOD + record(1, 1, -1, 2, b"vv", 1, 1, b"h", -1)
    for cut in range(len(body)):
        with pytest.raises(InvalidRecordsError):
            list(iter_body(body[:cut], 2, 0, 0))
        with pytest.raises(InvalidRecordsError):
            scan_body(body[:cut], 2, 0)


def test_the_error_names_the_record():
    with pytest.raises(InvalidRecordsError, match="record 1 of 2"):
        list(iter_body(GOOD + MALFORMED["negative header count"], 2, 0, 0))
    with pytest.raises(InvalidRecordsError, match="record 1 of 2"):
        scan_body(GOOD + MALFORMED["negative header count"], 2, 0)


def test_negative_sizes_are_null_as_for_kafka():
    body = record(0, 0, -1, -7, 1, 1, b"h", -5)
    assert list(iter_body(body, 1, 9, 8)) == [Record(9, 8, None, None, [("h", None)])]
    assert scan_body(body, 1, 8) == BodyScan(8, 8, 1, offsets_consecutive=True)


def test_padded_varints_are_read_as_kafka_does():
    body = record(b"\x80\x80\x00", b"\x80\x00", b"\x82\x80\x00", b"k", b"\x82\x00", b"v", b"\x80\x00")
    assert list(iter_body(body, 1, 0, 5)) == [Record(0, 5, b"k", b"v")]
    assert scan_body(body, 1, 5) == BodyScan(5, 5, 0, offsets_consecutive=True)


def test_big_fields_and_deltas():
    records = [
        Record(5, 10, b"k" * 70_000, b"v" * 3_000_000, [("h" * 9_000, b"x" * 20_000), ("", None)]),
        Record(2**31 + 4, 10 + 2**40, b"", None),
        Record(2**31 - 5, -(2**40), None, b""),
    ]
    body = bytes(encode_body(records, 5, 10))
    assert list(iter_body(body, 3, 5, 10)) == records
    assert scan_body(body, 3, 10) == BodyScan(-(2**40), 10 + 2**40, 1, offsets_consecutive=False)


def test_header_keys_that_are_no_text_survive():
    body = record(0, 0, -1, -1, 1, 2, b"\xff\xc3", -1)
    records = list(iter_body(body, 1, 0, 0))
    assert encode_body(records, 0, 0) == body


def test_append_timestamp_replaces_all():
    records = list(iter_body(GOOD + record(7, 1, -1, -1, 0), 2, 0, 100, 555))
    assert [record.timestamp for record in records] == [555, 555]


def test_offsets_out_of_reach_cannot_be_written():
    with pytest.raises(OverflowError):
        encode_body([Record(4, 0, None, None)], 5, 0)
    with pytest.raises(OverflowError):
        encode_body([Record(5 + 2**31, 0, None, None)], 5, 0)


@pytest.mark.parametrize("key", [None, b"", b"key", b"k" * 100])
@pytest.mark.parametrize("size", [0, 1, 50, 60, 100, 5_000])
@pytest.mark.parametrize("timestamp_step", [0, 1, 7, 200])
def test_scan_of_records_alike(key, size, timestamp_step):
    """Runs end where a delta grows by a byte: at offset 64, at 64 and 8192 ms, and at 8192 offsets."""
    count = 300
    records = [Record(at, 1_000 + at * timestamp_step, key, b"v" * size) for at in range(count)]
    body = bytes(encode_body(records, 0, 1_000))
    scan = scan_body(body, count, 1_000)
    assert scan == BodyScan(1_000, 1_000 + (count - 1) * timestamp_step, count if key is None else 0, True)
    with pytest.raises(InvalidRecordsError):
        scan_body(body, count + 1, 1_000)
    with pytest.raises(InvalidRecordsError):
        scan_body(body, count - 1, 1_000)


@pytest.mark.parametrize("count", [9_000, 8_192, 8_193, 16_385, 30_000])
def test_scan_of_very_many_records_alike(count):
    """The third byte of an offset delta comes at 8192 and grows every 8192 offsets."""
    body = bytes(encode_body([Record(at, at // 100, b"k", b"vvv") for at in range(count)], 0, 0))
    assert scan_body(body, count, 0) == BodyScan(0, (count - 1) // 100, 0, True)


@pytest.mark.parametrize(
    ("odd", "shift"), [(8_191, -1), (8_192, 1), (9_000, 64), (16_383, 1), (16_384, 8_192), (20_000, -1)]
)
def test_scan_finds_an_odd_offset_among_very_many(odd, shift):
    offsets = [at + shift if at == odd else at for at in range(20_001)]
    body = bytes(encode_body([Record(offset, 0, b"k", b"vvv") for offset in offsets], 0, 0))
    assert scan_body(body, len(offsets), 0) == BodyScan(0, 0, 0, False)


def test_scan_of_more_records_than_three_bytes_can_count():
    offsets = [encode_varint(at) for at in range(2**20 + 100)]
    body = b"".join(bytes((2 * (5 + len(offset)), 0, 0)) + offset + b"\x01\x01\x00" for offset in offsets)
    assert scan_body(body, len(offsets), 0) == BodyScan(0, 0, len(offsets), True)


def test_scan_of_timestamps_in_many_runs():
    stamps = [at % 63 for at in range(5_000)]
    body = bytes(encode_body([Record(at, stamp, b"k", b"v") for at, stamp in enumerate(stamps)], 0, 0))
    assert scan_body(body, len(stamps), 0) == BodyScan(0, 62, 0, True)


def test_scan_finds_one_odd_record_in_a_run():
    records = [Record(at, 1_000, b"key", b"value") for at in range(60)]
    good = bytes(encode_body(records, 0, 1_000))
    size = len(good) // 60
    for column in range(size):
        for index in (0, 1, 30, 59):
            damaged = bytearray(good)
            damaged[index * size + column] ^= 0x81
            assert outcome(scan_body, bytes(damaged), 60) == outcome(summarise, bytes(damaged), 60), (
                column,
                index,
            )


def summarise(body, count, base_timestamp):
    """Say with the decoder what the scan must say."""
    records = list(iter_body(body, count, 0, base_timestamp))
    timestamps = [record.timestamp for record in records]
    nulls = sum(record.key is None for record in records)
    consecutive = [record.offset for record in records] == list(range(count))
    return BodyScan(min(timestamps), max(timestamps), nulls, consecutive)


def outcome(reader, body, count):
    try:
        return reader(body, count, 1_000)
    except InvalidRecordsError:
        return "refused"
