"""One record of message format v2, and the run of records that is the body of a batch.

The rule: a body is read as a whole run. It must hold exactly the promised number of records and not one byte more, each
record must end where its own length says, and no size is trusted before it is checked.

    record  = length varint, attributes int8 (unused), timestamp delta varlong, offset delta varint,
              key length varint (-1: null), key, value length varint (-1: null), value,
              header count varint, headers
    header  = key length varint, key (UTF-8), value length varint (-1: null), value
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from barnabas.records.errors import InvalidRecordsError
from barnabas.records.varint import SMALL, SMALL_COUNT, encode_varint, read_unsigned, read_varint

RECORD_SIZE_MIN: Final = 7  # an empty record: seven fields of one byte
TIMESTAMP_LIMIT: Final = 1 << 63  # timestamps are int64


@dataclass(slots=True)
class Record:
    """One record, the same for all message formats (v0 and v1 have no headers, v0 has timestamp -1).

    `timestamp` is in ms. Header keys are text; invalid UTF-8 in them survives a round trip as lone surrogates
    (`surrogateescape`), because Kafka's brokers never decode them.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)


def iter_body(
    body: bytes, count: int, base_offset: int, base_timestamp: int, append_timestamp: int | None = None
) -> Iterator[Record]:
    """Decode the `count` records that an uncompressed batch body holds.

    `append_timestamp` replaces the timestamps of all records (a batch of type LogAppendTime).
    Raises InvalidRecordsError as soon as the run breaks off or does not add up.
    """
    check_count(count, len(body))
    pos = index = 0
    body_end = len(body)
    try:
        for index in range(count):  # noqa: B007  # the handlers below use it
            # Every variable-length integer is read in line: one or two bytes here, more in a call.
            size = body[pos]
            pos += 1
            if size >= 0x80:
                if (more := body[pos]) < 0x80:
                    size = size & 0x7F | more << 7
                    pos += 1
                else:
                    size, pos = read_unsigned(body, pos - 1, body_end, 32)
            end = pos + (size >> 1)
            if size & 1 or end > body_end:
                raise InvalidRecordsError(f"its length leads {end - body_end} bytes beyond the batch")
            delta = body[pos + 1]  # after the attributes
            pos += 2
            if delta >= 0x80:
                if (more := body[pos]) < 0x80:
                    delta = delta & 0x7F | more << 7
                    pos += 1
                else:
                    delta, pos = read_unsigned(body, pos - 1, end, 64)
            timestamp = base_timestamp + (delta >> 1 ^ -(delta & 1))
            delta = body[pos]
            pos += 1
            if delta >= 0x80:
                if (more := body[pos]) < 0x80:
                    delta = delta & 0x7F | more << 7
                    pos += 1
                else:
                    delta, pos = read_unsigned(body, pos - 1, end, 32)
            offset = base_offset + (delta >> 1 ^ -(delta & 1))
            # Slices cannot overrun: a size that leads beyond the record shows at the end, where pos != end.
            size = body[pos]
            pos += 1
            if size >= 0x80:
                if (more := body[pos]) < 0x80:
                    size = size & 0x7F | more << 7
                    pos += 1
                else:
                    size, pos = read_unsigned(body, pos - 1, end, 32)
            if size & 1:
                key = None  # Kafka takes every negative length for null
            else:
                key = body[pos : pos + (size >> 1)]
                pos += size >> 1
            size = body[pos]
            pos += 1
            if size >= 0x80:
                if (more := body[pos]) < 0x80:
                    size = size & 0x7F | more << 7
                    pos += 1
                else:
                    size, pos = read_unsigned(body, pos - 1, end, 32)
            if size & 1:
                value = None
            else:
                value = body[pos : pos + (size >> 1)]
                pos += size >> 1
            if body[pos]:
                headers, pos = read_headers(body, pos, end)
            else:
                headers = []
                pos += 1
            if pos != end:
                raise InvalidRecordsError(f"its fields end {pos - end:+d} bytes from where its length says")
            if append_timestamp is not None:
                timestamp = append_timestamp
            elif not -TIMESTAMP_LIMIT <= timestamp < TIMESTAMP_LIMIT:
                raise InvalidRecordsError(f"its timestamp {timestamp} is out of range")
            yield Record(offset, timestamp, key, value, headers)
    except InvalidRecordsError as error:
        raise InvalidRecordsError(f"record {index} of {count} is malformed: {error.message}") from None
    except IndexError:
        raise InvalidRecordsError(f"record {index} of {count} is cut short by the end of the batch") from None
    if pos != body_end:
        raise InvalidRecordsError(f"{body_end - pos} bytes are left over after the last of {count} records")


def check_count(count: int, body_size: int) -> None:
    """Refuse a record count that a body of `body_size` bytes cannot contain, before memory is allocated for it."""
    if count < 0 or count * RECORD_SIZE_MIN > body_size:
        raise InvalidRecordsError(f"{count} records cannot be in {body_size} bytes")


def _read_nullable(body: bytes, pos: int, end: int) -> tuple[bytes | None, int]:
    size, pos = read_varint(body, pos, end)
    if size < 0:
        return None, pos  # Kafka takes every negative length for null
    check_size(size, end - pos)
    return body[pos : pos + size], pos + size


def read_header_count(body: bytes, pos: int, end: int) -> tuple[int, int]:
    """Read how many headers a record has: (count, position after it). Raises InvalidRecordsError."""
    count, pos = read_varint(body, pos, end)
    if not 0 <= count <= (end - pos) // 2:
        raise InvalidRecordsError(f"{count} headers cannot be in {end - pos} bytes")
    return count, pos


def skip_headers(body: bytes, pos: int, end: int, count: int) -> int:
    """Check `count` headers as `read_headers` does, without decoding them; returns the position after them."""
    for _ in range(count):
        size, pos = read_varint(body, pos, end)
        if size < 0:
            raise InvalidRecordsError("a header key is null")
        check_size(size, end - pos)
        size, pos = read_varint(body, pos + size, end)
        if size > 0:
            check_size(size, end - pos)
            pos += size
    return pos


def check_size(size: int, available: int) -> None:
    """Refuse a field that reaches beyond its record."""
    if size > available:
        raise InvalidRecordsError(f"a field of {size} bytes does not fit the {available} that are left of it")


def read_headers(body: bytes, pos: int, end: int) -> tuple[list[tuple[str, bytes | None]], int]:
    """Read the headers, from their count on: (headers, position after them). Raises InvalidRecordsError."""
    count, pos = read_header_count(body, pos, end)
    headers = []
    for _ in range(count):
        name, pos = _read_nullable(body, pos, end)
        if name is None:
            raise InvalidRecordsError("a header key is null")
        value, pos = _read_nullable(body, pos, end)
        headers.append((name.decode("utf-8", "surrogateescape"), value))
    return headers, pos


def encode_body(records: Iterable[Record], base_offset: int, base_timestamp: int) -> bytearray:
    """Encode `records` as the uncompressed body of a batch. Raises OverflowError if a delta does not fit."""
    body = bytearray()
    for record in records:
        delta = record.offset - base_offset
        if not 0 <= delta < 1 << 31:
            raise OverflowError(f"offset {record.offset} is out of reach of base offset {base_offset}")
        append_record(
            body, record.timestamp - base_timestamp, delta, record.key, record.value, record.headers
        )
    return body


def append_record(
    body: bytearray,
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
) -> None:
    """Encode one record at the end of `body`. Raises OverflowError if a timestamp delta does not fit."""
    timestamp = (
        SMALL[timestamp_delta] if 0 <= timestamp_delta < SMALL_COUNT else encode_varint(timestamp_delta)
    )
    offset = SMALL[offset_delta] if offset_delta < SMALL_COUNT else encode_varint(offset_delta)
    if key is None:
        key_size, key = SMALL[-1], b""
    else:
        size = len(key)
        key_size = SMALL[size] if size < SMALL_COUNT else encode_varint(size)
    if value is None:
        value_size, value = SMALL[-1], b""
    else:
        size = len(value)
        value_size = SMALL[size] if size < SMALL_COUNT else encode_varint(size)
    encoded_headers = _encode_headers(headers) if headers else b"\x00"
    fields = b"".join((b"\x00", timestamp, offset, key_size, key, value_size, value, encoded_headers))
    size = len(fields)
    body += SMALL[size] if size < SMALL_COUNT else encode_varint(size)
    body += fields


def _encode_headers(headers: list[tuple[str, bytes | None]]) -> bytes:
    parts = [encode_varint(len(headers))]
    for name, value in headers:
        raw_name = name.encode("utf-8", "surrogateescape")
        parts += (encode_varint(len(raw_name)), raw_name)
        parts += (SMALL[-1],) if value is None else (encode_varint(len(value)), value)
    return b"".join(parts)
