"""Message sets of the formats v0 and v1 (magic 0 and 1), as clients before 0.11 send and expect them.

The rule: a message that holds others is opened only here. Its inner messages are never compressed themselves.

    message = offset int64, size int32 (of all that follows), crc uint32, magic int8, attributes int8,
              timestamp int64 (v1 only), key length int32 (-1: null), key,
              value length int32 (-1: null), value

The crc is CRC-32 of everything from `magic` on. A compressed *wrapper* is a message whose value is a
compressed message set. It carries the offset of its last inner message. Inner offsets are absolute in v0 and
count from the first inner message in v1 (KIP-31). A v1 wrapper of type LogAppendTime gives its timestamp to
all inner ones (KIP-32).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final
from zlib import crc32

from barnabas.records.batch import (
    CODEC_MASK,
    DECOMPRESSED_BYTES_MAX,
    LEGACY_SIZE_MIN,
    LEGACY_V1_SIZE_MIN,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    TimestampType,
)
from barnabas.records.compression import Codec, compress, decompress
from barnabas.records.errors import CorruptRecordsError, DecompressedTooLargeError, InvalidRecordsError
from barnabas.records.record import Record
from barnabas.records.varint import Buffer

_PREFIX: Final = Struct(">qiIbb")
_OFFSET_AND_SIZE: Final = Struct(">qi")
_CHECKED_V0: Final = Struct(">bbi")
_CHECKED_V1: Final = Struct(">bbqi")
_UINT32: Final = Struct(">I")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_CHECKED_AT: Final = 16  # where the checksum begins to count: the magic


@dataclass(slots=True)
class Message:
    """One message as it is written, wrapper or not. `timestamp` is NO_TIMESTAMP in v0."""

    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    size: int
    is_crc_valid: bool

    @property
    def codec(self) -> int:
        """The codec id; anything but 0 makes it a wrapper."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        """Whether producer or broker set the timestamp; v0 has none."""
        if not self.magic:
            return TimestampType.NO_TIMESTAMP
        return TimestampType(1 if self.attributes & TIMESTAMP_TYPE_BIT else 0)


def read_message(buf: Buffer, pos: int = 0) -> Message:
    """Read the message at `pos`, with its checksum computed but not enforced.

    Raises CorruptRecordsError if it is not whole, is of another magic, or its fields do not fill it exactly.
    """
    left = len(buf) - pos
    if left < LEGACY_SIZE_MIN:
        raise CorruptRecordsError(f"{max(0, left)} bytes are too few for a message")
    offset, length, crc, magic, attributes = _PREFIX.unpack_from(buf, pos)
    size = LOG_OVERHEAD + length
    if magic not in (0, 1):
        raise CorruptRecordsError(f"magic is {magic} where a message (magic 0 or 1) must be")
    if not (LEGACY_V1_SIZE_MIN if magic else LEGACY_SIZE_MIN) <= size <= left:
        raise CorruptRecordsError(
            f"message length {length} is impossible for magic {magic}, {left} bytes are left"
        )
    end = pos + size
    is_crc_valid = crc32(memoryview(buf)[pos + _CHECKED_AT : end]) == crc
    at = pos + _PREFIX.size
    timestamp = NO_TIMESTAMP
    if magic:
        (timestamp,) = _INT64.unpack_from(buf, at)
        at += 8
    key, at = _read_bytes(buf, at, end - _INT32.size)  # a value's length must follow
    value, at = _read_bytes(buf, at, end)
    if at != end:
        raise CorruptRecordsError(f"{end - at} bytes are left over in a message of {size} bytes")
    return Message(offset, magic, attributes, timestamp, key, value, size, is_crc_valid)


def _read_bytes(buf: Buffer, at: int, end: int) -> tuple[bytes | None, int]:
    (size,) = _INT32.unpack_from(buf, at)
    at += _INT32.size
    if size < 0:
        return None, at
    if size > end - at:
        raise CorruptRecordsError(f"a field of {size} bytes does not fit, its message has {end - at} left")
    return bytes(buf[at : at + size]), at + size


def iter_message_set(buf: Buffer) -> Iterator[Message]:
    """Yield the messages of a set as they are written, wrappers unopened. Raises as `read_message`."""
    pos = 0
    while pos < len(buf):
        message = read_message(buf, pos)
        yield message
        pos += message.size


def open_wrapper(
    wrapper: Message, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[Message]:
    """Yield the messages inside of a wrapper, with absolute offsets and the timestamps that count.

    Their checksums are computed but not enforced. Raises InvalidRecordsError if it holds nothing, or one of
    them is compressed, or its offset cannot be; else as `read_message` and `decompress`.
    """
    if wrapper.value is None:
        raise InvalidRecordsError("a compressed message holds null")
    if wrapper.codec == Codec.ZSTD:
        raise InvalidRecordsError(f"message format v{wrapper.magic} knows no zstd")
    data = decompress(wrapper.codec, wrapper.value, magic=wrapper.magic, bytes_max=decompressed_bytes_max)
    last_offset = _last_offset(data)
    shift = _base_offset_v1(wrapper.offset, last_offset) if wrapper.magic == 1 else 0
    replace = wrapper.timestamp_type is TimestampType.LOG_APPEND_TIME
    for message in iter_message_set(data):
        if message.codec:
            raise InvalidRecordsError("a compressed message holds another compressed message")
        message.offset += shift
        if replace and message.magic == 1:
            message.timestamp = wrapper.timestamp
        yield message


def _last_offset(data: bytes) -> int:
    """Return the offset of the last message of a set, read by its lengths alone."""
    pos = offset = 0
    while len(data) - pos >= LEGACY_SIZE_MIN:
        offset, length = _OFFSET_AND_SIZE.unpack_from(data, pos)
        pos += LOG_OVERHEAD + max(length, 0)
    if not pos:
        raise InvalidRecordsError("a compressed message holds no messages")
    return offset


def _base_offset_v1(wrapper_offset: int, last_inner_offset: int) -> int:
    if wrapper_offset == 0:  # some releases of librdkafka produce wrappers so
        return 0
    if wrapper_offset < last_inner_offset:
        raise InvalidRecordsError(
            f"a compressed message has offset {wrapper_offset}, less than its last inner {last_inner_offset}"
        )
    return wrapper_offset - last_inner_offset


def iter_records(
    buf: Buffer, pos: int = 0, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[Record]:
    """Decode the records of the message at `pos`: its own one or, of a wrapper, all that it holds.

    Raises CorruptRecordsError for a wrong checksum (inner ones too), else as `read_message`, `open_wrapper`.
    """
    for message in iter_deep(read_message(buf, pos), decompressed_bytes_max=decompressed_bytes_max):
        yield Record(message.offset, message.timestamp, message.key, message.value)


def iter_deep(message: Message, *, decompressed_bytes_max: int) -> Iterator[Message]:
    """Yield the message itself or, if it is a wrapper, those in it, checksums enforced."""
    check_message_crc(message)
    if not message.codec:
        yield message
        return
    for inner in open_wrapper(message, decompressed_bytes_max=decompressed_bytes_max):
        check_message_crc(inner)
        yield inner


def check_message_crc(message: Message) -> None:
    """Raise CorruptRecordsError if the message's checksum is wrong."""
    if not message.is_crc_valid:
        raise CorruptRecordsError(f"the message with offset {message.offset} has a wrong checksum")


def read_records(
    buf: Buffer, pos: int = 0, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> list[Record]:
    """Decode all records of the message at `pos`; raises as `iter_records`."""
    return list(iter_records(buf, pos, decompressed_bytes_max=decompressed_bytes_max))


def base_offset(buf: Buffer, pos: int = 0, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> int:
    """Return the offset of the first record of the message at `pos`, for which a wrapper must be opened."""
    return next(iter_records(buf, pos, decompressed_bytes_max=decompressed_bytes_max)).offset


def encode_message(
    record: Record,
    *,
    magic: int,
    codec: int = Codec.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> bytes:
    """Write one message, without headers; with a codec, `record.value` is the compressed set."""
    key_size = -1 if record.key is None else len(record.key)
    if magic:
        log_append_time = timestamp_type is TimestampType.LOG_APPEND_TIME
        attributes = codec | (TIMESTAMP_TYPE_BIT if log_append_time else 0)
        checked = _CHECKED_V1.pack(1, attributes, record.timestamp, key_size)
    else:
        checked = _CHECKED_V0.pack(0, codec, key_size)
    value_size = -1 if record.value is None else len(record.value)
    body = b"".join((checked, record.key or b"", _INT32.pack(value_size), record.value or b""))
    return b"".join((_OFFSET_AND_SIZE.pack(record.offset, 4 + len(body)), _UINT32.pack(crc32(body)), body))


def encode_message_set(
    records: Iterable[Record],
    *,
    magic: int,
    codec: int = Codec.NONE,
    level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    append_timestamp: int = NO_TIMESTAMP,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> bytes:
    """Write records as messages or, with a codec, as one wrapper; offsets are kept, with their gaps.

    `append_timestamp` is the timestamp of all of them if the type is LOG_APPEND_TIME. Raises
    UnsupportedCompressionError for zstd, DecompressedTooLargeError if a wrapper would hold too much.
    """
    log_append_time = timestamp_type is TimestampType.LOG_APPEND_TIME
    messages = bytearray()
    first_offset = last_offset = None
    max_timestamp = NO_TIMESTAMP
    for record in records:
        last_offset = record.offset
        if first_offset is None:
            first_offset = last_offset
        timestamp = append_timestamp if log_append_time else record.timestamp
        max_timestamp = max(max_timestamp, timestamp)
        inner_offset = last_offset - first_offset if codec and magic else last_offset
        inner = Record(inner_offset, timestamp, record.key, record.value)
        messages += encode_message(inner, magic=magic, timestamp_type=timestamp_type)
        if codec and len(messages) > decompressed_bytes_max:
            raise DecompressedTooLargeError("converted", decompressed_bytes_max)
    if last_offset is None or not codec:
        return bytes(messages)
    wrapper = Record(last_offset, max_timestamp, None, compress(codec, messages, level, magic=magic))
    return encode_message(wrapper, magic=magic, codec=codec, timestamp_type=timestamp_type)
