"""Record batches, message format v2 (KIP-98): headers, iteration, checksums, patches in place, records.

The rule: the header is enough for a broker. Records are decoded only on demand, and the fields that the leader changes in
place (base offset, leader epoch) are outside the checksum.

    base offset int64, length int32 (of all that follows it), leader epoch int32, magic int8 (2), crc uint32,
    attributes int16, last offset delta int32, base timestamp int64, max timestamp int64, producer id int64,
    producer epoch int16, base sequence int32, record count int32, records (compressed as one, if at all)

The crc is CRC-32C of everything from `attributes` on. Attribute bits: 0-2 codec, 3 timestamp type, 4 transactional, 5
control, 6 base timestamp is the delete horizon (KIP-534).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Final
from zlib import crc32

from barnabas.records.crc import crc32c
from barnabas.records.errors import CorruptRecordsError, InvalidRecordsError
from barnabas.records.record import Record, iter_body
from barnabas.records.steps import RECORDS_PER_STEP, Steps, run
from barnabas.records.varint import Buffer, read_varint

LENGTH_OFFSET: Final = 8
LOG_OVERHEAD: Final = 12  # base offset and length: what `length` does not count, in all formats
LEADER_EPOCH_OFFSET: Final = 12
MAGIC_OFFSET: Final = 16
CRC_OFFSET: Final = 17
ATTRIBUTES_OFFSET: Final = 21
LAST_OFFSET_DELTA_OFFSET: Final = 23
BASE_TIMESTAMP_OFFSET: Final = 27
MAX_TIMESTAMP_OFFSET: Final = 35
PRODUCER_ID_OFFSET: Final = 43
PRODUCER_EPOCH_OFFSET: Final = 51
BASE_SEQUENCE_OFFSET: Final = 53
RECORDS_COUNT_OFFSET: Final = 57
HEADER_SIZE: Final = 61

HEADER_SIZE_UP_TO_MAGIC: Final = MAGIC_OFFSET + 1
LEGACY_SIZE_MIN: Final = LOG_OVERHEAD + 14  # an empty message of v0: crc, magic, attributes, two null lengths
LEGACY_CRC_OFFSET: Final = 12
LEGACY_ATTRIBUTES_OFFSET: Final = 17
LEGACY_TIMESTAMP_OFFSET: Final = 18
LEGACY_V1_SIZE_MIN: Final = LEGACY_SIZE_MIN + 8

CODEC_MASK: Final = 0x07
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40
KNOWN_BITS: Final = 0x7F
OF_A_BROKER_BITS: Final = TIMESTAMP_TYPE_BIT | DELETE_HORIZON_BIT
"""Attributes that a broker gives a batch in its log; another broker that is sent the batch decides them anew."""

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1
SEQUENCE_MAX: Final = (1 << 31) - 1
UNKNOWN_COUNT: Final = -1

DECOMPRESSED_BYTES_MAX: Final = 128 << 20  # our own limit: Kafka has none
RECORD_BYTES_MAX: Final = (1 << 31) - 9
"""Default of max.decompressed.message.bytes: the largest record that Kafka can hold."""

HEADER_LAYOUT: Final = Struct(">qiibIhiqqqhii")
_LEGACY_HEADER: Final = Struct(">qiIbb")
_unpack_header: Final = HEADER_LAYOUT.unpack_from
_pack_place: Final = Struct(">qii").pack_into  # base offset, length, leader epoch
_INT64: Final = Struct(">q")
_INT32: Final = Struct(">i")
_UINT32: Final = Struct(">I")
_INT16: Final = Struct(">h")


def transactional_producer(records: object) -> tuple[int, int, int] | None:
    """Return producer id, epoch and first sequence number of records in memory with a transactional first batch.

    None for others.
    """
    if (
        not isinstance(records, memoryview)
        or len(records) < HEADER_SIZE
        or not records[ATTRIBUTES_OFFSET + 1] & TRANSACTIONAL_BIT
        or records[MAGIC_OFFSET] != 2
    ):
        return None
    return (
        _INT64.unpack_from(records, PRODUCER_ID_OFFSET)[0],
        _INT16.unpack_from(records, PRODUCER_EPOCH_OFFSET)[0],
        _INT32.unpack_from(records, BASE_SEQUENCE_OFFSET)[0],
    )


class TimestampType(IntEnum):
    """Origin of the timestamps of a batch; the value is the attribute bit."""

    NO_TIMESTAMP = -1  # magic 0 has none
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


@dataclass(slots=True, init=False)  # with an __init__ that can be compiled: a header is made for each batch
class BatchHeader:
    """The header of a batch of any magic; timestamps in ms, `batch_length` as on the wire.

    A message of magic 0 or 1 is shown as a batch that begins and ends at its own offset, with its timestamp as both
    timestamps. The offset of a compressed wrapper is its *last* one: its first is unknown until the wrapper is decompressed
    (`legacy.base_offset`), and `records_count` is UNKNOWN_COUNT.
    """

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    def __init__(
        self,
        base_offset: int,
        batch_length: int,
        leader_epoch: int,
        magic: int,
        crc: int,
        attributes: int,
        last_offset_delta: int,
        base_timestamp: int,
        max_timestamp: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        records_count: int,
    ) -> None:
        self.base_offset = base_offset
        self.batch_length = batch_length
        self.leader_epoch = leader_epoch
        self.magic = magic
        self.crc = crc
        self.attributes = attributes
        self.last_offset_delta = last_offset_delta
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.records_count = records_count

    @property
    def size(self) -> int:
        """All bytes of the batch, header and records."""
        return LOG_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        """The last offset that the batch covers, even if compaction removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after this batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record (sequences wrap to 0 after 2^31 - 1), or NO_SEQUENCE."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX

    @property
    def codec(self) -> int:
        """The compression codec id, see `compression.Codec`; it may be an unknown id."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        """Origin of the timestamps: the producer or the broker; magic 0 has none."""
        if self.attributes & TIMESTAMP_TYPE_BIT:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME if self.magic else TimestampType.NO_TIMESTAMP

    @property
    def is_transactional(self) -> bool:
        """True if the records belong to a transaction."""
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        """True if the records are markers that consumers must not see."""
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        """True if a cleaner noted when tombstones and markers of this batch may go (KIP-534)."""
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time after which tombstones and markers of this batch may be removed, or None."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def has_producer_id(self) -> bool:
        """True if the batch has the id of an idempotent or transactional producer."""
        return self.producer_id > NO_PRODUCER_ID


def read_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """Read the header of a batch of magic 2; its records need not be in `buf`.

    Raises CorruptRecordsError if `buf` has fewer than HEADER_SIZE bytes, or the magic or the length is invalid.
    """
    if len(buf) - pos < HEADER_SIZE:
        raise CorruptRecordsError(
            f"{max(0, len(buf) - pos)} bytes are too few for the header of a record batch"
        )
    header = unpack_header(buf, pos)
    if header.magic != 2:
        raise CorruptRecordsError(f"magic is {header.magic} where a record batch (magic 2) must be")
    if header.batch_length < HEADER_SIZE - LOG_OVERHEAD:
        raise CorruptRecordsError(f"record batch length {header.batch_length} is less than its header takes")
    return header


def unpack_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """Parse HEADER_SIZE bytes as the header of a batch of magic 2; magic and length may be invalid."""
    (
        base_offset, length, leader_epoch, magic, crc, attributes, last_offset_delta, base_timestamp,
        max_timestamp, producer_id, producer_epoch, base_sequence, count,
    ) = _unpack_header(buf, pos)  # fmt: skip
    return BatchHeader(
        base_offset, length, leader_epoch, magic, crc, attributes, last_offset_delta, base_timestamp,
        max_timestamp, producer_id, producer_epoch, base_sequence, count,
    )  # fmt: skip


def read_any_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """Read the header of a batch or legacy message of any magic (see `BatchHeader` for how the latter looks).

    Raises CorruptRecordsError if the header is cut short, or magic or length cannot be.
    """
    size = len(buf) - pos
    if size < HEADER_SIZE_UP_TO_MAGIC:
        raise CorruptRecordsError(f"{max(0, size)} bytes are too few for the header of records")
    magic = buf[pos + MAGIC_OFFSET]
    if magic == 2:
        return read_header(buf, pos)
    if magic > 2:
        raise CorruptRecordsError(f"magic {magic} is unknown")
    if size < (LEGACY_V1_SIZE_MIN if magic else LEGACY_SIZE_MIN):
        raise CorruptRecordsError(f"{size} bytes are too few for a message of magic {magic}")
    offset, length, crc, _, attributes = _LEGACY_HEADER.unpack_from(buf, pos)
    if LOG_OVERHEAD + length < (LEGACY_V1_SIZE_MIN if magic else LEGACY_SIZE_MIN):
        raise CorruptRecordsError(f"message length {length} is too small for magic {magic}")
    timestamp = _INT64.unpack_from(buf, pos + LEGACY_TIMESTAMP_OFFSET)[0] if magic else NO_TIMESTAMP
    attributes &= CODEC_MASK | TIMESTAMP_TYPE_BIT if magic else CODEC_MASK
    count = UNKNOWN_COUNT if attributes & CODEC_MASK else 1
    return BatchHeader(
        offset, length, NO_LEADER_EPOCH, magic, crc, attributes, 0, timestamp, timestamp,
        NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, count,
    )  # fmt: skip


def iter_batches(buf: Buffer, pos: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each batch or legacy message that is whole in `buf`, from `pos` on.

    Stops before a trailing incomplete batch: fetches and torn writes end that way (`whole_size` returns where).
    Raises CorruptRecordsError at an invalid length or magic.
    """
    buf_end = len(buf)
    while buf_end - pos >= HEADER_SIZE_UP_TO_MAGIC:
        size = LOG_OVERHEAD + _INT32.unpack_from(buf, pos + LENGTH_OFFSET)[0]
        if size > buf_end - pos:
            if buf[pos + MAGIC_OFFSET] > 2:
                raise CorruptRecordsError(f"magic {buf[pos + MAGIC_OFFSET]} at byte {pos} is unknown")
            return
        yield pos, read_any_header(buf, pos)
        pos += size


def whole_size(buf: Buffer, pos: int = 0) -> int:
    """Return how many bytes from `pos` on are whole batches, without a partial one at the end."""
    end = pos
    for at, header in iter_batches(buf, pos):
        end = at + header.size
    return end - pos


def compute_crc(buf: Buffer, pos: int, header: BatchHeader) -> int:
    """Compute the checksum that the batch or message at `pos` must have: CRC-32C for magic 2, else CRC-32."""
    end = pos + LOG_OVERHEAD + header.batch_length
    view = buf if isinstance(buf, memoryview) else memoryview(buf)
    if header.magic == 2:
        return crc32c(view[pos + ATTRIBUTES_OFFSET : end])
    return crc32(view[pos + MAGIC_OFFSET : end])


def check_crc(buf: Buffer, pos: int, header: BatchHeader) -> bool:
    """Return whether the batch or message at `pos` is complete and has the checksum in its header."""
    return len(buf) - pos >= header.size and compute_crc(buf, pos, header) == header.crc


def require_crc(buf: Buffer, pos: int, header: BatchHeader) -> None:
    """Raise CorruptRecordsError unless `check_crc` finds the batch or message at `pos` sound."""
    if not check_crc(buf, pos, header):
        raise CorruptRecordsError(f"the batch at offset {header.base_offset} has a wrong checksum")


def require_order(header: BatchHeader, next_offset: int, end_offset: int) -> None:
    """Raise CorruptRecordsError unless the offsets of a batch go from `next_offset` or later to before `end_offset`.

    No checksum covers its base offset.
    """
    base_offset, last_offset = header.base_offset, header.last_offset
    if not next_offset <= base_offset <= last_offset:
        raise CorruptRecordsError(f"offsets {base_offset} to {last_offset} follow {next_offset - 1}")
    if last_offset >= end_offset:
        raise CorruptRecordsError(f"offset {last_offset} is out of reach: it must be below {end_offset}")


def place_batch(buf: bytearray | memoryview, header: BatchHeader) -> None:
    """Write the offsets and the leader epoch of `header` into its batch (magic 2), which is at the start of `buf`."""
    _pack_place(buf, 0, header.base_offset, header.batch_length, header.leader_epoch)


def set_max_timestamp(
    buf: bytearray | memoryview, pos: int, timestamp_type: TimestampType, max_timestamp: int
) -> None:
    """Set timestamp type and max timestamp of the batch (magic 2) at `pos`, and its checksum if necessary.

    With LOG_APPEND_TIME, `max_timestamp` becomes the timestamp of all records.
    """
    header = read_header(buf, pos)
    if (
        header.timestamp_type is timestamp_type
        and header.max_timestamp == max_timestamp
        and not header.has_delete_horizon
    ):
        return
    header.attributes &= KNOWN_BITS & ~OF_A_BROKER_BITS  # as Kafka: bits without a meaning do not stay
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        header.attributes |= TIMESTAMP_TYPE_BIT
    _INT16.pack_into(buf, pos + ATTRIBUTES_OFFSET, header.attributes)
    _INT64.pack_into(buf, pos + MAX_TIMESTAMP_OFFSET, max_timestamp)
    _UINT32.pack_into(buf, pos + CRC_OFFSET, compute_crc(buf, pos, header))


def read_body(buf: Buffer, pos: int, header: BatchHeader, *, decompressed_bytes_max: int) -> bytes:
    """Return the records of the batch (magic 2) at `pos` as one uncompressed run, still encoded.

    Raises CorruptRecordsError if the batch is not whole, CompressedStreamError if its stream is broken,
    DecompressedTooLargeError beyond `decompressed_bytes_max`, UnsupportedCompressionError for an unknown
    codec.
    """
    size = header.size
    if len(buf) - pos < size:
        raise CorruptRecordsError(f"record batch is cut short: {len(buf) - pos} of {size} bytes")
    view = buf if isinstance(buf, memoryview) else memoryview(buf)
    body = view[pos + HEADER_SIZE : pos + size]
    if not header.attributes & CODEC_MASK:
        return bytes(body)
    from barnabas.records.compression import decompress

    return decompress(header.codec, body, magic=2, bytes_max=decompressed_bytes_max)


def read_body_steps(
    buf: Buffer, pos: int, header: BatchHeader, *, decompressed_bytes_max: int
) -> Steps[bytes]:
    """Do as `read_body` by steps."""
    size = header.size
    if not header.attributes & CODEC_MASK or len(buf) - pos < size:
        return read_body(buf, pos, header, decompressed_bytes_max=decompressed_bytes_max)
    from barnabas.records.compression import decompress_steps

    data = memoryview(buf)[pos + HEADER_SIZE : pos + size]
    return (yield from decompress_steps(header.codec, data, magic=2, bytes_max=decompressed_bytes_max))


def record_size_steps(body: Buffer, header: BatchHeader, record_bytes_max: int) -> Steps[None]:
    """Check the sizes of decompressed records (magic 2) against `record_bytes_max`, in steps.

    Raises InvalidRecordsError if one is larger. Records that were not compressed may have any size, as in Kafka.
    """
    size = len(body)
    if size <= record_bytes_max or not header.attributes & CODEC_MASK:
        return
    pos = index = 0
    while pos < size and index < header.records_count:
        length, pos = read_varint(body, pos, size)
        check_record_size(length, record_bytes_max)
        pos += max(length, 0)
        index += 1
        if not index % RECORDS_PER_STEP:
            yield None


def check_record_size(size: int, record_bytes_max: int) -> None:
    """Raise InvalidRecordsError if a decompressed record of `size` bytes exceeds the topic's limit."""
    if size > record_bytes_max:
        raise InvalidRecordsError(
            f"a record of {size} bytes exceeds max.decompressed.message.bytes, {record_bytes_max}"
        )


def iter_records(
    buf: Buffer,
    pos: int = 0,
    *,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    record_bytes_max: int = RECORD_BYTES_MAX,
) -> Iterator[Record]:
    """Decode the records of the batch (magic 2) at `pos`, lazily; the checksum is not checked.

    Raises like `read_body`, and InvalidRecordsError at the first record that is malformed, or if a compressed one is larger
    than `record_bytes_max`.
    """
    header = read_header(buf, pos)
    body = read_body(buf, pos, header, decompressed_bytes_max=decompressed_bytes_max)
    run(record_size_steps(body, header, record_bytes_max))
    append_timestamp = header.max_timestamp if header.attributes & TIMESTAMP_TYPE_BIT else None
    return iter_body(body, header.records_count, header.base_offset, header.base_timestamp, append_timestamp)


def read_records(
    buf: Buffer, pos: int = 0, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> list[Record]:
    """Decode all records of the batch (magic 2) at `pos`; raises like `iter_records`."""
    return list(iter_records(buf, pos, decompressed_bytes_max=decompressed_bytes_max))
