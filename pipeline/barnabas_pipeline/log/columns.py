"""Record batches to Arrow columns: Python reads each record's length, numpy and Arrow do the rest.

The rule: the fast path refuses ambiguous data, which the strict decoder of `barnabas.records` then decodes. Both give the
same columns (held by a property test). Keys and values are not copied one by one: the bodies of many batches become one
Arrow array with the edges of all fields as its offsets, and `take` picks the fields out of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from barnabas.records.batch import BatchHeader
from barnabas.records.record import Record

if TYPE_CHECKING:
    from barnabas_pipeline.data_types import Integers, Mask, Octets

HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
TIMESTAMP_TYPE = pa.timestamp("us", tz="UTC")
MICROS_LIMIT = (1 << 63) // 1000

HEADERS_FAST_MAX = 64  # records with more headers are decoded by the slow path

_PADDING = bytes(16)


class Columns(NamedTuple):
    """Records as columns: offsets, timestamps (ms), leader epochs and types as numpy, the rest as Arrow arrays."""

    offset: Integers
    timestamp_ms: Integers
    timestamp_type: Integers
    leader_epoch: Integers
    key: pa.Array
    value: pa.Array
    headers: pa.Array

    def __len__(self) -> int:
        return len(self.offset)


class Body(NamedTuple):
    """The header of a v2 batch and its records, uncompressed."""

    header: BatchHeader
    data: bytes


KEY, VALUE, HEADERS = "key", "value", "headers"
ALL_FIELDS = frozenset((KEY, VALUE, HEADERS))


class NotSureError(Exception):
    """The fast path found data that only the strict decoder can judge."""


def decode_bodies(bodies: Sequence[Body], fields: frozenset[str] = ALL_FIELDS) -> Columns:
    """Decode the records of v2 batches together; of key, value and headers only `fields`; others are null.

    Raises NotSureError for bodies that need the strict decoder.
    """
    data = b"".join([*(body.data for body in bodies), _PADDING])
    places = _record_places(bodies)
    if not places:
        return from_records([], None)
    buf = np.frombuffer(data, np.uint8)
    size, start = _varints(buf, np.array(places, np.int64), 5)
    if (size < 6).any():
        raise NotSureError("a record's length cannot be")
    end = start + size
    counts = np.array([body.header.records_count for body in bodies], np.int64)
    delta, pos = _varints(buf, start + 1, 10)  # after the attributes
    base_timestamp = np.repeat(np.array([body.header.base_timestamp for body in bodies], np.int64), counts)
    timestamp = base_timestamp + delta
    if ((delta > 0) != (timestamp > base_timestamp)).any():
        raise NotSureError("a timestamp overflows")
    offset_delta, pos = _varints(buf, pos, 5)
    offset = offset_delta + np.repeat(
        np.array([body.header.base_offset for body in bodies], np.int64), counts
    )
    key_size, key_at = _varints(buf, pos, 5)
    key_end = key_at + np.maximum(key_size, 0)
    if (key_end >= end).any():
        raise NotSureError("a key is longer than its record")
    value_size, value_at = _varints(buf, key_end, 5)
    value_end = value_at + np.maximum(value_size, 0)
    if (value_end >= end).any():
        raise NotSureError("a value is longer than its record")
    header_count, headers_at = _varints(buf, value_end, 5)
    plain = header_count == 0
    if (headers_at[plain] != end[plain]).any() or (header_count < 0).any():
        raise NotSureError("a record does not end where it should")
    types = [1 if body.header.attributes & 8 else 0 for body in bodies]
    if any(types):
        appended = np.repeat(np.array(types, bool), counts)
        maxima = np.repeat(np.array([body.header.max_timestamp for body in bodies], np.int64), counts)
        timestamp = np.where(appended, maxima, timestamp)
    return Columns(
        offset,
        timestamp,
        np.repeat(np.array(types, np.int32), counts),
        np.repeat(np.array([body.header.leader_epoch for body in bodies], np.int32), counts),
        _fields(data, key_at, key_end, key_size) if KEY in fields else pa.nulls(len(end), pa.binary()),
        _fields(data, value_at, value_end, value_size)
        if VALUE in fields
        else pa.nulls(len(end), pa.binary()),
        _headers(data, buf, header_count, headers_at, end)
        if HEADERS in fields
        else pa.nulls(len(end), HEADERS_TYPE),
    )


def _record_places(bodies: Sequence[Body]) -> list[int]:
    """Return the position of each record's length in the bodies laid end to end; the caller checks the lengths."""
    places: list[int] = []
    place = places.append
    base = 0
    for header, body in bodies:
        pos, body_end = 0, len(body)
        try:
            for _ in range(header.records_count):
                place(base + pos)
                size = body[pos]
                if size < 0x80:
                    pos += 1 + (size >> 1)
                    continue
                more = body[pos + 1]
                if more < 0x80:
                    pos += 2 + ((size & 0x7F | more << 7) >> 1)
                    continue
                size, pos = _long_size(body, pos)
                pos += size
        except IndexError:
            raise NotSureError("the body is cut short") from None
        if pos != body_end or header.records_count < 0:
            raise NotSureError("the body does not add up")
        base += body_end
    return places


def _long_size(body: bytes, pos: int) -> tuple[int, int]:
    """Return (a length encoded in three bytes or more, the position after it)."""
    raw = shift = 0
    while True:
        byte = body[pos]
        pos += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return raw >> 1, pos
        shift += 7
        if shift > 28:
            raise NotSureError("a record's length is too long")


def _varints(buf: Octets, pos: Integers, size_max: int) -> tuple[Integers, Integers]:
    """Decode the zigzag varint at each position: (values, positions after them)."""
    byte = buf[pos].astype(np.uint64)
    raw = byte & np.uint64(0x7F)
    pos = pos + 1
    more = np.flatnonzero(byte >= 0x80)
    shift = 7
    while len(more):
        if shift >= 7 * size_max:
            raise NotSureError("a number is too long")
        byte = buf[pos[more]].astype(np.uint64)
        raw[more] |= (byte & np.uint64(0x7F)) << np.uint64(shift)
        pos[more] += 1
        if shift == 28 and size_max == 5 and (byte > 0x0F).any():
            raise NotSureError("a number is no int32")
        if shift == 63 and (byte > 0x01).any():
            raise NotSureError("a number is no int64")
        more = more[byte >= 0x80]
        shift += 7
    return (raw >> np.uint64(1)).astype(np.int64) ^ -(raw & np.uint64(1)).astype(np.int64), pos


def _fields(data: bytes, at: Integers, end: Integers, size: Integers) -> pa.Array:
    """Pick the fields [at, end) out of `data`; null where the size is negative."""
    count = len(at)
    edges = np.empty(2 * count + 1, np.int32)
    edges[0] = 0
    edges[1::2] = at
    edges[2::2] = end
    every = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(edges), pa.py_buffer(data)])
    places = np.arange(1, 2 * count, 2, dtype=np.int64)
    null = size < 0
    return every.take(pa.array(places, mask=null if null.any() else None))


def _headers(data: bytes, buf: Octets, count: Integers, at: Integers, end: Integers) -> pa.Array:
    """Decode the first header of all records, then the second of all records with two or more, and so on."""
    live = np.flatnonzero(count)
    if not len(live):
        return no_headers(len(count))
    if count.max() > HEADERS_FAST_MAX:
        raise NotSureError("many headers")
    pos = at[live]
    columns = []
    for n in range(int(count.max())):
        more = count[live] > n
        live, pos = live[more], pos[more]
        key_size, key_at = _varints(buf, pos, 5)
        key_end = key_at + key_size
        if (key_size < 0).any() or (key_end >= end[live]).any():
            raise NotSureError("a header's key is null or too long")
        value_size, value_at = _varints(buf, key_end, 5)
        pos = value_at + np.maximum(value_size, 0)
        if (pos > end[live]).any() or (pos != end[live])[count[live] == n + 1].any():
            raise NotSureError("headers do not end where their record does")
        columns.append((live, key_at, key_end, key_size, value_at, pos, value_size))
    rows, *fields = (np.concatenate(column) for column in zip(*columns, strict=True))
    order = np.argsort(rows, kind="stable")
    key_at, key_end, key_size, value_at, value_end, value_size = (field[order] for field in fields)
    try:
        keys = _fields(data, key_at, key_end, key_size).cast(pa.string())
    except pa.ArrowInvalid:
        raise NotSureError("a header's key is no text") from None
    values = _fields(data, value_at, value_end, value_size)
    items = pa.StructArray.from_arrays([keys, values], fields=list(HEADERS_TYPE.value_type))
    edges = pa.py_buffer(np.concatenate([[0], np.cumsum(count)]).astype(np.int32))
    return pa.Array.from_buffers(HEADERS_TYPE, len(count), [None, edges], children=[items])


def no_headers(count: int) -> pa.Array:
    """Return the header column of `count` records without headers."""
    edges = pa.py_buffer(np.zeros(count + 1, np.int32))
    empty = pa.array([], HEADERS_TYPE.value_type)
    return pa.Array.from_buffers(HEADERS_TYPE, count, [None, edges], children=[empty])


def _headers_array(headers: Iterable[list[tuple[str, bytes | None]]]) -> pa.Array:
    # Header keys are text to Spark; bytes that are not UTF-8 become U+FFFD, the dead-letter table has the raw bytes.
    rows = [
        [
            {"key": key.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), "value": value}
            for key, value in row
        ]
        for row in headers
    ]
    return pa.array(rows, HEADERS_TYPE)


def from_records(records: Sequence[Record], header: BatchHeader | None) -> Columns:
    """Return columns of records that were decoded one by one; `header` is that of their batch."""
    count = len(records)
    timestamp_type = 0 if header is None else int(header.timestamp_type)
    return Columns(
        np.array([record.offset for record in records], np.int64),
        np.array([record.timestamp for record in records], np.int64),
        np.full(count, timestamp_type, np.int32),
        np.full(count, -1 if header is None else header.leader_epoch, np.int32),
        pa.array([record.key for record in records], pa.binary()),
        pa.array([record.value for record in records], pa.binary()),
        _headers_array([record.headers for record in records]) if count else no_headers(0),
    )


def select(columns: Columns, mask: Mask) -> Columns:
    """Return the rows where `mask` is true."""
    if mask.all():
        return columns
    rows = pa.array(np.flatnonzero(mask))
    return Columns(*(column[mask] for column in columns[:4]), *(column.take(rows) for column in columns[4:]))


def concat(parts: Sequence[Columns]) -> Columns:
    """Return the rows of all parts, in order."""
    if len(parts) == 1:
        return parts[0]
    return Columns(
        *(np.concatenate([part[n] for part in parts]) for n in range(4)),
        *(pa.concat_arrays([part[n] for part in parts]) for n in range(4, 7)),
    )
