"""Message sets of the formats v0 and v1 (magic 0 and 1), as clients before 0.11 send and expect them.

The rule: wrappers are decompressed only in this module. Inner messages are never compressed themselves.

    message = offset int64, size int32 (of all that follows), crc uint32, magic int8, attributes int8,
              timestamp int64 (v1 only), key length int32 (-1: null), key,
              value length int32 (-1: null), value

The crc is CRC-32 of everything from `magic` on. A compressed *wrapper* is a message with a compressed message set as its
value. It carries the offset of its last inner message. Inner offsets are absolute in v0 and count from the first inner
message in v1 (KIP-31). The timestamp of a v1 wrapper of type LogAppendTime applies to all inner messages (KIP-32).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
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
    RECORD_BYTES_MAX,
    TIMESTAMP_TYPE_BIT,
    TimestampType,
    check_record_size,
)
from barnabas.records.compression import Codec, compress, decompress_small, decompress_steps
from barnabas.records.errors import CorruptRecordsError, DecompressedTooLargeError, InvalidRecordsError
from barnabas.records.record import Record
from barnabas.records.steps import RECORDS_PER_STEP, Steps, Work, run
from barnabas.records.varint import Buffer

_PREFIX: Final = Struct(">qiIbb")
_OFFSET_AND_SIZE: Final = Struct(">qi")
_CHECKED_V0: Final = Struct(">bbi")
_CHECKED_V1: Final = Struct(">bbqi")
_UINT32: Final = Struct(">I")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_CHECKED_AT: Final = 16  # where the checksum begins to count: the magic
_STEP_BYTES: Final = 64 << 10
_LARGE_BYTES: Final = 1 << 20


@dataclass(slots=True)
class Message:
    """A message as stored, wrapper or not. `timestamp` is NO_TIMESTAMP in v0."""

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
        """The codec id; a message with any id but 0 is a wrapper."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        """Origin of the timestamp: the producer or the broker; v0 has none."""
        if not self.magic:
            return TimestampType.NO_TIMESTAMP
        return TimestampType(1 if self.attributes & TIMESTAMP_TYPE_BIT else 0)


def read_message(buf: Buffer, pos: int = 0) -> Message:
    """Read the message at `pos`, with its checksum computed but not enforced.

    Raises CorruptRecordsError if it is not whole, is of another magic, or its fields do not fill it exactly.
    """
    available = len(buf) - pos
    if available < LEGACY_SIZE_MIN:
        raise CorruptRecordsError(f"{max(0, available)} bytes are too few for a message")
    offset, length, crc, magic, attributes = _PREFIX.unpack_from(buf, pos)
    size = LOG_OVERHEAD + length
    if magic not in (0, 1):
        raise CorruptRecordsError(f"magic is {magic} where a message (magic 0 or 1) must be")
    if not (LEGACY_V1_SIZE_MIN if magic else LEGACY_SIZE_MIN) <= size <= available:
        raise CorruptRecordsError(
            f"message length {length} is impossible for magic {magic}, {available} bytes are left"
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
    """Yield the messages of a set as stored, wrappers unopened. Raises as `read_message`."""
    pos = 0
    while pos < len(buf):
        message = read_message(buf, pos)
        yield message
        pos += message.size


def open_wrapper(
    wrapper: Message,
    *,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    record_bytes_max: int = RECORD_BYTES_MAX,
) -> Iterator[Message]:
    """Yield the inner messages of a wrapper, with absolute offsets and their effective timestamps.

    Their checksums are computed but not enforced. Raises InvalidRecordsError if the wrapper is empty, or an inner message
    is compressed or has an invalid offset; else as `read_message` and `decompress`.
    """
    data, shift = run(
        open_steps(wrapper, decompressed_bytes_max=decompressed_bytes_max, record_bytes_max=record_bytes_max)
    )
    replace = wrapper.timestamp_type is TimestampType.LOG_APPEND_TIME
    for message in iter_message_set(data):
        check_is_inner(message)
        message.offset += shift
        if replace and message.magic == 1:
            message.timestamp = wrapper.timestamp
        yield message


def open_steps(
    wrapper: Message, *, decompressed_bytes_max: int, record_bytes_max: int = RECORD_BYTES_MAX
) -> Steps[tuple[bytes, int]]:
    """Decompress a wrapper, in steps: returns the message set, and the base of its offsets. Raises as `open_wrapper`."""
    value = wrapper.value
    if value is None:
        raise InvalidRecordsError("a compressed message holds null")
    if wrapper.codec == Codec.ZSTD:
        raise InvalidRecordsError(f"message format v{wrapper.magic} knows no zstd")
    small = min(_STEP_BYTES, decompressed_bytes_max)
    data = decompress_small(wrapper.codec, value, magic=wrapper.magic, bytes_max=small)
    if data is None:
        data = yield from decompress_steps(
            wrapper.codec, value, magic=wrapper.magic, bytes_max=decompressed_bytes_max
        )
    last_offset = yield from _last_offset_steps(data, record_bytes_max)
    return data, _base_offset_v1(wrapper.offset, last_offset) if wrapper.magic == 1 else 0


def check_is_inner(message: Message) -> None:
    """Refuse a message inside of a wrapper that is one itself."""
    if message.codec:
        raise InvalidRecordsError("a compressed message holds another compressed message")


def _last_offset_steps(data: bytes, record_bytes_max: int) -> Steps[int]:
    """Return the offset of the last message of a set, read by its lengths alone, which are bounded."""
    pos = offset = count = 0
    while len(data) - pos >= LEGACY_SIZE_MIN:
        offset, length = _OFFSET_AND_SIZE.unpack_from(data, pos)
        check_record_size(length, record_bytes_max)
        pos += LOG_OVERHEAD + max(length, 0)
        count += 1
        if not count % RECORDS_PER_STEP:
            yield None
    if not pos:
        raise InvalidRecordsError("a compressed message holds no messages")
    return offset


def visit_steps(
    buf: Buffer,
    pos: int,
    visit: Callable[[Message], bool],
    *,
    decompressed_bytes_max: int,
    record_bytes_max: int = RECORD_BYTES_MAX,
) -> Steps[bool]:
    """Call `visit` with the message at `pos`, or with each inner message of a wrapper, until it returns true.

    Returns whether it did. Offsets are absolute, timestamps the effective ones. Raises as `iter_records`.
    """
    message = yield from read_message_steps(buf, pos)
    check_message_crc(message)
    if not message.codec:
        return visit(message)
    data, shift = yield from open_steps(
        message, decompressed_bytes_max=decompressed_bytes_max, record_bytes_max=record_bytes_max
    )
    replace = message.timestamp_type is TimestampType.LOG_APPEND_TIME
    at = count = 0
    while at < len(data):
        inner = yield from read_message_steps(data, at)
        check_message_crc(inner)
        check_is_inner(inner)
        at += inner.size
        inner.offset += shift
        if replace and inner.magic == 1:
            inner.timestamp = message.timestamp
        if visit(inner):
            return True
        count += 1
        if not count % RECORDS_PER_STEP:
            yield None
    return False


def read_message_steps(buf: Buffer, pos: int) -> Steps[Message]:
    """Read the message at `pos` as `read_message` does; its checksum, if it is large, in `Work`."""
    if len(buf) - pos >= LOG_OVERHEAD and _OFFSET_AND_SIZE.unpack_from(buf, pos)[1] > _LARGE_BYTES:
        message: Message = yield Work(partial(read_message, buf, pos))
        return message
    return read_message(buf, pos)


def _base_offset_v1(wrapper_offset: int, last_inner_offset: int) -> int:
    if wrapper_offset == 0:  # some releases of librdkafka produce wrappers so
        return 0
    if wrapper_offset < last_inner_offset:
        raise InvalidRecordsError(
            f"a compressed message has offset {wrapper_offset}, less than its last inner {last_inner_offset}"
        )
    return wrapper_offset - last_inner_offset


def iter_records(
    buf: Buffer,
    pos: int = 0,
    *,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    record_bytes_max: int = RECORD_BYTES_MAX,
) -> Iterator[Record]:
    """Decode the record of the message at `pos`, or all records of a wrapper.

    Raises CorruptRecordsError for a wrong checksum (also of an inner message), else as `read_message`, `open_wrapper`.
    """
    for message in iter_deep(
        read_message(buf, pos),
        decompressed_bytes_max=decompressed_bytes_max,
        record_bytes_max=record_bytes_max,
    ):
        yield Record(message.offset, message.timestamp, message.key, message.value)


def iter_deep(
    message: Message, *, decompressed_bytes_max: int, record_bytes_max: int = RECORD_BYTES_MAX
) -> Iterator[Message]:
    """Yield the message itself or, if it is a wrapper, its inner messages; checksums are enforced."""
    check_message_crc(message)
    if not message.codec:
        yield message
        return
    for inner in open_wrapper(
        message, decompressed_bytes_max=decompressed_bytes_max, record_bytes_max=record_bytes_max
    ):
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
    """Encode records as messages or, with a codec, as one wrapper; offsets are kept, with their gaps.

    `append_timestamp` is the timestamp of all records if the type is LOG_APPEND_TIME. Raises
    UnsupportedCompressionError for zstd, DecompressedTooLargeError if a wrapper would hold too much.
    """
    writer = MessageSetWriter(
        magic=magic,
        codec=codec,
        level=level,
        timestamp_type=timestamp_type,
        append_timestamp=append_timestamp,
        bytes_max=decompressed_bytes_max,
    )
    for record in records:
        writer.add(record.offset, record.timestamp, record.key, record.value)
    return writer.finish()


class MessageSetWriter:
    """Writer of a message set; `encode_message_set` describes its rules and errors."""

    __slots__ = (
        "_append_timestamp",
        "_bytes_max",
        "_codec",
        "_first_offset",
        "_last_offset",
        "_level",
        "_magic",
        "_max_timestamp",
        "_messages",
        "_timestamp_type",
    )

    def __init__(
        self,
        *,
        magic: int,
        codec: int,
        level: int | None,
        timestamp_type: TimestampType,
        append_timestamp: int,
        bytes_max: int,
    ) -> None:
        self._magic = magic
        self._codec = codec
        self._level = level
        self._timestamp_type = timestamp_type
        self._append_timestamp = append_timestamp
        self._bytes_max = bytes_max
        self._messages = bytearray()
        self._first_offset = self._last_offset = -1
        self._max_timestamp = NO_TIMESTAMP

    def add(self, offset: int, timestamp: int, key: bytes | None, value: bytes | None) -> None:
        """Append a message."""
        record = self._place(offset, timestamp, key, value)
        self._messages += encode_message(record, magic=self._magic, timestamp_type=self._timestamp_type)
        self._check_size()

    def add_large_steps(
        self, offset: int, timestamp: int, key: bytes | None, body: Buffer, at: int, end: int
    ) -> Steps[None]:
        """Append a message with the value `body[at:end]`, piece by piece."""
        record = self._place(offset, timestamp, key, None)
        start = len(self._messages)
        empty = encode_message(record, magic=self._magic, timestamp_type=self._timestamp_type)
        self._messages += empty[: -_INT32.size] + _INT32.pack(end - at)
        crc = crc32(memoryview(self._messages)[start + _CHECKED_AT :])
        while at < end:
            piece = body[at : min(at + _STEP_BYTES, end)]
            crc = crc32(piece, crc)
            self._messages += piece
            self._check_size()
            at += _STEP_BYTES
            yield None
        _OFFSET_AND_SIZE.pack_into(
            self._messages, start, record.offset, len(self._messages) - start - LOG_OVERHEAD
        )
        _UINT32.pack_into(self._messages, start + LOG_OVERHEAD, crc)

    def _place(self, offset: int, timestamp: int, key: bytes | None, value: bytes | None) -> Record:
        if self._first_offset < 0:
            self._first_offset = offset
        self._last_offset = offset
        if self._timestamp_type is TimestampType.LOG_APPEND_TIME:
            timestamp = self._append_timestamp
        self._max_timestamp = max(self._max_timestamp, timestamp)
        inner_offset = offset - self._first_offset if self._codec and self._magic else offset
        return Record(inner_offset, timestamp, key, value)

    def _check_size(self) -> None:
        if self._codec and len(self._messages) > self._bytes_max:
            raise DecompressedTooLargeError("converted", self._bytes_max)

    @property
    def size(self) -> int:
        """Number of bytes of the messages, before they are compressed."""
        return len(self._messages)

    @property
    def is_compressed(self) -> bool:
        """True if all messages go into one wrapper."""
        return self._codec != Codec.NONE

    @property
    def is_large(self) -> bool:
        """True if `finish` may take long, and must run as `Work`."""
        return self._codec != Codec.NONE and len(self._messages) > _STEP_BYTES

    def finish(self) -> bytes:
        """Return all messages or, with a codec, the wrapper; empty if no message was added."""
        if self._last_offset < 0 or not self._codec:
            return bytes(self._messages)
        value = compress(self._codec, self._messages, self._level, magic=self._magic)
        wrapper = Record(self._last_offset, self._max_timestamp, None, value)
        return encode_message(
            wrapper, magic=self._magic, codec=self._codec, timestamp_type=self._timestamp_type
        )
