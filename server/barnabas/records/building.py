"""Building record batches of magic 2: from records, from keys and values, from a header and a body, from cleaned batches.

The rule: only `join_batch` computes the length and the checksum of a new batch. The layout is in `records.batch`.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from barnabas.records.batch import (
    CONTROL_BIT,
    CRC_OFFSET,
    DELETE_HORIZON_BIT,
    HEADER_LAYOUT,
    HEADER_SIZE,
    LOG_OVERHEAD,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    TimestampType,
    compute_crc,
)
from barnabas.records.errors import InvalidRecordsError
from barnabas.records.record import Record, append_record, encode_body
from barnabas.records.varint import Buffer

_pack_header: Final = HEADER_LAYOUT.pack_into
_pack_crc: Final = Struct(">I").pack_into


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    codec: int = 0,
    level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    max_timestamp: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = NO_LEADER_EPOCH,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """Write a batch of magic 2 that holds `records` in the order given.

    `base_offset` and `last_offset` are those of the first and the last record unless given (a compacted batch keeps its old
    ones). `max_timestamp` is the greatest of the records unless given: give it with LOG_APPEND_TIME. `records` may be empty
    if both offsets are given; with such a header a cleaner keeps a producer's last sequence. Raises InvalidRecordsError if
    there are neither records nor offsets, and OverflowError if a number does not fit.
    """
    if base_offset is None or last_offset is None:
        if not records:
            raise InvalidRecordsError("an empty batch needs a base offset and a last offset")
        base_offset = records[0].offset if base_offset is None else base_offset
        last_offset = records[-1].offset if last_offset is None else last_offset
    if not 0 <= last_offset - base_offset < 1 << 31:
        raise OverflowError(f"offsets {base_offset} to {last_offset} do not fit one batch")
    first_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    base_timestamp = first_timestamp if delete_horizon_ms is None else delete_horizon_ms
    if max_timestamp is None:
        max_timestamp = max([record.timestamp for record in records], default=NO_TIMESTAMP)
    attributes = (
        (codec if records else 0)
        | (TIMESTAMP_TYPE_BIT if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
        | (DELETE_HORIZON_BIT if delete_horizon_ms is not None else 0)
    )
    header = BatchHeader(
        base_offset, 0, leader_epoch, 2, 0, attributes, last_offset - base_offset, base_timestamp,
        max_timestamp, producer_id, producer_epoch, base_sequence, len(records),
    )  # fmt: skip
    return assemble_batch(header, encode_body(records, base_offset, base_timestamp), level)


def encode_pairs(
    pairs: Sequence[tuple[bytes, bytes | None]],
    timestamp: int,
    *,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    transactional: bool = False,
) -> bytearray:
    """Write an uncompressed batch of magic 2 of keys and values that all have the same timestamp."""
    body = bytearray()
    for index, (key, value) in enumerate(pairs):
        append_record(body, 0, index, key, value, [])
    return batch_of_body(
        body,
        len(pairs),
        timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=transactional,
    )


def batch_of_body(
    body: Buffer,
    count: int,
    timestamp: int,
    *,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    transactional: bool = False,
) -> bytearray:
    """Write an uncompressed batch of magic 2 of `count` encoded records that all have the same timestamp."""
    attributes = TRANSACTIONAL_BIT if transactional else 0
    header = BatchHeader(
        0, 0, NO_LEADER_EPOCH, 2, 0, attributes, count - 1, timestamp, timestamp, producer_id,
        producer_epoch, NO_SEQUENCE, count,
    )  # fmt: skip
    return join_batch(header, body)


def assemble_batch(header: BatchHeader, body: Buffer, level: int | None = None) -> bytes:
    """Compress a body with the header's codec and join the two; sets the same fields of `header` as `join_batch`."""
    if header.codec:
        from barnabas.records.compression import compress

        body = compress(header.codec, body, level)
    return bytes(join_batch(header, body))


def join_batch(header: BatchHeader, body: Buffer) -> bytearray:
    """Join a header and a body that is compressed by the header's codec; sets `batch_length` and `crc` of `header`."""
    header.batch_length = HEADER_SIZE - LOG_OVERHEAD + len(body)
    batch = bytearray(HEADER_SIZE)
    batch += body
    _pack_header(
        batch, 0, header.base_offset, header.batch_length, header.leader_epoch, 2, 0, header.attributes,
        header.last_offset_delta, header.base_timestamp, header.max_timestamp, header.producer_id,
        header.producer_epoch, header.base_sequence, header.records_count,
    )  # fmt: skip
    header.crc = compute_crc(batch, 0, header)
    _pack_crc(batch, CRC_OFFSET, header.crc)
    return batch


def retain_records(
    header: BatchHeader,
    records: Sequence[Record],
    *,
    delete_horizon_ms: int | None = None,
    level: int | None = None,
) -> bytes:
    """Encode the retained records of a cleaned batch (magic 2); all other fields stay.

    Offsets, producer state and codec stay; the max timestamp becomes that of `records` (with LogAppendTime, or if `records`
    is empty, it stays). An empty batch is not compressed. `delete_horizon_ms` None removes an existing delete horizon.
    """
    return encode_batch(
        records,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        codec=header.codec,
        level=level,
        timestamp_type=header.timestamp_type,
        max_timestamp=(
            header.max_timestamp if not records or header.attributes & TIMESTAMP_TYPE_BIT else None
        ),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        control=header.is_control,
        leader_epoch=header.leader_epoch,
        delete_horizon_ms=delete_horizon_ms,
    )
