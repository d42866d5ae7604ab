"""The ways that only large or many records go: several pieces, several steps, threads."""

from functools import partial

import pytest

from barnabas.records import batch, building, convert, legacy
from barnabas.records.at_once import validate_at_once
from barnabas.records.batch import TimestampType
from barnabas.records.compression import Codec, Output, compress, decompress_steps, load_steps
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
def test_wrapper_time_counts_if_the_broker_set_it(magic):
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
def test_checksum_of_a_large_message_is_checked_in_a_thread(over, is_sound):
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
    rows = []
    while cursor.advance():
        rows.append((cursor.start, cursor.end, cursor.read_key(), cursor.read_value()))
    return rows


def fields(*parts):
    body = b"\0" + b"".join(part if isinstance(part, bytes) else encode_varint(part) for part in parts)
    return encode_varint(len(body)) + body


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
def test_long_or_refused_batches_are_not_done_at_once(make, code):
    raw = make()
    run(load_steps(*Codec))
    assert validate_at_once(memoryview(raw), api_version=9, config=LARGE, now_ms=NOW) is None
    _, outcome = kinds(validate_steps(raw, api_version=9, config=LARGE, now_ms=NOW))
    assert getattr(outcome, "code", None) == code
