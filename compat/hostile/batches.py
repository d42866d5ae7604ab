"""Record batches and message sets as bytes, of every format and codec, valid or costly for their size.

The rule: the content of a bomb is repeated bytes, so that building it is cheap.
"""

from __future__ import annotations

import gzip
import struct
import time
import zlib

import crc32c
import lz4.frame
import snappy
import zstandard

from compat.kit.wire import uvarint

NOW_MS = int(time.time() * 1000)  # older records would be retired
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
CODECS = {"gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}


def varint(number: int) -> bytes:
    """A signed number in zigzag form."""
    return uvarint(number << 1 ^ number >> 63)


def compressed(codec: int, data: bytes) -> bytes:
    """`data` in one stream of a codec; 0 leaves it as it is."""
    if codec == GZIP:
        return gzip.compress(data, 9, mtime=0)
    if codec == SNAPPY:
        raw: bytes = snappy.compress(data)
        return raw
    if codec == LZ4:
        stream: bytes = lz4.frame.compress(data, block_linked=False)
        return stream
    if codec == ZSTD:
        return zstandard.ZstdCompressor(level=3).compress(data)
    return data


def record(value: bytes, offset_delta: int = 0, key: bytes | None = None) -> bytes:
    """One record of format v2 without headers."""
    named = varint(-1) if key is None else varint(len(key)) + key
    body = b"\0\0" + varint(offset_delta) + named + varint(len(value)) + value + b"\0"
    return varint(len(body)) + body


def batch(
    records: bytes,
    count: int,
    *,
    codec: int = 0,
    timestamp_ms: int = NOW_MS,
    last_delta: int | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """A batch of format v2 around encoded records, which are compressed if a codec is given."""
    body = compressed(codec, records)
    delta = count - 1 if last_delta is None else last_delta
    head = struct.pack(">hiqqqhii", codec, delta, timestamp_ms, timestamp_ms, *producer, count)
    tail = head + body
    return struct.pack(">qiibI", 0, len(tail) + 9, -1, 2, crc32c.crc32c(tail)) + tail


def one_record(value: bytes, *, timestamp_ms: int = NOW_MS, codec: int = 0) -> bytes:
    """A batch of format v2 with one record."""
    return batch(record(value), 1, timestamp_ms=timestamp_ms, codec=codec)


def zero_deltas(count: int, codec: int = GZIP) -> bytes:
    """A batch of `count` records, all with an offset delta of 0."""
    return batch(record(b"") * count, count, codec=codec)


def message(magic: int, value: bytes | None, *, codec: int = 0, offset: int = 0) -> bytes:
    """A message of format v0 or v1 in a message set; with a codec it is a wrapper around the set `value`."""
    held = compressed(codec, value or b"")
    body = struct.pack(">bb", magic, codec) + (struct.pack(">q", NOW_MS) if magic else b"")
    body += struct.pack(">ii", -1, len(held)) + held
    whole = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", offset, len(whole)) + whole


def nested(magic: int, depth: int, codec: int = GZIP) -> bytes:
    """Wrapper messages one within the other."""
    held = message(magic, b"x")
    for _ in range(depth):
        held = message(magic, held, codec=codec)
    return held


def bomb(magic: int, codec: int, size: int) -> bytes:
    """A batch or message set with one record of `size` bytes, which compresses to little."""
    if magic == 2:
        return batch(record(bytes(size)), 1, codec=codec)
    return message(magic, message(magic, bytes(size)), codec=codec)


def many_small(magic: int, codec: int, count: int) -> bytes:
    """A message set of a wrapper with `count` empty messages, or a batch with as many empty records."""
    if magic == 2:
        return batch(b"".join(record(b"", delta) for delta in range(count)), count, codec=codec)
    return message(magic, message(magic, b"") * count, codec=codec)
