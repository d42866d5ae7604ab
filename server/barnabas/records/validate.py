"""Validation of the records of a produce request, by the leader of a partition before it appends them.

The rule: either the whole request for that partition is accepted, as exactly one batch of message format v2, or it is
refused with the same error code as in Kafka. The usual batch is checked and patched in place; a batch is encoded again only
if its codec, offsets or message format must change.

`AppendRules.record_validation` sets how far records are checked; docs/decisions/0010-record-validation.md has the reasons.
"""

from enum import Enum
from functools import partial
from typing import Final

from barnabas.records.at_once import (
    PRODUCE_VERSION_MAGIC_2,
    PRODUCE_VERSION_ZSTD,
    check_lz4_frame,
    must_look_at_records,
    scan_small,
)
from barnabas.records.batch import (
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
    read_body_steps,
    read_header,
    record_size_steps,
)
from barnabas.records.building import join_batch
from barnabas.records.compression import (
    SMALL_BYTES,
    SMALL_COMPRESSED_BYTES,
    Codec,
    Output,
    codec_of,
    load_steps,
)
from barnabas.records.cursor import RecordCursor
from barnabas.records.errors import (
    Code,
    CorruptRecordsError,
    InvalidRecordsError,
    NotOneBatchError,
    RecordsError,
    UnsupportedCompressionError,
)
from barnabas.records.rules import AppendRules, RecordJudge, is_timestamp_allowed
from barnabas.records.scan import BodyScan, Scanner, scanner_of
from barnabas.records.steps import RECORDS_PER_STEP, Reserve, Steps, Work
from barnabas.records.validated import ValidatedBatches, described, stamped
from barnabas.records.varint import Buffer

OLD_DECOMPRESSED_BYTES_MAX: Final = 32 << 20  # of a wrapper of v0 or v1, from clients that sent up to 1 MB


class Origin(Enum):
    """Author of appended records: a client, or this broker's own coordinators, which alone may write control batches."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


# By these names compiled code finds them at once.
_CLIENT: Final = Origin.CLIENT
_ZSTD: Final = Codec.ZSTD
_LZ4: Final = Codec.LZ4
_NONE: Final = Codec.NONE

RECORDS_PER_COMPRESSED_BYTE_MAX: Final = 4
"""Of empty records that are numbered 0, 1, 2 and so on, 1.24 fit into a byte in the best codec."""
MISNUMBERED_RECORDS: Final = 100
MISNUMBERED_BYTES_PER_RECORD: Final = 2
"""A batch of more records, with less bytes for each, is not numbered anew: half a million a second can be."""

_SUM_AT_ONCE_BYTES: Final = 4 << 20  # summed up in a millisecond
_WRONG_CHECKSUM: Final = "the checksum of the records is wrong"


def validate_steps(
    buf: Buffer, *, api_version: int, config: AppendRules, now_ms: int, origin: Origin = Origin.CLIENT
) -> Steps[ValidatedBatches]:
    """Check the records of one partition in a produce request by steps; the result is still to be placed.

    `buf` is patched in place if it is writable, also before an error shows. Raises RecordsError (a
    RequestError) with the code for the client: CORRUPT_MESSAGE, INVALID_RECORD and INVALID_TIMESTAMP (both
    perhaps with `record_errors`), MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE.
    """
    header = _first_header(buf)
    if api_version >= PRODUCE_VERSION_MAGIC_2:
        _check_produce_version(header, api_version)
    if header is None:
        return ValidatedBatches(b"", -1, -1, NO_TIMESTAMP, -1, -1, 0, [])
    appender = _Appender(config, now_ms, origin)
    if header.magic == 2:
        if header.size != len(buf) and next(iter_batches(buf, header.size), None) is not None:
            raise NotOneBatchError("one batch is allowed per partition, not several")
        appender.check_place(header)
        if header.size > _SUM_AT_ONCE_BYTES:
            is_sound = yield Work(partial(check_crc, buf, 0, header))
        else:
            is_sound = check_crc(buf, 0, header)
        if not is_sound:
            raise CorruptRecordsError(_WRONG_CHECKSUM)
        result = yield from appender.batch_steps(buf, header)
    else:
        yield from load_steps(header.codec, config.target_codec(_NONE))
        result = yield from appender.message_steps(buf, header.magic)
    return appender.fitting(result)


def validate_own(buf: bytearray, *, config: AppendRules, now_ms: int) -> ValidatedBatches:
    """Take a batch that this broker's own coordinators have just encoded: nothing can be wrong but its size.

    Raises MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE.
    """
    header = read_header(buf)
    appender = _Appender(config, now_ms, Origin.COORDINATOR)
    appender.check_place(header)
    return appender.fitting(appender.patch(buf, header, header.max_timestamp))


def _first_header(buf: Buffer) -> BatchHeader | None:
    """Return the header of the first whole batch or message; None if no batch is whole."""
    if len(buf) >= HEADER_SIZE and buf[MAGIC_OFFSET] == 2:  # without going about it, for the usual request
        header = read_header(buf)
        if LOG_OVERHEAD + header.batch_length == len(buf):
            return header
    first = next(iter_batches(buf), None)
    return None if first is None else first[1]


def _check_produce_version(header: BatchHeader | None, api_version: int) -> None:
    if header is None:
        raise NotOneBatchError("there is no whole record batch")
    if header.magic != 2:
        raise NotOneBatchError(f"Produce v{api_version} takes magic 2 only, not {header.magic}")
    if header.codec == _ZSTD and api_version < PRODUCE_VERSION_ZSTD:
        raise UnsupportedCompressionError(f"Produce v{api_version} knows no zstd")


def _too_large(size: int, size_max: int) -> RecordsError:
    return RecordsError(
        Code.MESSAGE_TOO_LARGE, f"{size} bytes of records exceed max.message.bytes, {size_max}"
    )


class _Appender:
    """The settings and facts of one append that every check and every way of encoding needs."""

    __slots__ = ("config", "judge", "now_ms", "origin")

    def __init__(self, config: AppendRules, now_ms: int, origin: Origin) -> None:
        self.config = config
        self.now_ms = now_ms
        self.origin = origin
        self.judge = RecordJudge(config, now_ms)

    def check_place(self, header: BatchHeader) -> None:
        """Refuse a batch that is too large, or that a producer has given another place than the first."""
        if header.size > self.config.max_message_bytes:
            raise _too_large(header.size, self.config.max_message_bytes)
        if header.base_offset != 0 and self.origin is _CLIENT:
            raise InvalidRecordsError(f"a producer's batch begins at offset 0, not {header.base_offset}")

    def fitting(self, result: ValidatedBatches) -> ValidatedBatches:
        """Refuse batches that are larger than a segment."""
        if len(result.records) > self.config.segment_bytes:
            raise RecordsError(
                Code.RECORD_LIST_TOO_LARGE,
                f"{len(result.records)} bytes of records do not fit a segment of {self.config.segment_bytes}",
            )
        return result

    def stays(self, buf: Buffer, header: BatchHeader) -> bool:
        """Check the header of a producer's batch of magic 2; returns whether it shows that the batch stays unchanged."""
        source = codec_of(header.codec)
        _check_client_header(header)
        if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            self.check_append_time(header)
        if self.config.target_codec(source) == source and not must_look_at_records(
            header, self.config, self.now_ms
        ):
            return True
        if source is _LZ4:
            check_lz4_frame(buf)
        return False

    def check_append_time(self, header: BatchHeader) -> None:
        """Refuse a batch with another broker's append time, where that cannot be used as the producer's timestamp.

        In a topic with CreateTime the batch is accepted, as in Kafka, and the type is cleared: replicators send batches as
        they were read.
        """
        if (
            self.config.append_time
            or header.max_timestamp == NO_TIMESTAMP
            or not is_timestamp_allowed(self.config, self.now_ms, header.max_timestamp)
        ):
            raise InvalidRecordsError(
                "only the broker may set the timestamp type LogAppendTime", Code.INVALID_TIMESTAMP
            )

    def obeys(self, scan: BodyScan) -> bool:
        """Return whether all records obey the rules."""
        config, now_ms = self.config, self.now_ms
        return (
            not (config.compacted and scan.null_keys)
            and is_timestamp_allowed(config, now_ms, scan.min_timestamp)
            and is_timestamp_allowed(config, now_ms, scan.max_timestamp)
        )

    def batch_steps(self, buf: Buffer, header: BatchHeader) -> Steps[ValidatedBatches]:
        """Take a batch of magic 2 at the start of `buf`, in place if possible."""
        if self.origin is not _CLIENT or self.stays(buf, header):
            return self.patch(buf, header, header.max_timestamp)
        config = self.config
        source = codec_of(header.codec)
        target = config.target_codec(source)
        if source is target is _NONE:
            if header.size > SMALL_BYTES:
                yield Reserve(header.size)  # a record is copied to be read, and may be as large
            in_place = yield from _scan_in_place_steps(buf, header)
            if in_place is not None and in_place.offsets_consecutive and self.obeys(in_place):
                return self.patch(buf, header, in_place.max_timestamp)
        # from here on the batch is rewritten, or the client gets the error of a record
        yield from load_steps(source, target)
        scanner = None if source is _NONE else scan_small(buf, header, config)
        if scanner is None:
            if source is _NONE:
                yield Reserve(header.size)
            body = yield from read_body_steps(
                buf, 0, header, decompressed_bytes_max=config.decompressed_bytes_max
            )
            yield from record_size_steps(body, header, config.max_decompressed_message_bytes)
            scanner = Scanner(body, header.records_count, header.base_timestamp)
            body = b""
            while not scanner.advance(RECORDS_PER_STEP):
                _check_numbering(scanner, header)
                yield None
        try:
            _check_numbering(scanner, header)
            scan = scanner.result()
            if not self.obeys(scan):
                yield from self.judge_steps(scanner.window, header)
            if target == source and scan.offsets_consecutive:
                return self.patch(buf, header, scan.max_timestamp)
            header.attributes = header.attributes & TRANSACTIONAL_BIT | target
            header.max_timestamp = scan.max_timestamp
            return (
                yield from self.rewrite_steps(
                    scanner.window, header, are_numbers_right=scan.offsets_consecutive
                )
            )
        finally:
            scanner.window = scanner.source = b""  # the caller may release its memory

    def judge_steps(self, body: bytes, header: BatchHeader) -> Steps[None]:
        """Look for the records that break the rules, and raise with which."""
        cursor = RecordCursor(body, header.records_count)
        while cursor.advance():
            key = None if cursor.key_size < 0 else b""
            self.judge.allows(cursor.index, key, header.base_timestamp + cursor.timestamp_delta)
            if not (cursor.index + 1) % RECORDS_PER_STEP:
                yield None
        self.judge.finish()

    def patch(self, buf: Buffer, header: BatchHeader, max_timestamp: int) -> ValidatedBatches:
        """Give the batch its offsets, epoch and timestamps where it lies, if that is not read-only memory."""
        size = header.size
        if isinstance(buf, bytes) or (isinstance(buf, memoryview) and buf.readonly):
            buf = bytearray(buf)
        if len(buf) != size:
            buf = memoryview(buf)[:size]  # old clients may send a partial message at the end
        config, now_ms = self.config, self.now_ms
        return described(buf, stamped(buf, header, config, now_ms, max_timestamp), config, now_ms)

    def rewrite_steps(
        self, body: bytes, header: BatchHeader, *, are_numbers_right: bool
    ) -> Steps[ValidatedBatches]:
        """Write a batch in another codec, or with the offsets that its records should have had."""
        from barnabas.records.convert import copy_steps, renumber_steps  # not needed by most requests

        out = self.output(header)
        if are_numbers_right:
            yield from copy_steps(body, out)
        else:
            yield from renumber_steps(body, header.records_count, out)
        return (yield from self.finish_steps(out, header))

    def message_steps(self, buf: Buffer, magic: int) -> Steps[ValidatedBatches]:
        """Take a message set of v0 or v1, as one batch of magic 2."""
        from barnabas.records.convert import new_header, up_convert_steps

        size, codec = yield from self.check_messages_steps(buf, magic)
        header = new_header(0, codec=self.config.target_codec(codec))
        out = self.output(header)
        if size > SMALL_COMPRESSED_BYTES:
            yield Reserve(2 * SMALL_BYTES)
        yield from up_convert_steps(
            buf[:size],
            header,
            out,
            magic=magic,
            judge=self.judge.allows,
            decompressed_bytes_max=min(self.config.decompressed_bytes_max, OLD_DECOMPRESSED_BYTES_MAX),
            record_bytes_max=self.config.max_decompressed_message_bytes,
        )
        self.judge.finish()
        return (yield from self.finish_steps(out, header))

    def check_messages_steps(self, buf: Buffer, magic: int) -> Steps[tuple[int, Codec]]:
        """Check the headers of a message set; returns the size of its whole messages in bytes, and their codec."""
        size = count = summed = 0
        packed = 0
        is_mixed = False
        for pos, header in iter_batches(buf):
            if header.size > self.config.max_message_bytes:
                raise _too_large(header.size, self.config.max_message_bytes)
            if not check_crc(buf, pos, header):
                raise CorruptRecordsError(_WRONG_CHECKSUM)
            packed = packed or header.codec
            is_mixed = is_mixed or header.magic != magic
            if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
                self.check_append_time(header)
            size = pos + header.size
            count += 1
            if size - summed > SMALL_COMPRESSED_BYTES:
                summed = size
                yield None
        if packed and count > 1:
            raise InvalidRecordsError(f"a compressed message must be the only one, not one of {count}")
        if is_mixed:
            raise InvalidRecordsError("messages of different magic are in one set")
        return size, codec_of(packed)

    def output(self, header: BatchHeader) -> Output:
        """Return the output for the records of a new batch; it refuses more than max.message.bytes."""
        size_max = self.config.max_message_bytes
        return Output(
            header.codec,
            self.config.compression_level if header.codec else None,
            size_max - HEADER_SIZE,
            lambda size: _too_large(HEADER_SIZE + size, size_max),
        )

    def finish_steps(self, out: Output, header: BatchHeader) -> Steps[ValidatedBatches]:
        """Make a batch of the written records."""
        if self.config.append_time:
            header.attributes |= TIMESTAMP_TYPE_BIT
            header.max_timestamp = self.now_ms
        body = yield from out.finish_steps()
        return described(join_batch(header, body), header, self.config, self.now_ms)


def _scan_in_place_steps(buf: Buffer, header: BatchHeader) -> Steps[BodyScan | None]:
    """Scan the records of an uncompressed batch in place; None if they are malformed.

    The byte at fault is not reported: its position would not be counted from the first record.
    """
    body = memoryview(buf)[HEADER_SIZE : header.size]
    try:
        scanner = scanner_of(body, header.records_count, header.base_timestamp)
        while not scanner.advance(RECORDS_PER_STEP):
            yield None
        return scanner.result()
    except InvalidRecordsError:
        return None


def _check_numbering(scanner: Scanner, header: BatchHeader) -> None:
    """Refuse a batch that would be encoded again because of its offsets and has far too many records for its bytes."""
    count = header.records_count
    if scanner.offsets_consecutive or count <= MISNUMBERED_RECORDS:
        return
    if count * MISNUMBERED_BYTES_PER_RECORD > header.size:
        raise InvalidRecordsError(
            f"{count} records in {header.size} bytes are not numbered one after the other: too many to be numbered anew"
        )


def _check_client_header(header: BatchHeader) -> None:
    """Refuse header fields that a producer's batch must not have."""
    count = header.records_count
    if header.codec and count > header.size * RECORDS_PER_COMPRESSED_BYTE_MAX:
        raise InvalidRecordsError(
            f"{count} records in {header.size} bytes; at most {RECORDS_PER_COMPRESSED_BYTE_MAX} can be in each"
        )
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
