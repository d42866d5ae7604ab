"""The usual batch of a producer, validated in one call.

The rule: batches accepted here are also accepted by `validate.validate_steps`, and appended as the same bytes. Invalid,
unusual and large batches are left to the steps, which find the error for the client.
"""

from typing import Final

from barnabas.records.batch import (
    ATTRIBUTES_OFFSET,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_OVERHEAD,
    RECORD_BYTES_MAX,
    SEQUENCE_MAX,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    record_size_steps,
    unpack_header,
)
from barnabas.records.compression import CODECS_BY_NAME, SMALL_BYTES, Codec, decompress_small, is_loaded
from barnabas.records.crc import crc32c
from barnabas.records.errors import InvalidRecordsError
from barnabas.records.rules import AppendRules, is_timestamp_allowed
from barnabas.records.scan import COPIED_BYTES_MAX, Scanner, scanner_of
from barnabas.records.steps import RECORDS_PER_STEP, run
from barnabas.records.validated import ValidatedBatches, described, stamped
from barnabas.records.varint import Buffer

PRODUCE_VERSION_MAGIC_2: Final = 3  # the first version of Produce that takes magic 2 only (KIP-98)
PRODUCE_VERSION_ZSTD: Final = 7  # the first one whose clients know zstd (KIP-110)
AS_PRODUCED: Final = "producer"

_UNUSUAL_BITS: Final = TIMESTAMP_TYPE_BIT | CONTROL_BIT | DELETE_HORIZON_BIT | TRANSACTIONAL_BIT
"""Attribute bits that a client may not set, and that of transactions, which are checked before the append."""
# By these names compiled code finds them at once.
_ZSTD: Final = 4
_LZ4: Final = 3
_SMALL_BYTES: Final = 1 << 20
_RECORDS_AT: Final = HEADER_SIZE - ATTRIBUTES_OFFSET  # within the checksummed part
_RECORDS_PER_TURN: Final = 1_000
_SMALL_EFFORT: Final = 4 * _RECORDS_PER_TURN  # room for headers, and for looks at columns

assert (_ZSTD, _LZ4, _SMALL_BYTES, _RECORDS_PER_TURN) == (
    Codec.ZSTD, Codec.LZ4, SMALL_BYTES, RECORDS_PER_STEP,
)  # fmt: skip


def validate_at_once(
    buf: memoryview, *, api_version: int, config: AppendRules, now_ms: int
) -> ValidatedBatches | None:
    """Check a producer's records, if they are one small batch that stays unchanged and is in no transaction, as most are.

    None for all others, which are not modified. Raises RecordsError if count or timestamps are wrong, or the compression
    is broken.
    """
    size = len(buf)
    if size < HEADER_SIZE or size > _SMALL_BYTES or buf.readonly:
        return None
    header = unpack_header(buf)
    count, attributes = header.records_count, header.attributes
    codec = attributes & CODEC_MASK
    if (
        header.magic != 2
        or LOG_OVERHEAD + header.batch_length != size
        or header.base_offset != 0
        or count <= 0
        or count > _RECORDS_PER_TURN
        or header.last_offset_delta != count - 1
        or attributes & _UNUSUAL_BITS
        or size > config.max_message_bytes
        or size > config.segment_bytes
        or (header.producer_id >= 0 and not 0 <= header.base_sequence <= SEQUENCE_MAX)
        or codec > _ZSTD
        or (codec == _ZSTD and PRODUCE_VERSION_MAGIC_2 <= api_version < PRODUCE_VERSION_ZSTD)
        or (config.compression_type != AS_PRODUCED and CODECS_BY_NAME[config.compression_type] != codec)
    ):
        return None
    must_look = must_look_at_records(header, config, now_ms)
    # If it is small, it is copied once, for the checksum and for the look at the records.
    is_copied = must_look and not codec and size <= COPIED_BYTES_MAX
    plain = bytes(buf[ATTRIBUTES_OFFSET:]) if is_copied else b""
    if crc32c(plain or buf[ATTRIBUTES_OFFSET:]) != header.crc:
        return None
    max_timestamp = header.max_timestamp
    if must_look:
        if codec and (not is_loaded(codec) or (codec == _LZ4 and _is_lz4_linked(buf))):
            return None
        try:
            if plain:
                scanner = _scanned(Scanner(plain, count, header.base_timestamp, _RECORDS_AT))
            else:
                scanner = scan_small(buf, header, config)
        except InvalidRecordsError:  # the steps tell the client at which byte of the records
            return None
        if scanner is None:
            return None
        low, high = scanner.span()
        if (
            not scanner.offsets_consecutive
            or (config.compacted and scanner.null_keys)
            or not is_timestamp_allowed(config, now_ms, high)
            or (low != high and not is_timestamp_allowed(config, now_ms, low))
        ):
            return None
        max_timestamp = high
    return described(buf, stamped(buf, header, config, now_ms, max_timestamp), config, now_ms)


def must_look_at_records(header: BatchHeader, config: AppendRules, now_ms: int) -> bool:
    """Return whether the header alone cannot show that the records obey the rules."""
    return (
        config.record_validation == "full"
        or config.compacted
        or config.message_timestamp_before_max_ms < now_ms
        or (config.max_decompressed_message_bytes < RECORD_BYTES_MAX and header.attributes & CODEC_MASK != 0)
        or (not config.append_time and header.max_timestamp - now_ms > config.message_timestamp_after_max_ms)
    )


def scan_small(buf: Buffer, header: BatchHeader, config: AppendRules) -> Scanner | None:
    """Scan the records if they are few enough for one step, as in most batches; else return None.

    Raises InvalidRecordsError if they are malformed, or one exceeds the topic's limit.
    """
    size = LOG_OVERHEAD + header.batch_length
    if header.records_count > _RECORDS_PER_TURN or size > _SMALL_BYTES:
        return None
    body: Buffer = memoryview(buf)[HEADER_SIZE:size]
    if header.attributes & CODEC_MASK:
        bytes_max = min(_SMALL_BYTES, config.decompressed_bytes_max)
        plain = decompress_small(header.codec, body, magic=2, bytes_max=bytes_max)
        if plain is None:
            return None
        run(record_size_steps(plain, header, config.max_decompressed_message_bytes))
        body = plain
    return _scanned(scanner_of(body, header.records_count, header.base_timestamp))


def _scanned(scanner: Scanner) -> Scanner | None:
    return scanner if scanner.advance(_SMALL_EFFORT) else None


def check_lz4_frame(buf: Buffer) -> None:
    """Refuse a frame that would stop the Java consumers of this partition; Kafka cannot read it either."""
    if _is_lz4_linked(buf):
        raise InvalidRecordsError("the blocks of an LZ4 frame must not depend on each other")


def _is_lz4_linked(buf: Buffer) -> bool:
    from barnabas.records.codecs.lz4 import has_linked_blocks

    return has_linked_blocks(buf[HEADER_SIZE : HEADER_SIZE + 8])
