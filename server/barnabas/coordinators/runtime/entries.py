"""The batches of an internal topic: encoded from decisions, and read again.

The rule: this module is imported with the first shard, like all code that reads and writes records.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from barnabas.coordinators.statemachine.decision import Entry, Record
from barnabas.errors import StorageError
from barnabas.log.damage import undecided
from barnabas.log.format.names import UNDECIDED
from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, iter_batches, require_crc, require_order
from barnabas.records.building import encode_pairs
from barnabas.records.control import ControlType, parse_type
from barnabas.records.errors import CorruptRecordsError, RecordsError

if TYPE_CHECKING:
    from barnabas.log.partition_log import PartitionLog
    from barnabas.records.batch import BatchHeader
    from barnabas.records.record import Record as AnyRecord

log = logging.getLogger(__name__)

READ_BYTES: Final = 1 << 20


def batch_of(
    records: Sequence[tuple[bytes, bytes | None]], now_ms: int, producer: tuple[int, int] | None
) -> bytearray:
    """Return these records as one batch; with `producer` (id and epoch) they are part of its transaction."""
    producer_id, epoch = producer or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    return encode_pairs(
        records,
        now_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        transactional=producer is not None,
    )


def check_whole(partition_log: PartitionLog) -> None:
    """Check that recovery has not cut damaged records out of a partition without an operator's decision.

    Raises StorageError, CorruptRecordsError.
    """
    try:
        notes = undecided(partition_log.disk, partition_log.dir)
    except OSError as error:
        raise StorageError(partition_log.log_dir, error) from error
    if notes:
        offsets = ", ".join(note.rpartition(UNDECIDED)[2] for note in notes)
        raise CorruptRecordsError(f"damage was cut out at offset {offsets}; {_advice(partition_log)}")


def read_entries(partition_log: PartitionLog) -> Iterator[Entry]:
    """Yield all batches of a coordinator's partition, oldest first, up to its end at that time.

    Batches and records that no coordinator can have written are skipped, with an error in the log. Raises StorageError,
    and CorruptRecordsError for a damaged batch: the ids of its records are unknown.
    """
    expected = 0  # the first batch may begin before the log does
    try:
        _check_first_batches(partition_log)
        for data, position, header in _batches(partition_log):
            require_order(header, expected, partition_log.log_end_offset)
            require_crc(data, position, header)
            yield from _entries_of(partition_log.dir, data, position, header)
            expected = header.next_offset
    except RecordsError as error:
        offset = max(expected, partition_log.log_start_offset)
        raise CorruptRecordsError(f"{error.message}, at offset {offset}; {_advice(partition_log)}") from error


def _check_first_batches(partition_log: PartitionLog) -> None:
    """Check that no segment begins with a batch that a lookup by offset would skip.

    Raises StorageError, CorruptRecordsError.
    """
    for segment_base, header in partition_log.first_batches():
        if header.last_offset < segment_base:
            raise CorruptRecordsError(
                f"offsets {header.base_offset} to {header.last_offset} begin the segment of {segment_base}"
            )


def _batches(partition_log: PartitionLog) -> Iterator[tuple[bytes, int, BatchHeader]]:
    """Yield (bytes, position in them, header) of all batches of a log, unchecked.

    The last batch of each read is read again with the following ones: a lookup by offset would skip a batch with a
    damaged, lower base offset, which no checksum covers.
    """
    offset, room = partition_log.log_start_offset, READ_BYTES
    last: BatchHeader | None = None
    while offset < (end := partition_log.log_end_offset):
        start, max_bytes = (last.base_offset, last.size + room) if last else (offset, room)
        start = max(start, partition_log.log_start_offset)
        data = partition_log.read(start, max_bytes=max_bytes, upper_offset=end).to_bytes()
        before: BatchHeader | None = last
        is_further = False
        for position, header in iter_batches(data):
            if header != before:
                yield data, position, header
                last, offset, room, is_further = header, header.next_offset, READ_BYTES, True
        if is_further:
            continue
        if last is None:
            return
        if len(data) == max_bytes:
            room *= 8  # the next one is larger
        else:
            last = None  # it was the last batch of its segment


def _advice(partition_log: PartitionLog) -> str:
    return (
        "to go on without what is damaged, stop the broker and run: barnabas log repair --salvage "
        f"{partition_log.dir}"
    )


def _entries_of(dir_path: str, data: bytes, position: int, header: BatchHeader) -> Iterator[Entry]:
    """Yield the entries of a batch; skips records that no coordinator can have written, with an error in the log."""
    try:
        records = list(iter_any_records(data, position))
    except RecordsError as error:
        log.error(
            "%s: the batch of offsets %d to %d is refused: its checksum is right, and its records cannot be read: %s",
            dir_path, header.base_offset, header.last_offset, error.message,
        )  # fmt: skip
        return
    if header.is_control:
        for record in records:
            kind = _control_type(record)
            if kind in (ControlType.ABORT, ControlType.COMMIT):
                yield Entry([], header.producer_id, kind is ControlType.COMMIT, offsets=[record.offset])
            else:
                log.error(
                    "%s: the control record at offset %d is refused: it ends no transaction",
                    dir_path, record.offset,
                )  # fmt: skip
        return
    with_keys: list[Record] = []
    offsets: list[int] = []
    for record in records:
        if record.key is None:
            log.error("%s: the record at offset %d is refused: it has no key", dir_path, record.offset)
        else:
            with_keys.append((record.key, record.value))
            offsets.append(record.offset)
    yield Entry(with_keys, header.producer_id if header.is_transactional else NO_PRODUCER_ID, offsets=offsets)


def _control_type(record: AnyRecord) -> ControlType:
    try:
        return parse_type(record.key)
    except RecordsError:
        return ControlType.UNKNOWN
