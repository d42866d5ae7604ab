"""Conversion between formats at its boundaries: the first offset, empty fields, the smallest messages, and every step."""

import struct
import zlib

import pytest

from barnabas.records import batch, building, convert, legacy
from barnabas.records.batch import TimestampType
from barnabas.records.compression import (
    COMPRESS_AT_ONCE_BYTES,
    SMALL_BYTES,
    Codec,
    Output,
    compress,
    decompress,
)
from barnabas.records.convert import PIECE_BYTES
from barnabas.records.errors import CorruptRecordsError, DecompressedTooLargeError, InvalidRecordsError
from barnabas.records.record import Record, encode_body
from barnabas.records.steps import RECORDS_PER_STEP, run
from tests.support.conversion import up_convert
from tests.support.steps import kinds
from tests.support.whole_steps import down_convert

OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
PACKED = OLD_CODECS[1:]
SMALLEST = Record(0, 7, None, None)
LARGE = 1 << 30


def message(offset, magic, key, value, *, attributes=0, timestamp=7):
    """A message by hand."""
    body = bytes((magic, attributes)) + (struct.pack(">q", timestamp) if magic else b"")
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(offset, magic, inner, *, attributes=0, timestamp=7):
    value = compress(Codec.GZIP, inner, magic=magic)
    return message(offset, magic, None, value, attributes=attributes | Codec.GZIP, timestamp=timestamp)


def read_all(raw, **how):
    return [record for pos, _ in batch.iter_batches(raw) for record in legacy.read_records(raw, pos, **how)]


# --- messages -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [0, 1, 1 << 40])
@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_set_begins_at_any_offset_and_may_hold_one_message(first, codec, magic, count):
    records = [Record(first + n * n, 50 - n, b"" if n else None, None if n else b"") for n in range(count)]
    raw = legacy.encode_message_set(records, magic=magic, codec=codec)
    expected = [Record(r.offset, r.timestamp if magic else -1, r.key, r.value) for r in records]
    assert read_all(raw) == expected
    headers = [header for _, header in batch.iter_batches(raw)]
    assert {header.codec for header in headers} == {codec}
    assert len(headers) == (1 if codec else count)
    assert headers[-1].last_offset == records[-1].offset
    assert max(header.max_timestamp for header in headers) == (50 if magic else -1)
    converted = up_convert(raw, convert.new_header(9))
    for at, record in enumerate(expected):
        record.offset = 9 + at
    assert batch.read_records(converted) == expected


@pytest.mark.parametrize("magic", [0, 1])
def test_offsets_in_a_wrapper_count_from_its_first_message_since_v1(magic):
    records = [Record(1000 + n * n, 5, None, b"x") for n in range(4)]
    raw = legacy.encode_message_set(records, magic=magic, codec=Codec.GZIP)
    outer = legacy.read_message(raw)
    assert (outer.offset, outer.key) == (1009, None)
    inner = decompress(Codec.GZIP, outer.value, magic=magic, bytes_max=LARGE)
    offsets = [one.offset for one in legacy.iter_message_set(inner)]
    assert offsets == ([0, 1, 4, 9] if magic else [1000, 1001, 1004, 1009])


@pytest.mark.parametrize(
    ("offset", "inner", "expected"),
    [
        (0, [0, 1], [0, 1]),
        (0, [4, 6], [4, 6]),
        (1, [0], [1]),
        (1, [1], [1]),
        (5, [3, 5], [3, 5]),
        (6, [3, 5], [4, 6]),
    ],
)
def test_the_offset_of_a_wrapper_is_that_of_its_last_message(offset, inner, expected):
    raw = wrapper(offset, 1, b"".join(message(at, 1, None, b"v") for at in inner))
    assert [record.offset for record in read_all(raw)] == expected
    absolute = wrapper(offset, 0, b"".join(message(at, 0, None, b"v") for at in inner))
    assert [record.offset for record in read_all(absolute)] == inner


@pytest.mark.parametrize("inner_magic", [0, 1])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("attributes", [0, batch.TIMESTAMP_TYPE_BIT])
def test_only_messages_that_have_a_timestamp_get_that_of_their_wrapper(magic, inner_magic, attributes):
    raw = wrapper(0, magic, message(0, inner_magic, None, b"v"), attributes=attributes, timestamp=99)
    expected = -1 if not inner_magic else 99 if magic and attributes else 7
    assert [record.timestamp for record in read_all(raw)] == [expected]
    seen = []
    run(
        legacy.visit_steps(raw, 0, lambda one: bool(seen.append(one.timestamp)), decompressed_bytes_max=LARGE)
    )
    assert seen == [expected]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("before", [b"", b"before"])
def test_the_smallest_message_is_read_and_nothing_less(magic, before):
    raw = message(3, magic, None, None)
    assert len(raw) == (34 if magic else 26)
    found = legacy.read_message(before + raw, len(before))
    assert (found.offset, found.magic, found.key, found.value, found.size) == (3, magic, None, None, len(raw))
    assert (found.timestamp, found.is_crc_valid) == (7 if magic else -1, True)
    assert read_all(wrapper(3, magic, raw if not magic else message(0, 1, None, None))) == [
        Record(3, 7 if magic else -1, None, None)
    ]
    for size in range(len(raw)):
        short = raw[:8] + struct.pack(">i", size - 12) + raw[12:]
        for buf in (raw[:size], short[:size], short, short + bytes(40)):
            with pytest.raises(CorruptRecordsError):
                legacy.read_message(before + buf, len(before))
            with pytest.raises(CorruptRecordsError):
                run(legacy.read_message_steps(before + buf, len(before)))


def test_a_message_with_a_large_offset_is_not_large():
    raw = message(1 << 60, 1, b"k", b"v")
    seen, found = kinds(legacy.read_message_steps(raw, 0))
    assert (seen, found.offset) == ([], 1 << 60)


@pytest.mark.parametrize("kind", [TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
def test_the_type_of_timestamps_is_in_the_attributes_since_v1(kind, magic, codec):
    raw = legacy.encode_message(Record(3, 7, None, b"x"), magic=magic, codec=codec, timestamp_type=kind)
    append_time = kind is TimestampType.LOG_APPEND_TIME
    assert raw == message(3, magic, None, b"x", attributes=codec | (8 * append_time if magic else 0))
    assert legacy.read_message(raw).timestamp_type is (kind if magic else TimestampType.NO_TIMESTAMP)


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_only_a_wrapper_is_bounded(codec):
    records = [Record(n, 7, None, b"v" * 50) for n in range(10)]
    size = sum(len(message(n, 1, None, b"v" * 50)) for n in range(10))
    raw = legacy.encode_message_set(records, magic=1, codec=codec, decompressed_bytes_max=size)
    assert read_all(raw) == records
    if codec:
        with pytest.raises(DecompressedTooLargeError):
            legacy.encode_message_set(records, magic=1, codec=codec, decompressed_bytes_max=size - 1)
        assert read_all(raw, decompressed_bytes_max=size) == records
        with pytest.raises(DecompressedTooLargeError):
            read_all(raw, decompressed_bytes_max=size - 1)
    else:
        small = legacy.encode_message_set(records, magic=1, decompressed_bytes_max=1)
        assert small == raw


# --- steps of a conversion ----------------------------------------------------------------------------------------


def turns(steps):
    seen, outcome = kinds(steps)
    return seen.count(None), seen.count("Work"), outcome


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("count", [1, RECORDS_PER_STEP - 1, RECORDS_PER_STEP, 2 * RECORDS_PER_STEP + 1])
def test_records_go_down_a_thousand_at_a_time(codec, count):
    raw = building.encode_batch([Record(n, 7, None, b"") for n in range(count)], codec=codec)
    waits, works, converted = turns(convert.down_convert_steps(raw, 1, bytes_max=LARGE))
    assert waits == count // RECORDS_PER_STEP + 1  # once after the batch
    large = codec and count * len(message(0, 1, None, b"")) > PIECE_BYTES
    assert works == bool(codec) + bool(large)  # to decompress, and to compress what is large
    assert len(read_all(converted)) == count


@pytest.mark.parametrize(
    ("size", "each"),
    [
        (PIECE_BYTES // 2 - 100, 0.5),
        (PIECE_BYTES // 2, 0.5),
        (PIECE_BYTES, 1),
        (PIECE_BYTES + 1, 3),
        (3 * PIECE_BYTES, 4),
    ],
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_bytes_go_down_a_piece_at_a_time(size, each, codec):
    records = [Record(40 + n, 7 + n, b"k", b"%d" % n * size) for n in range(6)]
    raw = building.encode_batch(records, codec=codec)
    waits, _, converted = turns(convert.down_convert_steps(raw, 1, bytes_max=LARGE))
    waits_of_records = waits - 1
    if size < PIECE_BYTES // 2:
        assert waits_of_records in (2, 3)  # every third or second
    else:
        assert waits_of_records == 6 * each
    assert read_all(converted) == records


@pytest.mark.parametrize("kind", [TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME])
@pytest.mark.parametrize("size", [PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES, 2 * PIECE_BYTES + 1])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_large_value_makes_the_message_that_it_makes_at_once(kind, size, magic, codec):
    records = [Record(at, 50 + at, key, b"%d" % at * size) for at, key in ((7, None), (8, b"k"), (9, b""))]
    raw = building.encode_batch(records, codec=codec, timestamp_type=kind, max_timestamp=99)
    expected = legacy.encode_message_set(
        records, magic=magic, codec=codec, timestamp_type=kind, append_timestamp=99
    )
    assert down_convert(raw, magic, bytes_max=1) == expected


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("fetch_offset", [39, 40, 41, 42, 43])
def test_messages_before_the_fetch_offset_are_dropped_unless_they_are_in_one(codec, magic, fetch_offset):
    records = [Record(at, 50 + at, None, b"x") for at in (40, 41, 42)]
    if magic == 2:
        raw = building.encode_batch(records, codec=codec)
    else:
        raw = legacy.encode_message_set(records, magic=1, codec=codec)
    found = read_all(down_convert(raw, 0, bytes_max=LARGE, fetch_offset=fetch_offset))
    kept = [at for at in (40, 41, 42) if codec or at >= fetch_offset]
    assert found == [Record(at, -1, None, b"x") for at in kept]


@pytest.mark.parametrize("codec", PACKED)
def test_what_is_converted_is_bounded_by_what_may_be_decompressed(codec):
    raw = building.encode_batch([Record(0, 7, None, bytes(5_000))], codec=codec)
    body = encode_body([Record(0, 7, None, bytes(5_000))], 0, 7)
    size = len(message(0, 1, None, bytes(5_000)))
    assert size > len(body)
    for most in (size - 1, len(body) - 1):
        with pytest.raises(DecompressedTooLargeError):
            down_convert(raw, 1, bytes_max=LARGE, decompressed_bytes_max=most)
    whole = down_convert(raw, 1, bytes_max=1, decompressed_bytes_max=size)
    assert len(read_all(whole)) == 1
    with pytest.raises(DecompressedTooLargeError):
        down_convert(
            legacy.encode_message_set([Record(0, 7, None, bytes(5_000))], magic=1, codec=codec),
            0,
            bytes_max=LARGE,
            decompressed_bytes_max=4_000,
        )


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("count", [RECORDS_PER_STEP - 1, RECORDS_PER_STEP, 2 * RECORDS_PER_STEP + 1])
def test_records_go_up_a_thousand_at_a_time(codec, count):
    raw = legacy.encode_message_set([Record(n, 7, None, b"") for n in range(count)], magic=1, codec=codec)
    out = Output(Codec.NONE, None, LARGE, AssertionError)
    header = convert.new_header(0)
    steps = convert.up_convert_steps(
        raw, header, out, magic=1, judge=lambda *_: True, decompressed_bytes_max=LARGE
    )
    waits, _, _ = turns(steps)
    assert waits == count // RECORDS_PER_STEP * (
        2 if codec else 1
    )  # of a wrapper the last offset is looked for
    assert (header.records_count, header.last_offset_delta) == (count, count - 1)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_records_that_are_refused_on_their_way_up_are_not_written(codec):
    records = [Record(n, 100 - n, b"%d" % n, None) for n in range(6)]
    raw = legacy.encode_message_set(records, magic=1, codec=codec)
    for kept in ([1, 4], [0, 5], [3], []):
        asked = []

        def judge(index, key, timestamp, kept=kept, asked=asked):
            asked.append((index, key, timestamp))
            return index in kept

        out, header = Output(Codec.NONE, None, LARGE, AssertionError), convert.new_header(0)
        run(convert.up_convert_steps(raw, header, out, magic=1, judge=judge, decompressed_bytes_max=LARGE))
        assert asked == [(n, b"%d" % n, 100 - n) for n in range(6)]
        assert (header.records_count, header.last_offset_delta) == (len(kept), len(kept) - 1)
        assert header.max_timestamp == (100 - kept[0] if kept else -1)
        if kept:
            written = batch.read_records(building.join_batch(header, out.finish()))
            assert [record.key for record in written] == [b"%d" % n for n in kept]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("packed", [False, True])
def test_messages_of_another_magic_do_not_go_up(magic, packed):
    inner = message(0, 1 - magic, None, b"x")
    raw = wrapper(0, magic, inner) if packed else inner
    out = Output(Codec.NONE, None, LARGE, AssertionError)
    with pytest.raises(InvalidRecordsError):
        run(
            convert.up_convert_steps(
                raw,
                convert.new_header(0),
                out,
                magic=magic,
                judge=lambda *_: True,
                decompressed_bytes_max=LARGE,
            )
        )


# --- output in pieces ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("way", ["copy", "renumber"])
@pytest.mark.parametrize("size", [10, SMALL_BYTES - 100, SMALL_BYTES + 100, 5 * SMALL_BYTES // 2])
def test_a_body_is_compressed_a_megabyte_at_a_time(codec, way, size):
    count = 20
    records = [Record(n + 3, 7, None, b"%d" % (n % 10) * (size // count)) for n in range(count)]
    body = bytes(encode_body(records, 0 if way == "renumber" else 3, 7))
    out = Output(codec, None, LARGE, AssertionError)
    steps = (
        convert.copy_steps(body, out) if way == "copy" else convert.renumber_steps(body, len(records), out)
    )
    _, works, _ = turns(steps)
    assert works == (len(body) // SMALL_BYTES if codec else 0)
    assert len(out.pending) < SMALL_BYTES + PIECE_BYTES or not codec
    seen, packed = kinds(out.finish_steps())
    is_large = len(body) > COMPRESS_AT_ONCE_BYTES
    assert seen == (["Work"] if codec and is_large else [])
    plain = decompress(codec, packed, magic=2, bytes_max=LARGE)
    header = convert.new_header(3)
    header.records_count, header.base_timestamp, header.last_offset_delta = count, 7, count - 1
    assert batch.read_records(building.join_batch(header, plain)) == records


@pytest.mark.parametrize("count", [RECORDS_PER_STEP - 1, RECORDS_PER_STEP, 3 * RECORDS_PER_STEP])
def test_records_are_numbered_anew_a_thousand_at_a_time(count):
    body = bytes(encode_body([Record(0, 7, None, b"") for _ in range(count)], 0, 7))
    out = Output(Codec.NONE, None, LARGE, AssertionError)
    waits, works, _ = turns(convert.renumber_steps(body, count, out))
    assert (waits, works) == (count // RECORDS_PER_STEP, 0)


# --- checks on the way --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("bad", [0, 1])
@pytest.mark.parametrize("what", ["checksum", "wrapper"])
def test_whoever_goes_through_a_wrapper_meets_what_is_wrong_in_it(magic, bad, what):
    inner = [bytearray(message(at, magic, b"k", b"v")) for at in (0, 1)]
    if what == "checksum":
        inner[bad][-1] ^= 1
        expected = CorruptRecordsError
    else:
        inner[bad] = bytearray(message(bad, magic, None, b"v", attributes=Codec.GZIP))
        expected = InvalidRecordsError
    raw = wrapper(1, magic, b"".join(inner))
    seen = []

    def visit(one):
        seen.append(one.offset)
        return False

    out, header = Output(Codec.NONE, None, LARGE, AssertionError), convert.new_header(0)
    for go in (
        lambda: run(legacy.visit_steps(raw, 0, visit, decompressed_bytes_max=LARGE)),
        lambda: list(legacy.iter_records(raw)),
        lambda: run(
            convert.up_convert_steps(
                raw, header, out, magic=magic, judge=lambda *_: True, decompressed_bytes_max=LARGE
            )
        ),
        lambda: down_convert(raw, 0, bytes_max=1) if magic else read_all(raw),
    ):
        with pytest.raises(expected):
            go()
    assert seen == list(range(bad))
    outer = bytearray(raw)
    outer[-1] ^= 1
    for go in (
        lambda: run(legacy.visit_steps(outer, 0, visit, decompressed_bytes_max=LARGE)),
        lambda: list(legacy.iter_records(outer)),
    ):
        with pytest.raises(CorruptRecordsError, match="checksum"):
            go()
