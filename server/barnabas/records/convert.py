"""Conversion between message formats: up for clients that still write v0 or v1, down for their readers.

The rule: what the older format cannot say is dropped only where Kafka drops it (headers, control batches,
producer state, v0's timestamps); what must not be dropped is refused (zstd). Records pass through one by one,
so that a batch takes no more memory than its bytes do.
"""

from collections.abc import Iterable, Iterator

from barnabas.records import legacy
from barnabas.records.batch import (
    DECOMPRESSED_BYTES_MAX,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    TimestampType,
    assemble_batch,
    check_crc,
    iter_any_records,
    iter_batches,
)
from barnabas.records.compression import Codec
from barnabas.records.errors import (
    CorruptRecordsError,
    InvalidRecordsError,
    UnsupportedCompressionError,
)
from barnabas.records.record import Record, encode_body
from barnabas.records.varint import Buffer


def new_header(
    base_offset: int,
    *,
    codec: int = Codec.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    append_timestamp: int = NO_TIMESTAMP,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> BatchHeader:
    """Make a header for `rebuild_batch`, of no producer; `append_timestamp` goes with LOG_APPEND_TIME."""
    log_append_time = timestamp_type is TimestampType.LOG_APPEND_TIME
    attributes = codec | (TIMESTAMP_TYPE_BIT if log_append_time else 0)
    return BatchHeader(
        base_offset, 0, leader_epoch, 2, 0, attributes, 0, NO_TIMESTAMP, append_timestamp,
        NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, 0,
    )  # fmt: skip


def rebuild_batch(records: Iterable[Record], header: BatchHeader, *, level: int | None = None) -> bytes:
    """Write a batch (magic 2) from a stream of records, with offsets that count up from the header's.

    Keeps what else the header says, and updates it: timestamps (with LOG_APPEND_TIME the max timestamp
    stays), count, last offset delta, length and crc. Raises InvalidRecordsError if there are no records.
    """
    source = iter(records)
    first = next(source, None)
    if first is None:
        raise InvalidRecordsError("there are no records to make a batch of")
    header.base_timestamp = max_timestamp = first.timestamp
    count = 0

    def count_up() -> Iterator[Record]:
        nonlocal count, max_timestamp
        record: Record | None = first
        while record is not None:
            record.offset = header.base_offset + count
            max_timestamp = max(max_timestamp, record.timestamp)
            count += 1
            yield record
            record = next(source, None)

    body = encode_body(count_up(), header.base_offset, header.base_timestamp)
    header.records_count = count
    header.last_offset_delta = count - 1
    if header.timestamp_type is TimestampType.CREATE_TIME:
        header.max_timestamp = max_timestamp
    return assemble_batch(header, body, level)


def up_convert(
    buf: Buffer,
    header: BatchHeader,
    *,
    level: int | None = None,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> bytes:
    """Turn a message set of v0 or v1, compressed or not, into one batch; see `rebuild_batch` for `header`.

    Timestamps of v1 are kept, records of v0 have none (-1). Raises as `legacy.iter_records`.
    """
    records = (
        Record(inner.offset, inner.timestamp, inner.key, inner.value)
        for message in legacy.iter_message_set(buf)
        for inner in legacy.iter_deep(message, decompressed_bytes_max=decompressed_bytes_max)
    )
    return rebuild_batch(records, header, level=level)


def iter_down_converted(
    buf: Buffer,
    to_magic: int,
    *,
    fetch_offset: int = 0,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> Iterator[bytes]:
    """Yield each whole batch or message of `buf` in a format that readers of `to_magic` (0 or 1) know.

    Older ones stay as they are, control batches are left out. Compressed batches become a wrapper with the
    same codec; uncompressed ones become messages from `fetch_offset` on, because some releases of librdkafka
    stumble over earlier ones. Offsets stay. Raises UnsupportedCompressionError at a zstd batch,
    CorruptRecordsError at a wrong checksum, DecompressedTooLargeError.
    """
    for pos, header in iter_batches(buf):
        if header.magic <= to_magic:
            yield bytes(buf[pos : pos + header.size])
            continue
        if header.is_control:
            continue
        if header.codec == Codec.ZSTD:
            raise UnsupportedCompressionError(
                f"a zstd batch cannot be converted to message format v{to_magic}"
            )
        if not check_crc(buf, pos, header):
            raise CorruptRecordsError(f"the batch at offset {header.base_offset} has a wrong checksum")
        records = iter_any_records(buf, pos, decompressed_bytes_max=decompressed_bytes_max)
        if not header.codec:
            records = (record for record in records if record.offset >= fetch_offset)
        converted = legacy.encode_message_set(
            records,
            magic=to_magic,
            codec=header.codec,
            timestamp_type=header.timestamp_type,
            append_timestamp=header.max_timestamp,
            decompressed_bytes_max=decompressed_bytes_max,
        )
        if converted:
            yield converted


def down_convert(
    buf: Buffer,
    to_magic: int,
    *,
    bytes_max: int,
    fetch_offset: int = 0,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> bytes:
    """Return what `iter_down_converted` yields up to `bytes_max` bytes, but at least its first piece.

    An error after some batches ends the result before the batch at fault: the reader gets it with its next
    fetch.
    """
    converted = bytearray()
    batches = iter_down_converted(
        buf, to_magic, fetch_offset=fetch_offset, decompressed_bytes_max=decompressed_bytes_max
    )
    try:
        for batch in batches:
            if converted and len(converted) + len(batch) > bytes_max:
                break
            converted += batch
    except (UnsupportedCompressionError, CorruptRecordsError, InvalidRecordsError):
        if not converted:
            raise
    return bytes(converted)
