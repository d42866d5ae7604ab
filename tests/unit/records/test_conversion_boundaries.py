"""Conversion between formats at its boundaries: the first offset, empty fields, the smallest messages, and every step."""

import struct
import zlib

import pytest

from barnabas.records import batch, building, convert, legacy
from barnabas.records.compression import COMPRESS_AT_ONCE_BYTES, SMALL_BYTES, Codec, Output, decompress
from barnabas.records.convert import PIECE_BYTES
from barnabas.records.record import Record, encode_body
from tests.support.steps import kinds

LARGE = 1 << 30


def message(offset, magic, key, value, *, attributes=0, timestamp=7):
    """A message by hand."""
    body = bytes((magic, attributes)) + (struct.pack(">q", timestamp) if magic else b"")
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def read_all(raw, **how):
    return [record for pos, _ in batch.iter_batches(raw) for record in legacy.read_records(raw, pos, **how)]


# --- steps of a conversion ----------------------------------------------------------------------------------------


def turns(steps):
    seen, outcome = kinds(steps)
    return seen.count(None), seen.count("Work"), outcome


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
