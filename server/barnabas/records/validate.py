"""What the leader of a partition does with the records of a produce request before it appends them.

The rule: either the whole request for that partition is taken, as exactly one batch of message format v2, or
it is refused with the error code that Kafka gives. The usual batch is checked and patched where it lies; only
what must change (codec, offsets, old message formats) is written anew.

How far records are looked at is `AppendRules.record_validation`; docs/decisions/0010-record-validation.md has
the reasons.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from barnabas.records.batch import (
    DECOMPRESSED_BYTES_MAX,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    NO_TIMESTAMP,
    SEQUENCE_MAX,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    TimestampType,
    check_crc,
    iter_batches,
    read_body,
    read_header,
    rebase,
    set_max_timestamp,
)
from barnabas.records.compression import CODECS_BY_NAME, Codec, codec_of
from barnabas.records.errors import (
    Code,
    CorruptRecordsError,
    InvalidRecordsError,
    RecordError,
    RecordsError,
    UnsupportedCompressionError,
)
from barnabas.records.record import Record, iter_body
from barnabas.records.scan import scan_body
from barnabas.records.varint import Buffer

PRODUCE_VERSION_MAGIC_2: Final = 3  # the first version of Produce that takes magic 2 only (KIP-98)
PRODUCE_VERSION_ZSTD: Final = 7  # the first one whose clients know zstd (KIP-110)
UNBOUNDED_MS: Final = (1 << 63) - 1
RECORD_ERRORS_MAX: Final = 1_000  # enough to find a mistake; a batch of 1 MB may hold 150,000 records


class Origin(Enum):
    """Who appends: a client, or this broker's own coordinators, which alone may write control batches."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


# By these names compiled code finds them at once.
_CLIENT: Final = Origin.CLIENT
_ZSTD: Final = Codec.ZSTD
_LZ4: Final = Codec.LZ4


@dataclass(frozen=True, slots=True)
class AppendRules:
    """The topic settings that records must obey, named as Kafka's with dots for underscores; times in ms.

    `compression_type` is "producer" (keep the producer's codec), "uncompressed" or a codec's name;
    `compression_level` is for that codec, None its default. `compacted` is true if `cleanup.policy` has
    compact. `record_validation` "full" looks at every record, as Kafka does; "header" trusts a batch's header
    where a checksum holds. `decompressed_bytes_max` bounds what a batch may decompress to.
    """

    compression_type: str = "producer"
    compression_level: int | None = None
    timestamp_type: Literal["CreateTime", "LogAppendTime"] = "CreateTime"
    message_timestamp_before_max_ms: int = UNBOUNDED_MS
    message_timestamp_after_max_ms: int = 3_600_000
    max_message_bytes: int = 1_048_588
    segment_bytes: int = 1 << 30
    compacted: bool = False
    record_validation: Literal["full", "header"] = "full"
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX

    def target_codec(self, source: Codec) -> Codec:
        """Return the codec in which records are stored that came in `source`."""
        return source if self.compression_type == "producer" else CODECS_BY_NAME[self.compression_type]

    @property
    def append_time(self) -> bool:
        """Whether the broker sets the timestamps."""
        return self.timestamp_type == "LogAppendTime"


@dataclass(slots=True, init=False)  # with an __init__ that can be compiled
class ValidatedBatches:
    """Records ready to be appended.

    `records` is the request's own memory, patched, wherever that was possible. `offset_of_max_timestamp` is
    the last offset of the batch that has the max timestamp, as the time index wants it, or -1 without
    timestamps. `log_append_time_ms` is -1 with CreateTime. `batches` are the headers of what is in `records`:
    one, or none if an old client sent no whole message (then the offsets are -1 and nothing is to be
    appended).
    """

    records: Buffer
    base_offset: int
    last_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int
    log_append_time_ms: int
    record_count: int
    batches: list[BatchHeader]

    def __init__(
        self,
        records: Buffer,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
        offset_of_max_timestamp: int,
        log_append_time_ms: int,
        record_count: int,
        batches: list[BatchHeader],
    ) -> None:
        self.records = records
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.max_timestamp = max_timestamp
        self.offset_of_max_timestamp = offset_of_max_timestamp
        self.log_append_time_ms = log_append_time_ms
        self.record_count = record_count
        self.batches = batches


def validate_produce(
    buf: Buffer,
    *,
    api_version: int,
    config: AppendRules,
    now_ms: int,
    first_offset: int,
    leader_epoch: int,
    origin: Origin = Origin.CLIENT,
) -> ValidatedBatches:
    """Check the records of one partition in a produce request, and give them offsets from `first_offset` on.

    `buf` is patched in place if it is writable, also before an error shows. Raises RecordsError (a
    RequestError) with the code for the client: CORRUPT_MESSAGE, INVALID_RECORD and INVALID_TIMESTAMP (both
    perhaps with `record_errors`), MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE.
    """
    entries = _entries(buf)
    if api_version >= PRODUCE_VERSION_MAGIC_2:
        _check_produce_version(entries, api_version)
    elif not entries:
        return ValidatedBatches(b"", -1, -1, NO_TIMESTAMP, -1, -1, 0, [])
    for pos, header in entries:
        if header.size > config.max_message_bytes:
            raise _too_large(header.size, config.max_message_bytes)
        if header.magic == 2 and header.base_offset != 0 and origin is _CLIENT:
            raise InvalidRecordsError(f"a producer's batch begins at offset 0, not {header.base_offset}")
        if not check_crc(buf, pos, header):
            raise CorruptRecordsError("the checksum of the records is wrong")
    appender = _Appender(config, now_ms, first_offset, leader_epoch, origin)
    if entries[0][1].magic == 2:
        if len(entries) > 1:
            raise InvalidRecordsError(f"one batch is allowed per partition, not {len(entries)}")
        result = appender.take_batch(buf, entries[0][1])
    else:
        result = appender.take_messages(buf, [header for _, header in entries])
    if len(result.records) > config.segment_bytes:
        raise RecordsError(
            Code.RECORD_LIST_TOO_LARGE,
            f"{len(result.records)} bytes of records do not fit a segment of {config.segment_bytes}",
        )
    return result


def _entries(buf: Buffer) -> list[tuple[int, BatchHeader]]:
    """All of `iter_batches`; without going about it for the usual request, which is one batch and nothing else."""
    if len(buf) >= HEADER_SIZE and buf[MAGIC_OFFSET] == 2:
        header = read_header(buf)
        if LOG_OVERHEAD + header.batch_length == len(buf):
            return [(0, header)]
    return list(iter_batches(buf))


def _check_produce_version(entries: list[tuple[int, BatchHeader]], api_version: int) -> None:
    if not entries:
        raise InvalidRecordsError("there is no whole record batch")
    header = entries[0][1]
    if header.magic != 2:
        raise InvalidRecordsError(f"Produce v{api_version} takes magic 2 only, not {header.magic}")
    if header.codec == _ZSTD and api_version < PRODUCE_VERSION_ZSTD:
        raise UnsupportedCompressionError(f"Produce v{api_version} knows no zstd")
    if len(entries) > 1:
        raise InvalidRecordsError(f"one batch is allowed per partition, not {len(entries)}")


def _too_large(size: int, size_max: int) -> RecordsError:
    return RecordsError(
        Code.MESSAGE_TOO_LARGE, f"{size} bytes of records exceed max.message.bytes, {size_max}"
    )


class _Appender:
    """The circumstances of one append: what every check and every way of writing needs to know."""

    __slots__ = ("config", "first_offset", "leader_epoch", "now_ms", "origin")

    def __init__(
        self, config: AppendRules, now_ms: int, first_offset: int, leader_epoch: int, origin: Origin
    ) -> None:
        self.config = config
        self.now_ms = now_ms
        self.first_offset = first_offset
        self.leader_epoch = leader_epoch
        self.origin = origin

    def take_batch(self, buf: Buffer, header: BatchHeader) -> ValidatedBatches:
        """Take a batch of magic 2 at the start of `buf`, in place if possible."""
        config = self.config
        source = codec_of(header.codec)
        target = source
        max_timestamp = header.max_timestamp
        if self.origin is _CLIENT:
            _check_client_header(header)
            target = config.target_codec(source)
            if header.attributes & TIMESTAMP_TYPE_BIT:
                raise InvalidRecordsError(
                    "only the broker may set the timestamp type LogAppendTime", Code.INVALID_TIMESTAMP
                )
            if target != source or self.must_look_at_records(header):
                body = read_body(buf, 0, header, decompressed_bytes_max=config.decompressed_bytes_max)
                if source is _LZ4:
                    _check_lz4_frame(buf)
                max_timestamp, is_sound = self.check_body(body, header)
                if target != source or not is_sound:
                    return self.rewrite(body, header, target)
        return self.patch(buf, header, max_timestamp)

    def must_look_at_records(self, header: BatchHeader) -> bool:
        """Say whether the header alone cannot show that the records obey the rules."""
        config = self.config
        return (
            config.record_validation == "full"
            or config.compacted
            or config.message_timestamp_before_max_ms < self.now_ms
            or (
                not config.append_time
                and header.max_timestamp - self.now_ms > config.message_timestamp_after_max_ms
            )
        )

    def check_body(self, body: bytes, header: BatchHeader) -> tuple[int, bool]:
        """Check all records: (their max timestamp, whether their offsets count up from 0)."""
        scan = scan_body(body, header.records_count, header.base_timestamp)
        if (self.config.compacted and scan.null_keys) or not (
            self.is_timestamp_allowed(scan.min_timestamp) and self.is_timestamp_allowed(scan.max_timestamp)
        ):
            records = iter_body(body, header.records_count, header.base_offset, header.base_timestamp)
            for _ in self.checked(records):
                pass
        return scan.max_timestamp, scan.offsets_consecutive

    def is_timestamp_allowed(self, timestamp: int) -> bool:
        """Say whether a record may have that timestamp; none at all (-1) is allowed (KIP-937)."""
        config = self.config
        if config.append_time or timestamp == NO_TIMESTAMP:
            return True
        age_ms = self.now_ms - timestamp
        return -config.message_timestamp_after_max_ms <= age_ms <= config.message_timestamp_before_max_ms

    def checked(self, records: Iterable[Record]) -> Iterator[Record]:
        """Pass on the records that obey the rules; after the last one, raise if any did not, with which."""
        errors: list[RecordError] = []
        code = Code.INVALID_RECORD
        for index, record in enumerate(records):
            if self.config.compacted and record.key is None:
                message = "a record of a compacted topic must have a key"
            elif not self.is_timestamp_allowed(record.timestamp):
                code = Code.INVALID_TIMESTAMP
                message = self.explain_timestamp(record.timestamp)
            else:
                yield record
                continue
            if len(errors) < RECORD_ERRORS_MAX:
                errors.append(RecordError(index, message))
        if errors:
            shown = "; ".join(f"record {error.batch_index}: {error.message}" for error in errors[:3])
            raise InvalidRecordsError(f"records were refused: {shown}", code, tuple(errors))

    def explain_timestamp(self, timestamp: int) -> str:
        """Say why a timestamp was refused."""
        before, after = (
            self.config.message_timestamp_before_max_ms,
            self.config.message_timestamp_after_max_ms,
        )
        return f"timestamp {timestamp} is not from {before} ms before to {after} ms after {self.now_ms}"

    def patch(self, buf: Buffer, header: BatchHeader, max_timestamp: int) -> ValidatedBatches:
        """Give the batch its offsets, epoch and timestamps where it lies, if that is not read-only memory."""
        size = header.size
        if isinstance(buf, bytes) or (isinstance(buf, memoryview) and buf.readonly):
            buf = bytearray(buf)
        if len(buf) != size:
            buf = memoryview(buf)[:size]  # old clients may send a partial message at the end
        if self.config.append_time:
            set_max_timestamp(buf, 0, TimestampType.LOG_APPEND_TIME, self.now_ms)
            header = read_header(buf)
        elif max_timestamp != header.max_timestamp:
            set_max_timestamp(buf, 0, TimestampType.CREATE_TIME, max_timestamp)
            header = read_header(buf)
        header.base_offset = self.first_offset
        header.leader_epoch = self.leader_epoch
        rebase(buf, 0, self.first_offset, self.leader_epoch)
        return self.result(buf, header)

    def rewrite(self, body: bytes, header: BatchHeader, target: Codec) -> ValidatedBatches:
        """Write the batch anew, in another codec or with the offsets that its records should have had."""
        source = iter_body(body, header.records_count, 0, header.base_timestamp)
        header.attributes = header.attributes & TRANSACTIONAL_BIT | target
        return self.write(source, header)

    def take_messages(self, buf: Buffer, headers: list[BatchHeader]) -> ValidatedBatches:
        """Take a message set of v0 or v1, as one batch of magic 2."""
        from barnabas.records.convert import new_header  # not on the way of most requests: loaded when needed

        magic = headers[0].magic
        codecs = {header.codec for header in headers} - {Codec.NONE}
        if codecs and len(headers) > 1:
            raise InvalidRecordsError(f"a compressed message must be the only one, not one of {len(headers)}")
        if any(header.magic != magic for header in headers):
            raise InvalidRecordsError("messages of different magic are in one set")
        if any(header.timestamp_type is TimestampType.LOG_APPEND_TIME for header in headers):
            raise InvalidRecordsError(
                "only the broker may set the timestamp type LogAppendTime", Code.INVALID_TIMESTAMP
            )
        size = sum(header.size for header in headers)
        target = self.config.target_codec(codec_of(codecs.pop() if codecs else Codec.NONE))
        return self.write(self.checked(self.iter_deep(buf[:size], magic)), new_header(0, codec=target))

    def iter_deep(self, message_set: Buffer, magic: int) -> Iterator[Record]:
        """Decode all records of a message set, inner ones too, which must be of the same magic."""
        from barnabas.records import legacy

        for message in legacy.iter_message_set(message_set):
            for inner in legacy.iter_deep(message, decompressed_bytes_max=self.config.decompressed_bytes_max):
                if inner.magic != magic:
                    raise InvalidRecordsError(f"a message of magic {inner.magic} is inside of one of {magic}")
                yield Record(inner.offset, inner.timestamp, inner.key, inner.value)

    def write(self, records: Iterable[Record], header: BatchHeader) -> ValidatedBatches:
        """Write a new batch of records that have been or are being checked."""
        from barnabas.records.convert import rebuild_batch

        header.base_offset = self.first_offset
        header.leader_epoch = self.leader_epoch
        if self.config.append_time:
            header.attributes |= TIMESTAMP_TYPE_BIT
            header.max_timestamp = self.now_ms
        level = self.config.compression_level if header.codec else None
        batch = rebuild_batch(records, header, level=level)
        if len(batch) > self.config.max_message_bytes:
            raise _too_large(len(batch), self.config.max_message_bytes)
        return self.result(batch, header)

    def result(self, records: Buffer, header: BatchHeader) -> ValidatedBatches:
        """Describe what is to be appended."""
        last_offset = header.last_offset
        return ValidatedBatches(
            records,
            header.base_offset,
            last_offset,
            header.max_timestamp,
            last_offset if header.max_timestamp != NO_TIMESTAMP else -1,
            self.now_ms if self.config.append_time else -1,
            header.records_count,
            [header],
        )


def _check_client_header(header: BatchHeader) -> None:
    """Refuse what the header of a producer's batch must not say."""
    count = header.records_count
    if count <= 0 or header.last_offset_delta != count - 1:
        raise InvalidRecordsError(
            f"{count} records do not make a last offset delta of {header.last_offset_delta}"
        )
    if header.is_control:
        raise InvalidRecordsError("clients must not write control records")
    if header.has_producer_id and not 0 <= header.base_sequence <= SEQUENCE_MAX:
        raise InvalidRecordsError(
            f"producer {header.producer_id} cannot have sequence {header.base_sequence}"
        )
    if header.has_delete_horizon:
        raise InvalidRecordsError("only the broker may set a delete horizon")


def _check_lz4_frame(buf: Buffer) -> None:
    """Refuse a frame that would stop the Java consumers of this partition; Kafka cannot read it either."""
    from barnabas.records.codecs.lz4 import has_linked_blocks

    if has_linked_blocks(buf[HEADER_SIZE : HEADER_SIZE + 8]):
        raise InvalidRecordsError("the blocks of an LZ4 frame must not depend on each other")
