"""Each number of a record at each length of its encoding, read by all three readers: decoder, scan and cursor."""

import gzip
import struct

import pytest

from barnabas.records import batch, building, convert
from barnabas.records.at_once import validate_at_once
from barnabas.records.compression import SMALL_BYTES, SMALL_COMPRESSED_BYTES, Codec
from barnabas.records.cursor import RecordCursor
from barnabas.records.errors import Code, InvalidRecordsError
from barnabas.records.legacy import encode_message_set
from barnabas.records.record import Record, encode_body, iter_body
from barnabas.records.rules import AppendRules
from barnabas.records.scan import BodyScan, scan_body
from barnabas.records.steps import RECORDS_PER_STEP, run
from barnabas.records.validate import (
    MISNUMBERED_BYTES_PER_RECORD,
    MISNUMBERED_RECORDS,
    RECORDS_PER_COMPRESSED_BYTE_MAX,
    validate_steps,
)
from barnabas.records.validated import ValidatedBatches
from barnabas.records.varint import encode_varint
from tests.support.steps import kinds

NOW = 1_700_000_000_000
EDGES = [0, 1, 2, 62, 63, 64, 65, 127, 128, 129, 8_191, 8_192, 8_193, 16_384, 1_048_576]
DELTAS = [*EDGES, -1, -2, -63, -64, -65, -8_191, -8_192, -8_193, 1 << 31, -(1 << 31), 1 << 60]
HEAD, TAIL = Record(0, NOW, b"head", b"first"), Record(2, NOW, None, b"last")


def three_readers(records, base_timestamp=NOW):
    """Have all three read a body, and compare what they say with the records."""
    body = bytes(encode_body(records, 0, base_timestamp))
    assert list(iter_body(body, len(records), 0, base_timestamp)) == records
    stamps = [record.timestamp for record in records]
    assert scan_body(body, len(records), base_timestamp) == BodyScan(
        min(stamps),
        max(stamps),
        sum(record.key is None for record in records),
        [record.offset for record in records] == list(range(len(records))),
    )
    cursor, end = RecordCursor(body, len(records)), 0
    for at, record in enumerate(records):
        assert cursor.advance()
        assert (cursor.index, cursor.start) == (at, end)
        assert cursor.offset_delta == record.offset
        assert base_timestamp + cursor.timestamp_delta == record.timestamp
        assert (cursor.read_key(), cursor.read_value()) == (record.key, record.value)
        assert cursor.key_size == (-1 if record.key is None else len(record.key))
        assert cursor.value_size == (-1 if record.value is None else len(record.value))
        size = cursor.end - cursor.fields
        assert body[cursor.start : cursor.fields] == encode_varint(size)
        assert body[cursor.offset_at : cursor.key_size_at] == encode_varint(record.offset)
        end = cursor.end
    assert not cursor.advance()
    assert end == len(body)


@pytest.mark.parametrize("delta", DELTAS)
def test_timestamps(delta):
    three_readers([HEAD, Record(1, NOW + delta, b"k", b"v"), TAIL])


@pytest.mark.parametrize("offset", EDGES)
def test_offsets(offset):
    three_readers([HEAD, Record(offset, NOW, b"k", b"v"), TAIL])


@pytest.mark.parametrize("size", [None, *EDGES])
@pytest.mark.parametrize("other", [None, 0, 1, 64])
def test_sizes_of_keys_and_values(size, other):
    one = None if size is None else b"x" * size
    two = None if other is None else b"y" * other
    three_readers([HEAD, Record(1, NOW, one, two), TAIL])
    three_readers([HEAD, Record(1, NOW, two, one), TAIL])


@pytest.mark.parametrize("size", EDGES[:-1])
@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 63, 64, 65])
def test_headers(size, count):
    headers = [("h" * (size if n % 2 else 1), None if n % 3 else b"x" * size) for n in range(count)]
    if size * count > 200_000:
        headers = headers[:2]
    three_readers([HEAD, Record(1, NOW, b"k", b"v", headers), TAIL])


@pytest.mark.parametrize(
    "size", [*range(50, 60), *range(114, 124), 8_177, 8_178, 8_179, 8_180, 8_181, 8_182, 8_183]
)
def test_lengths_of_records(size):
    """Of those that begin with a byte of 0x80 too: 64 bytes, 128 bytes, 8192 bytes."""
    three_readers([HEAD, Record(1, NOW, None, b"v" * size), TAIL])


def padded(number, width):
    """A number as a varint of so many bytes."""
    raw = number << 1 if number >= 0 else -2 * number - 1
    out = bytes(raw >> 7 * n & 0x7F | 0x80 for n in range(width - 1)) + bytes((raw >> 7 * (width - 1),))
    assert out[-1] < 0x80
    return out


def fields_of(values, widths):
    """A record of these numbers, each as a varint of its width: timestamp, offset, key, value, headers."""
    timestamp, offset, key_size, value_size, headers = (
        padded(value, width) for value, width in zip(values, widths, strict=True)
    )
    fields = b"\0" + timestamp + offset + key_size + b"k" * max(values[2], 0)
    fields += value_size + b"v" * max(values[3], 0) + headers
    return padded(len(fields), 2) + fields


@pytest.mark.parametrize("at", range(5))
@pytest.mark.parametrize("width", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("value", [0, 3])
def test_numbers_that_take_more_bytes_than_they_need(at, width, value):
    values = [0, 0, 2, 2, 0]
    if at < 4:
        values[at] = value
    widths = [1] * 5
    widths[at] = width
    body = fields_of(values, widths)
    expected = Record(values[1], NOW + values[0], b"k" * values[2], b"v" * values[3])
    assert list(iter_body(body, 1, 0, NOW)) == [expected]
    assert scan_body(body, 1, NOW) == BodyScan(NOW + values[0], NOW + values[0], 0, values[1] == 0)
    cursor = RecordCursor(body, 1)
    assert cursor.advance()
    assert (cursor.offset_delta, cursor.timestamp_delta) == (values[1], values[0])
    assert (cursor.read_key(), cursor.read_value()) == (expected.key, expected.value)
    assert not cursor.advance()


@pytest.mark.parametrize("at", range(4))
def test_numbers_that_are_too_long_are_refused_by_all_readers(at):
    widths = [1] * 5
    widths[at] = 11 if at == 0 else 6
    body = fields_of([0, 0, 2, 2, 0], widths)
    for read in (
        lambda: list(iter_body(body, 1, 0, NOW)),
        lambda: scan_body(body, 1, NOW),
        lambda: RecordCursor(body, 1).advance(),
    ):
        with pytest.raises(InvalidRecordsError, match="record 0 of 1"):
            read()


def walk(body, count):
    """Move a cursor to the end of a body."""
    cursor = RecordCursor(body, count)
    while cursor.advance():
        pass


def test_a_record_that_is_cut_anywhere_is_refused_by_all_readers():
    body = bytes(encode_body([HEAD, Record(1, NOW + 64, b"k" * 64, b"v" * 64), TAIL], 0, NOW))
    for cut in range(len(body)):
        with pytest.raises(InvalidRecordsError):
            list(iter_body(body[:cut], 3, 0, NOW))
        with pytest.raises(InvalidRecordsError):
            scan_body(body[:cut], 3, NOW)
        with pytest.raises(InvalidRecordsError):
            walk(body[:cut], 3)


@pytest.mark.parametrize(
    "fields",
    [
        b"\0\0\0" + encode_varint(5) + b"k",  # the key ends where the record does
        b"\0\0\0" + encode_varint(9) + b"k",
        b"\0\0\0" + encode_varint(1) + b"k" + encode_varint(3) + b"vvv",  # no place for the number of headers
        b"\0\0\0" + encode_varint(1) + b"k" + encode_varint(9) + b"vvv",
        b"\0\0\0" + encode_varint(1) + b"k",
        b"\0\0\0",
        b"\0\0",
        b"\0",
    ],
)
def test_what_reaches_beyond_its_record_is_refused_by_the_cursor(fields):
    """Though there are bytes behind it."""
    body = encode_varint(len(fields)) + fields + b"\0" * 40
    cursor = RecordCursor(body, 1)
    with pytest.raises(InvalidRecordsError, match="record 0 of 1"):
        cursor.advance()


@pytest.mark.parametrize("count", [-1, 2, 100])
def test_more_records_than_bytes_are_refused_before_they_are_read(count):
    with pytest.raises(InvalidRecordsError, match="cannot be in"):
        RecordCursor(b"\0" * 13, count)
    assert not RecordCursor(b"", 0).advance()
    RecordCursor(b"\0" * 14, 2)


# --- limits of a produce request ----------------------------------------------------------------------------------


def validation(raw, rules=AppendRules(), api_version=9):  # noqa: B008 (it is frozen)
    return validate_steps(raw, api_version=api_version, config=rules, now_ms=NOW)


def packed(body, count, codec):
    """A batch of a body that is compressed already, or says so."""
    header = convert.new_header(0, codec=codec)
    header.base_timestamp = header.max_timestamp = NOW
    header.records_count, header.last_offset_delta = count, count - 1
    return bytearray(building.join_batch(header, body))


@pytest.mark.parametrize("raw", [b"", encode_message_set([HEAD], magic=1)[:-1]])
def test_old_requests_without_a_whole_message_append_nothing(raw):
    nothing = ValidatedBatches(b"", -1, -1, -1, -1, -1, 0, [])
    assert run(validation(raw, api_version=2)) == nothing
    nothing.place(77, 3)
    assert (nothing.base_offset, nothing.last_offset, nothing.records) == (-1, -1, b"")


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("append_time", [False, True])
@pytest.mark.parametrize("timestamp", [NOW - 5, -1])
def test_what_is_to_be_appended_is_described(codec, append_time, timestamp):
    rules = AppendRules(timestamp_type="LogAppendTime" if append_time else "CreateTime")
    records = [Record(n, timestamp, b"k", b"v") for n in range(3)]
    raw = bytearray(building.encode_batch(records, codec=codec))
    for found in (
        run(validation(bytearray(raw), rules)),
        validate_at_once(memoryview(bytearray(raw)), api_version=9, config=rules, now_ms=NOW),
    ):
        latest = NOW if append_time else timestamp
        header = batch.read_header(found.records)
        last = 2 if latest >= 0 else -1
        assert found == ValidatedBatches(
            found.records, 0, 2, latest, last, NOW if append_time else -1, 3, [header]
        )
        assert batch.check_crc(found.records, 0, header)
        found.place(500, 8)
        header = batch.read_header(found.records)
        assert (header.base_offset, header.leader_epoch) == (500, 8)
        last = 502 if latest >= 0 else -1
        assert found == ValidatedBatches(
            found.records, 500, 502, latest, last, NOW if append_time else -1, 3, [header]
        )


def sized(encode, size):
    """A value as `encode` writes it, of that size in all."""
    value_size = size
    while len(raw := encode(bytes(value_size))) != size:
        value_size += size - len(raw)
    return bytearray(raw)


def encoded(value):
    return building.encode_batch([Record(0, NOW, b"", value)])


@pytest.mark.parametrize("over", [0, 1])
def test_a_checksum_over_more_than_4_mb_is_work(over):
    rules = AppendRules(max_message_bytes=1 << 24, record_validation="header")
    raw = sized(encoded, (4 << 20) + over)
    assert kinds(validation(raw, rules))[0] == ["Work"] * over
    raw[-3] ^= 1
    seen, error = kinds(validation(raw, rules))
    assert (seen, error.code) == (["Work"] * over, Code.CORRUPT_MESSAGE)


@pytest.mark.parametrize("over", [0, 1])
def test_memory_is_announced_for_plain_records_of_more_than_a_mb(over):
    raw = sized(encoded, SMALL_BYTES + over)
    seen, _ = kinds(validation(raw, AppendRules(max_message_bytes=1 << 24)))
    assert seen == ["Reserve"] * over


@pytest.mark.parametrize("over", [0, 1])
def test_memory_is_announced_for_old_messages_of_more_than_64_kib(over):
    raw = sized(
        lambda value: encode_message_set([Record(0, NOW, b"", value)], magic=1), SMALL_COMPRESSED_BYTES + over
    )
    found = list(validation(raw, api_version=2))
    assert [step.bytes_max for step in found if step is not None] == [2 * SMALL_BYTES] * over
    assert found.count(None) == over  # the checksum of so much is a step


@pytest.mark.parametrize(("over", "taken"), [(0, True), (1, False)])
def test_as_many_records_as_four_to_each_compressed_byte(over, taken):
    body = bytes(100)
    count = RECORDS_PER_COMPRESSED_BYTE_MAX * (batch.HEADER_SIZE + len(body)) + over
    rules = AppendRules(record_validation="header")
    _, found = kinds(validation(packed(body, count, Codec.GZIP), rules))
    if taken:
        assert found.record_count == count
    else:
        assert "at most 4 can be in each" in found.message
    assert run(validation(packed(body, count, Codec.NONE), rules)).record_count == count


@pytest.mark.parametrize("count", [MISNUMBERED_RECORDS, MISNUMBERED_RECORDS + 1, 2_000])
def test_plain_misnumbered_records_are_numbered_anew(count):
    """Not compressed they take seven bytes each."""
    assert MISNUMBERED_BYTES_PER_RECORD < 7
    found = run(validation(packed(b"\x0c\0\0\0\1\1\0" * count, count, Codec.NONE)))
    assert [record.offset for record in batch.read_records(found.records)] == list(range(count))


@pytest.mark.parametrize("size_of_each", [1, 2, 3])
@pytest.mark.parametrize("count", [MISNUMBERED_RECORDS, MISNUMBERED_RECORDS + 1, 3 * RECORDS_PER_STEP])
def test_compressed_misnumbered_records_need_two_bytes_each(size_of_each, count):
    """Bytes behind the end of a stream count as well: Kafka takes such batches."""
    body = gzip.compress(b"\x0c\0\0\0\1\1\0" * count, mtime=0)
    for size in (size_of_each * count - 1, size_of_each * count, size_of_each * count + 1):
        padding = size - batch.HEADER_SIZE - len(body)
        if padding < 0:
            continue
        raw = packed(body + bytes(padding), count, Codec.GZIP)
        assert len(raw) == size
        is_taken = count <= MISNUMBERED_RECORDS or size >= MISNUMBERED_BYTES_PER_RECORD * count
        _, found = kinds(validation(raw))
        if is_taken:
            assert [record.offset for record in batch.read_records(found.records)] == list(range(count))
        else:
            assert "too many to be numbered anew" in found.message


@pytest.mark.parametrize("key", [None, b"", b"k"])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_an_empty_key_is_a_key(key, codec):
    raw = building.encode_batch([Record(0, NOW, key, b"v"), Record(1, NOW, b"k", b"v")], codec=codec)
    steps = validation(bytearray(raw), AppendRules(compacted=True))
    if key is None:
        _, error = kinds(steps)
        assert [one.batch_index for one in error.record_errors] == [0]
    else:
        assert run(steps).record_count == 2


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_refused_records_are_looked_for_by_steps(codec):
    count = 3 * RECORDS_PER_STEP
    records = [Record(n, NOW + n, None if n in (5, count - 1) else b"k", None) for n in range(count)]
    raw = building.encode_batch(records, codec=codec)
    seen, error = kinds(
        validation(bytearray(raw), AppendRules(compacted=True, message_timestamp_after_max_ms=2_990))
    )
    assert [one.batch_index for one in error.record_errors] == [5, *range(2_991, count)]
    assert f"timestamp {NOW + 2_991} " in error.record_errors[1].message
    assert error.code == Code.INVALID_TIMESTAMP
    looked = [at for at, step in enumerate(seen) if step is None]
    assert len(looked) >= 3


def test_the_size_of_a_segment_is_not_that_of_a_message():
    raw = building.encode_batch([Record(0, NOW, b"k", b"v" * 500)])
    size = len(raw)
    for rules, code in (
        (AppendRules(max_message_bytes=size - 1, segment_bytes=1 << 20), Code.MESSAGE_TOO_LARGE),
        (AppendRules(max_message_bytes=1 << 20, segment_bytes=size - 1), Code.RECORD_LIST_TOO_LARGE),
    ):
        _, error = kinds(validation(bytearray(raw), rules))
        assert error.code == code
        assert str(size) in error.message
        assert str(size - 1) in error.message
    assert struct.unpack_from(">i", raw, 8)[0] == size - 12
