"""The ways that only large or many records go: several pieces, several steps, threads."""

from functools import partial
from itertools import pairwise

import pytest

from barnabas.records import batch, building, convert, legacy
from barnabas.records.at_once import validate_at_once
from barnabas.records.batch import TimestampType
from barnabas.records.compression import (
    COMPRESS_AT_ONCE_BYTES,
    SMALL_BYTES,
    Codec,
    Output,
    compress,
    decompress,
    decompress_steps,
    load_steps,
)
from barnabas.records.cursor import RecordCursor
from barnabas.records.errors import Code, CorruptRecordsError, InvalidRecordsError
from barnabas.records.record import Record, encode_body
from barnabas.records.rules import AppendRules
from barnabas.records.steps import RECORDS_PER_STEP, run
from barnabas.records.validate import validate_steps
from barnabas.records.varint import encode_varint
from tests.support.steps import kinds

NOW = 1_700_000_000_000
OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
NOISE = b"".join((n * n % 1_000_003).to_bytes(3, "big") for n in range(1 << 19))
"""1.5 MiB that do not repeat."""
LARGE = AppendRules(max_message_bytes=1 << 24)


def refuse(size):
    return InvalidRecordsError(f"{size} are too many")


# --- compression in pieces ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_of_several_pieces_is_written_in_another_codec(codec):
    name = "uncompressed" if codec is Codec.NONE else codec.name.lower()
    source = Codec.GZIP if codec is not Codec.GZIP else Codec.ZSTD
    records = [Record(0, NOW, None, NOISE), Record(1, NOW, b"k", None)]
    raw = building.encode_batch(records, codec=source, level=1)
    rules = AppendRules(max_message_bytes=1 << 24, compression_type=name)
    valid = run(validate_steps(raw, api_version=9, config=rules, now_ms=NOW))
    assert batch.read_header(valid.records).codec == codec
    assert batch.read_records(valid.records) == records


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("flushes", [0, 1])
@pytest.mark.parametrize("size", [COMPRESS_AT_ONCE_BYTES, COMPRESS_AT_ONCE_BYTES + 1])
def test_a_thread_ends_what_is_large_or_has_begun_in_one(codec, flushes, size):
    run(load_steps(codec))
    out = Output(codec, None, 1 << 24, refuse)
    for _ in range(flushes):
        out.pending += NOISE[:100]
        assert kinds(out.flush_steps())[0] == (["Work"] if codec else [])
    out.pending += NOISE[:size]
    seen, body = kinds(out.finish_steps())
    assert seen == (["Work"] if codec and (flushes or size > COMPRESS_AT_ONCE_BYTES) else [])
    plain = decompress(codec, body, magic=2, bytes_max=1 << 24)
    assert plain == NOISE[:100] * flushes + NOISE[:size]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("pieces", [1, 2])
def test_output_is_refused_once_it_is_too_large_and_not_before(codec, pieces):
    def written(bytes_max):
        out = Output(codec, None, bytes_max, refuse)
        for at in range(pieces):
            out.pending += NOISE[at * 500_000 : (at + 1) * 500_000]
            if at + 1 < pieces:
                out.flush()
        return out.finish()

    size = len(written(1 << 24))
    assert len(written(size)) == size
    with pytest.raises(InvalidRecordsError, match=f"{size} are"):
        written(size - 1)


def test_nothing_is_decompressed_where_nothing_is_compressed():
    assert kinds(decompress_steps(Codec.NONE, memoryview(b"abc"), magic=2, bytes_max=1)) == ([], b"abc")


@pytest.mark.parametrize(("codec", "low", "high"), [(Codec.GZIP, 1, 9), (Codec.ZSTD, -50, 9)])
def test_a_level_counts_for_a_batch_of_several_pieces_too(codec, low, high):
    def size(level):
        out = Output(codec, level, 1 << 24, refuse)
        for at in range(2):
            out.pending += b"".join(b"%d," % (n * n) for n in range(at, at + 5_000))
            out.flush()
        return len(out.finish())

    assert size(low) > size(high)


# --- offsets anew -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("size", [convert.PIECE_BYTES, SMALL_BYTES + 7])
def test_large_records_are_numbered_anew_piece_by_piece(codec, size):
    values = [b"first", NOISE[:size], b"", b"last"]
    body = b""
    for value in values:
        fields = b"\0\2\0\2k" + encode_varint(len(value)) + value + b"\0"
        body += encode_varint(len(fields)) + fields
    header = convert.new_header(0, codec=codec)
    header.base_timestamp = header.max_timestamp = NOW
    header.records_count, header.last_offset_delta = 4, 3
    raw = building.join_batch(header, compress(codec, body))
    valid = run(validate_steps(raw, api_version=9, config=LARGE, now_ms=NOW))
    assert batch.read_records(valid.records) == [
        Record(at, NOW + 1, b"k", value) for at, value in enumerate(values)
    ]


# --- messages of old formats --------------------------------------------------------------------------------------


def visited(raw, ends_with=None):
    seen = []

    def visit(message):
        seen.append((message.offset, message.timestamp, message.value))
        return message.value == ends_with

    steps, has_ended = kinds(legacy.visit_steps(raw, 0, visit, decompressed_bytes_max=1 << 20))
    return seen, has_ended, steps


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_messages_are_visited_until_one_is_enough(magic, codec):
    records = [Record(40 + 2 * at, NOW + at, None, b"%d" % at) for at in range(1 if not codec else 4)]
    raw = legacy.encode_message_set(records, magic=magic, codec=codec)
    whole = [(r.offset, r.timestamp if magic else -1, r.value) for r in records]
    assert visited(raw)[:2] == (whole, False)
    last = len(records) - 1
    for at in range(last + 1):
        assert visited(raw, b"%d" % at)[:2] == (whole[: at + 1], True)


@pytest.mark.parametrize("magic", [0, 1])
def test_the_time_of_a_wrapper_counts_where_the_broker_has_set_it(magic):
    inner = [Record(at, 5 + at, None, b"x") for at in range(2)]
    packed = compress(Codec.GZIP, legacy.encode_message_set(inner, magic=magic), magic=magic)
    for kind, times in ((TimestampType.CREATE_TIME, [5, 6]), (TimestampType.LOG_APPEND_TIME, [99, 99])):
        raw = legacy.encode_message(
            Record(1, 99, None, packed), magic=magic, codec=Codec.GZIP, timestamp_type=kind
        )
        assert [seen[1] for seen in visited(raw)[0]] == (times if magic else [-1, -1])


def test_many_messages_in_a_wrapper_are_visited_by_steps():
    for count, turns in ((RECORDS_PER_STEP - 1, 0), (RECORDS_PER_STEP, 1), (5 * RECORDS_PER_STEP // 2, 2)):
        raw = legacy.encode_message_set(
            [Record(at, NOW, None, b"") for at in range(count)], magic=0, codec=Codec.GZIP
        )
        seen, _, steps = visited(raw)
        assert len(seen) == count
        assert steps.count(None) == 2 * turns  # once for the last offset, once for the visits


@pytest.mark.parametrize("over", [0, 1])
@pytest.mark.parametrize("is_sound", [True, False])
def test_the_checksum_of_a_large_message_is_looked_at_in_a_thread(over, is_sound):
    size = (1 << 20) - 22 + over
    raw = bytearray(legacy.encode_message(Record(3, NOW, None, NOISE[:size]), magic=1))
    raw[-1] ^= not is_sound
    seen, message = kinds(legacy.read_message_steps(raw, 0))
    assert seen == ["Work"] * over
    assert (message.offset, message.is_crc_valid, message.size) == (3, is_sound, len(raw))
    if not is_sound:
        with pytest.raises(CorruptRecordsError):
            run(legacy.visit_steps(raw, 0, lambda _: True, decompressed_bytes_max=1))


# --- a place in a body --------------------------------------------------------------------------------------------

RECORDS = [
    Record(0, NOW, b"k" * size, None if size == 70 else b"v" * (200 - size)) for size in (0, 70, 3, 130)
]
BODY = bytes(encode_body([Record(at, NOW + at, r.key, r.value) for at, r in enumerate(RECORDS)], 0, NOW))


def places(body, count):
    cursor = RecordCursor(body, count)
    found = []
    while cursor.advance():
        found.append((cursor.start, cursor.end, cursor.read_key(), cursor.read_value()))
    return found


def test_a_cursor_finds_where_each_record_is():
    found = places(BODY, 4)
    assert [(key, value) for _, _, key, value in found] == [(r.key, r.value) for r in RECORDS]
    assert all(before[1] == after[0] for before, after in pairwise(found))
    assert (found[0][0], found[-1][1]) == (0, len(BODY))


def fields(*parts):
    body = b"\0" + b"".join(part if isinstance(part, bytes) else encode_varint(part) for part in parts)
    return encode_varint(len(body)) + body


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (b"\x14" + bytes(3), "bytes beyond the batch"),
        (b"\x01" + bytes(9), "bytes beyond the batch"),
        (b"\xff" * 6, "varint"),
        (fields(0, 0, 5, b"k", 1, b"v", 0), "its key reaches beyond its end"),
        (fields(0, 0, 1, b"k"), "its key reaches beyond its end"),
        (fields(0, 0, 1, b"k", 9, b"v", 0), "its value reaches beyond its end"),
        (fields(0, 0, 1, b"k", 1, b"v"), "its value reaches beyond its end"),
        (b"", "cut short by the end of the batch"),
        (fields(), "cut short by the end of the batch"),
    ],
)
def test_a_cursor_refuses_a_record_that_reaches_beyond_its_end(record, problem):
    good = fields(0, 0, 1, b"k", 30, b"v" * 30, 0)
    follows = b"" if "batch" in problem or problem == "varint" else good
    with pytest.raises(InvalidRecordsError, match=f"record 1 of 2.*{problem}"):
        places(good + record + follows, 2)


# --- left to the steps --------------------------------------------------------------------------------------------


def lz4_of_linked_blocks():
    import lz4.frame

    plain = building.encode_batch([Record(0, NOW, None, b"0123456789" * 10_000)])
    header = convert.new_header(0, codec=Codec.LZ4)
    header.base_timestamp = header.max_timestamp = NOW
    header.records_count, header.last_offset_delta = 1, 0
    packed = lz4.frame.compress(plain[batch.HEADER_SIZE :], block_linked=True, block_size=4)
    return building.join_batch(header, packed)


def packed_batch(body, count, codec):
    header = convert.new_header(0, codec=codec)
    header.base_timestamp = header.max_timestamp = NOW
    header.records_count, header.last_offset_delta = count, count - 1
    return building.join_batch(header, compress(codec, body))


MANY_HEADERS = fields(0, 0, -1, 1, b"v", 5_000, b"\0\1" * 5_000)


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lz4_of_linked_blocks, Code.INVALID_RECORD),
        (partial(packed_batch, BODY[:-1], 4, Codec.GZIP), Code.INVALID_RECORD),
        (partial(packed_batch, BODY[:-1], 4, Codec.NONE), Code.INVALID_RECORD),
        (partial(packed_batch, MANY_HEADERS, 1, Codec.GZIP), None),
        (partial(packed_batch, MANY_HEADERS, 1, Codec.NONE), None),
    ],
    ids=["linked lz4", "malformed in gzip", "malformed", "many headers in gzip", "many headers"],
)
def test_what_takes_longer_or_is_refused_with_a_place_is_not_done_at_once(make, code):
    raw = make()
    run(load_steps(*Codec))
    assert validate_at_once(memoryview(raw), api_version=9, config=LARGE, now_ms=NOW) is None
    _, outcome = kinds(validate_steps(raw, api_version=9, config=LARGE, now_ms=NOW))
    assert getattr(outcome, "code", None) == code
