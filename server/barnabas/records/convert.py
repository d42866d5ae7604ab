"""Conversion between message formats: up for clients that still write v0 or v1, down for consumers that read them.

The rule: content that the older format lacks is dropped only where Kafka drops it (headers, control batches, producer
state, v0's timestamps); zstd, which must not be dropped, is refused. Records are converted one by one, so that the memory
for a batch is limited to its bytes.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from barnabas.records import legacy
from barnabas.records.batch import (
    DECOMPRESSED_BYTES_MAX,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    RECORD_BYTES_MAX,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    TimestampType,
    iter_batches,
    read_body_steps,
    require_crc,
)
from barnabas.records.compression import Codec, Output
from barnabas.records.cursor import RecordCursor
from barnabas.records.errors import (
    CorruptRecordsError,
    DecompressedTooLargeError,
    InvalidRecordsError,
    UnsupportedCompressionError,
)
from barnabas.records.record import append_record
from barnabas.records.steps import RECORDS_PER_STEP, Steps, Work
from barnabas.records.varint import Buffer, encode_varint

PIECE_BYTES: Final = 64 << 10


def new_header(
    base_offset: int,
    *,
    codec: int = Codec.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    append_timestamp: int = NO_TIMESTAMP,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> BatchHeader:
    """Return a header for a new batch without a producer; `append_timestamp` applies to LOG_APPEND_TIME only."""
    log_append_time = timestamp_type is TimestampType.LOG_APPEND_TIME
    attributes = codec | (TIMESTAMP_TYPE_BIT if log_append_time else 0)
    return BatchHeader(
        base_offset, 0, leader_epoch, 2, 0, attributes, 0, NO_TIMESTAMP, append_timestamp,
        NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, 0,
    )  # fmt: skip


Judge: TypeAlias = Callable[[int, bytes | None, int], bool]
"""Says whether to write a record, by its index, key and timestamp."""


def up_convert_steps(
    buf: Buffer,
    header: BatchHeader,
    out: Output,
    *,
    magic: int,
    judge: Judge,
    decompressed_bytes_max: int,
    record_bytes_max: int = RECORD_BYTES_MAX,
) -> Steps[None]:
    """Write the records of a message set, compressed or not, as the body of a batch to `out`.

    All messages, inner ones too, must be of `magic`. Timestamps of v1 are kept, records of v0 have none (-1). Sets of
    `header`: base and max timestamp (with LOG_APPEND_TIME the max timestamp stays), count, last offset delta. Raises
    InvalidRecordsError if there are no records, else as `legacy.iter_records`, and the errors of `out`.
    """
    count = pos = index = 0
    max_timestamp = NO_TIMESTAMP
    wrapper: legacy.Message | None = None
    data: Buffer = buf
    while pos < len(data):
        message = yield from legacy.read_message_steps(data, pos)
        pos += message.size
        legacy.check_message_crc(message)
        if message.codec and wrapper is None:
            wrapper = message
            data, _ = yield from legacy.open_steps(
                message, decompressed_bytes_max=decompressed_bytes_max, record_bytes_max=record_bytes_max
            )
            pos = 0
            continue
        legacy.check_is_inner(message)
        if message.magic != magic:
            raise InvalidRecordsError(f"a message of magic {message.magic} is inside of one of {magic}")
        timestamp = message.timestamp
        if wrapper is not None and wrapper.timestamp_type is TimestampType.LOG_APPEND_TIME:
            timestamp = wrapper.timestamp
        if judge(index, message.key, timestamp):
            if not count:
                header.base_timestamp = max_timestamp = timestamp
            max_timestamp = max(max_timestamp, timestamp)
            append_record(
                out.pending, timestamp - header.base_timestamp, count, message.key, message.value, []
            )
            count += 1
            if out.is_due:
                yield from out.flush_steps()
        index += 1
        if not index % RECORDS_PER_STEP:
            yield None
    if not index:
        raise InvalidRecordsError("there are no records to make a batch of")
    header.records_count = count
    header.last_offset_delta = count - 1
    if header.timestamp_type is TimestampType.CREATE_TIME:
        header.max_timestamp = max_timestamp


def copy_steps(body: bytes, out: Output) -> Steps[None]:
    """Write the records of a body to `out` unchanged."""
    for at in range(0, len(body), PIECE_BYTES):
        out.pending += body[at : at + PIECE_BYTES]
        if out.is_due:
            yield from out.flush_steps()


def renumber_steps(body: bytes, count: int, out: Output) -> Steps[None]:
    """Write the records of a body (magic 2, known to be well-formed) to `out` with offset deltas that count up."""
    cursor = RecordCursor(body, count)
    while cursor.advance():
        delta = encode_varint(cursor.index)
        rest, end = cursor.key_size_at, cursor.end
        size = end - cursor.fields + len(delta) - (rest - cursor.offset_at)
        out.pending += encode_varint(size)
        out.pending += body[cursor.fields : cursor.offset_at]
        out.pending += delta
        while end - rest > PIECE_BYTES:
            out.pending += body[rest : rest + PIECE_BYTES]
            rest += PIECE_BYTES
            if out.is_due:
                yield from out.flush_steps()
        out.pending += body[rest:end]
        if out.is_due:
            yield from out.flush_steps()
        elif not (cursor.index + 1) % RECORDS_PER_STEP:
            yield None


def down_convert_steps(
    buf: Buffer,
    to_magic: int,
    *,
    bytes_max: int,
    fetch_offset: int = 0,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> Steps[bytes]:
    """Convert each whole batch or message of `buf` to a format that consumers of `to_magic` (0 or 1) know.

    Batches of older formats stay as they are, control batches are dropped. Compressed batches become a wrapper with the
    same codec; uncompressed ones become messages from `fetch_offset` on, because some releases of librdkafka fail at
    earlier offsets. Offsets stay. The result has at most `bytes_max` bytes, but always the first piece.

    Raises UnsupportedCompressionError at a zstd batch, CorruptRecordsError at a wrong checksum, InvalidRecordsError,
    DecompressedTooLargeError. An error after some batches ends the result before the batch at fault: the consumer gets the
    error with its next fetch.
    """
    converted = bytearray()
    try:
        for pos, header in iter_batches(buf):
            if header.magic <= to_magic:
                piece = bytes(buf[pos : pos + header.size])
            elif header.is_control:
                continue
            else:
                piece = yield from _down_convert_batch_steps(
                    buf, pos, header, to_magic, fetch_offset, decompressed_bytes_max
                )
            if converted and len(converted) + len(piece) > bytes_max:
                break
            converted += piece
            yield None
    except (UnsupportedCompressionError, CorruptRecordsError, InvalidRecordsError, DecompressedTooLargeError):
        if not converted:
            raise
    return bytes(converted)


def _down_convert_batch_steps(
    buf: Buffer, pos: int, header: BatchHeader, to_magic: int, fetch_offset: int, decompressed_bytes_max: int
) -> Steps[bytes]:
    """Return a message set of the records of the batch (magic 2, or 1 for readers of 0) at `pos`."""
    if header.codec == Codec.ZSTD:
        raise UnsupportedCompressionError(f"a zstd batch cannot be converted to message format v{to_magic}")
    require_crc(buf, pos, header)
    writer = legacy.MessageSetWriter(
        magic=to_magic,
        codec=header.codec,
        level=None,
        timestamp_type=header.timestamp_type,
        append_timestamp=header.max_timestamp,
        bytes_max=decompressed_bytes_max,
    )
    if header.magic < 2:
        yield from _add_message_steps(buf, pos, writer, fetch_offset, decompressed_bytes_max)
        return writer.finish()
    body = yield from read_body_steps(buf, pos, header, decompressed_bytes_max=decompressed_bytes_max)
    cursor = RecordCursor(body, header.records_count)
    written = 0
    while cursor.advance():
        offset = header.base_offset + cursor.offset_delta
        if header.codec or offset >= fetch_offset:
            timestamp = header.base_timestamp + cursor.timestamp_delta
            if cursor.value_size > PIECE_BYTES:
                end = cursor.value + cursor.value_size
                yield from writer.add_large_steps(
                    offset, timestamp, cursor.read_key(), body, cursor.value, end
                )
            else:
                writer.add(offset, timestamp, cursor.read_key(), cursor.read_value())
        if not (cursor.index + 1) % RECORDS_PER_STEP or writer.size - written > PIECE_BYTES:
            written = writer.size
            yield None
    if not writer.is_large:
        return writer.finish()
    converted: bytes = yield Work(writer.finish)
    return converted


def _add_message_steps(
    buf: Buffer, pos: int, writer: legacy.MessageSetWriter, fetch_offset: int, decompressed_bytes_max: int
) -> Steps[None]:
    """Add the message of v1 at `pos`, or its inner messages, to a set of v0; only logs of old releases contain v1."""

    def add(message: legacy.Message) -> bool:
        if writer.is_compressed or message.offset >= fetch_offset:
            writer.add(message.offset, NO_TIMESTAMP, message.key, message.value)
        return False

    yield from legacy.visit_steps(buf, pos, add, decompressed_bytes_max=decompressed_bytes_max)
