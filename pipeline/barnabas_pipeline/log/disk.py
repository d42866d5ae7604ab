"""Reader of a topic in the files of a log dir, beside a running broker or without a broker.

The rule: only records that a consumer could see are returned. The high watermark is that in the broker's last checkpoint
(every `log.flush.offset.checkpoint.interval.ms`, and when it ends), the last stable offset follows from the producer
snapshots and the batches behind them, aborted transactions from the markers. Files are opened when they are read; the
broker removes a segment a while after it has renamed it, so the reader looks for a vanished file once more in a fresh
listing.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from barnabas.log.format import CorruptFileError, checkpoints, names, properties, snapshot, txn_index
from barnabas.log.format.names import DirKind
from barnabas.log.format.offset_index import OffsetIndex
from barnabas.log.format.time_index import TimeIndex
from barnabas.records import control
from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import (
    HEADER_SIZE,
    HEADER_SIZE_UP_TO_MAGIC,
    BatchHeader,
    check_crc,
    read_any_header,
    read_records,
)
from barnabas.records.errors import RecordsError
from barnabas_pipeline.errors import DataLossError, IncompleteError, MissingOffsets, NoTopicError, UsageError
from barnabas_pipeline.log.model import (
    READ_COMMITTED,
    Bounds,
    CorruptSpan,
    LogOptions,
    OffsetRange,
    RawBatch,
    TopicIdentity,
)
from barnabas_pipeline.log.order import Order, StoredBatch

CORRUPT_BYTES_MAX = 1 << 20  # bytes kept as evidence of unreadable data
BATCH_BYTES_MAX = 1 << 30
_READ_BYTES = 1 << 20


class DiskLog:
    """A topic in log dirs; see `model.Log` for the methods."""

    def __init__(self, options: LogOptions) -> None:
        self.options = options
        self._partitions = _find_partitions(options)
        self._transactions: dict[int, Transactions] = {}

    def identity(self) -> TopicIdentity:
        """Return the identity: cluster id from meta.properties, topic id from partition.metadata."""
        path, first = next(iter(self._partitions.values()))
        cluster_id = topic_id = ""
        meta = _read(f"{path}/{names.META_PROPERTIES}")
        if meta is not None:
            cluster_id = properties.MetaProperties.decode(meta).cluster_id or ""
        raw = _read(f"{first}/{names.PARTITION_METADATA}")
        if raw is not None:
            topic_id = properties.encode_uuid(properties.decode_partition_metadata(raw))
        return TopicIdentity(cluster_id, self.options.topic, topic_id)

    def bounds(self) -> dict[int, Bounds]:
        """Return the bounds, by the checkpoints of the log dirs and the existing segments."""
        bounds_by_partition = {}
        for partition, (path, directory) in sorted(self._partitions.items()):
            bases = _segment_bases(directory)
            if not bases:
                continue
            key = (self.options.topic, partition)
            start = max(_checkpoint(path, names.LOG_START_CHECKPOINT).get(key, 0), bases[0])
            high_watermark = max(self._high_watermark(partition), start)
            end = high_watermark
            if self.options.isolation == READ_COMMITTED:
                end = max(start, self._transactions_of(partition, high_watermark).last_stable_offset)
            epochs = checkpoints.decode_epochs(_read(f"{directory}/{names.LEADER_EPOCH_CHECKPOINT}") or b"")
            bounds_by_partition[partition] = Bounds(
                start, end, high_watermark, epochs[-1][0] if epochs else -1
            )
        return bounds_by_partition

    def offset_for_time(self, partition: int, timestamp_ms: int) -> int | None:
        """Search the time indexes, then the batches, then the records of the batch with that time."""
        bounds = self.bounds()[partition]
        for segment in self._segments(partition, bounds.start):
            if segment.max_timestamp() < timestamp_ms:
                continue
            first_offset = max(segment.time_index().lookup(timestamp_ms), bounds.start)
            for position, header in segment.headers(segment.offset_index().lookup(first_offset)):
                if header.magic >= 2 and header.max_timestamp < timestamp_ms:
                    continue
                for record in iter_any_records(segment.batch(position, header)):
                    if record.offset >= bounds.end:
                        return None
                    if record.timestamp >= timestamp_ms and record.offset >= bounds.start:
                        return record.offset
        return None

    def cut_points(self, offset_range: OffsetRange, bytes_max: int) -> list[int]:
        """Return batch ends from the offset indexes."""
        points: list[int] = []
        for segment in self._segments(offset_range.partition, offset_range.start):
            if segment.base_offset >= offset_range.end:
                break
            if points and segment.base_offset > points[-1]:
                points.append(segment.base_offset)
            last_position = segment.position_of(offset_range.start)
            for offset, position in segment.batch_ends():
                if offset >= offset_range.end:
                    break
                if position - last_position >= bytes_max and offset > offset_range.start:
                    points.append(offset)
                    last_position = position
        return sorted({point for point in points if offset_range.start < point < offset_range.end})

    def size(self, offset_range: OffsetRange) -> int | None:
        """Return the size by the sizes of segments, and the headers of the segments in which the range begins and ends."""
        start, end, total = offset_range.start, offset_range.end, 0
        for segment in self._segments(offset_range.partition, start):
            if segment.base_offset >= end:
                break
            if start <= segment.base_offset and segment.next_base is not None and segment.next_base <= end:
                total += os.stat(segment.path(names.LOG)).st_size
                continue
            for _, header in segment.headers(segment.position_of(start)):
                if header.base_offset >= end:
                    break
                total += header.size if header.last_offset >= start else 0
        return total

    def read(self, offset_range: OffsetRange) -> Iterator[RawBatch | CorruptSpan]:
        """Yield batch by batch, through all segments that overlap the range."""
        if offset_range.partition not in self._partitions:
            raise DataLossError(
                f"{self.options.topic}-{offset_range.partition} is not there any more",
                [MissingOffsets(offset_range.partition, offset_range.start, offset_range.end)],
            )
        aborted = AbortedFilter([])
        if self.options.isolation == READ_COMMITTED:
            bounds = self.bounds()[offset_range.partition]
            aborted = AbortedFilter(
                self._transactions_of(offset_range.partition, bounds.high_watermark).aborted_in(
                    offset_range.start, offset_range.end
                )
            )
        order = Order(offset_range)
        while (start := order.next_offset) < offset_range.end:
            segments = self._segments(offset_range.partition, start - 1)  # with the batch before the range
            if not segments or segments[0].base_offset > offset_range.start == start:
                stop = segments[0].base_offset if segments else offset_range.end
                raise DataLossError(
                    f"retention has overtaken {self.options.topic}-{offset_range.partition}",
                    [MissingOffsets(offset_range.partition, start, min(stop, offset_range.end))],
                )
            try:
                for segment in segments:
                    for item in segment.items(start, offset_range.end):
                        if isinstance(item, CorruptSpan):
                            yield from order.take_span(item)
                        else:
                            yield from order.take(StoredBatch(*item, aborted.hides))
                        if order.is_done:
                            return
                yield from order.finish(max(offset_range.end, self._high_watermark(offset_range.partition)))
                return
            except FileNotFoundError:  # compacted or removed meanwhile: a new listing decides
                order = Order(OffsetRange(offset_range.partition, order.next_offset, offset_range.end))

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _high_watermark(self, partition: int) -> int:
        key = (self.options.topic, partition)
        return _checkpoint(self._partitions[partition][0], names.HIGH_WATERMARK_CHECKPOINT).get(key, -1)

    def _segments(self, partition: int, offset: int) -> list[DiskSegment]:
        """Return the segments from that of `offset` on, or all segments if `offset` is before the first."""
        directory = self._partitions[partition][1]
        bases = _segment_bases(directory)
        first = max(0, bisect_right(bases, offset) - 1)
        return [
            DiskSegment(directory, base, bases[n + 1] if n + 1 < len(bases) else None)
            for n, base in enumerate(bases)
            if n >= first
        ]

    def _transactions_of(self, partition: int, high_watermark: int) -> Transactions:
        transactions = self._transactions.get(partition)
        if transactions is None or transactions.high_watermark != high_watermark:
            transactions = Transactions.read(self._partitions[partition][1], high_watermark)
            self._transactions[partition] = transactions
        return transactions


# --- files ----------------------------------------------------------------------------------------------------------


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def _checkpoint(log_dir: str, name: str) -> dict[tuple[str, int], int]:
    return checkpoints.decode_offsets(_read(f"{log_dir}/{name}") or b"")


def _find_partitions(options: LogOptions) -> dict[int, tuple[str, str]]:
    partitions: dict[int, tuple[str, str]] = {}
    for log_dir in options.log_dirs:
        try:
            entries = os.listdir(log_dir)
        except OSError as error:
            raise UsageError(f"cannot read the log dir {log_dir}: {error.strerror}") from None
        for name in entries:
            place = names.parse_dir_name(name)
            if place and place.kind is DirKind.CURRENT and place.topic == options.topic:
                partitions[place.partition] = (log_dir, f"{log_dir}/{name}")
    if not partitions:
        raise NoTopicError(f"there is no topic {options.topic!r} in {', '.join(options.log_dirs)}")
    return partitions


def _segment_bases(directory: str) -> list[int]:
    try:
        files = [names.parse_file_name(name) for name in os.listdir(directory)]
    except FileNotFoundError:
        return []
    return sorted(file.base_offset for file in files if file and file.suffix == names.LOG and not file.mark)


@dataclass(slots=True)
class DiskSegment:
    """The files of a segment; `next_base` is None for the last segment."""

    directory: str
    base_offset: int
    next_base: int | None

    def path(self, suffix: str) -> str:
        """Return the path of a file of the segment."""
        return f"{self.directory}/{names.file_name(self.base_offset, suffix)}"

    def offset_index(self) -> OffsetIndex:
        """Return the offset index; an empty index if it is missing or damaged, so that the whole segment is read."""
        try:
            size = os.stat(self.path(names.LOG)).st_size
            return OffsetIndex.decode(
                self.base_offset, trim(_read(self.path(names.OFFSET_INDEX)) or b"", 8), size
            )
        except CorruptFileError:
            return OffsetIndex(self.base_offset)

    def time_index(self) -> TimeIndex:
        """Return the time index; an empty index if it is missing or damaged."""
        try:
            return TimeIndex.decode(self.base_offset, trim(_read(self.path(names.TIME_INDEX)) or b"", 12))
        except CorruptFileError:
            return TimeIndex(self.base_offset)

    def max_timestamp(self) -> int:
        """Return an upper bound of the timestamps, in ms, from the index of a sealed segment; without it no bound."""
        index = self.time_index()
        return index.last()[0] if self.next_base is not None and len(index) else (1 << 63) - 1

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Yield (position, header) of each whole batch from `position` on; ends at a damaged batch."""
        with open(self.path(names.LOG), "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            while size - position >= HEADER_SIZE_UP_TO_MAGIC:
                try:
                    header = read_any_header(os.pread(file.fileno(), HEADER_SIZE, position))
                except RecordsError:
                    return
                if header.size > size - position:
                    return
                yield position, header
                position += header.size

    def position_of(self, offset: int) -> int:
        """Return the position to read from for `offset`: of an earlier batch if there is one.

        The search starts at the nearest entry of the index and follows headers. A broker keeps the index of its active
        segment in memory, so the file may have few entries or none.
        """
        index = self.offset_index()
        position = index.lookup(offset)
        if index.last_offset < offset:
            next_offset = self.base_offset
            for at, header in self.headers(position):
                if header.magic < 2 or header.next_offset > offset or header.base_offset < next_offset:
                    break
                position, next_offset = at, header.next_offset
        return position

    def batch_ends(self) -> Iterator[tuple[int, int]]:
        """Yield (offset after a batch, position at which it begins), by the index and then by the headers."""
        index = self.offset_index()
        position = 0
        for n in range(len(index)):
            offset, position = index.entry(n)
            yield offset + 1, position
        for at, header in self.headers(position):
            if header.last_offset > index.last_offset:
                yield header.next_offset, at

    def batch(self, position: int, header: BatchHeader) -> bytes:
        """Read one batch."""
        with open(self.path(names.LOG), "rb", buffering=0) as file:
            return os.pread(file.fileno(), header.size, position)

    def items(self, start: int, end: int) -> Iterator[tuple[bytes | memoryview, BatchHeader] | CorruptSpan]:
        """Yield batches, beginning before `start`, and damaged bytes as spans, which end at `end` if no batch follows.

        Raises FileNotFoundError.
        """
        index = self.offset_index()
        position = self.position_of(start)
        with open(self.path(names.LOG), "rb", buffering=0) as file:
            fd = file.fileno()
            size = os.fstat(fd).st_size
            window, window_at = b"", position
            while position < size:
                at = position - window_at
                available = len(window) - at
                if available < HEADER_SIZE and position + available < size:
                    window, window_at, at = os.pread(fd, _READ_BYTES, position), position, 0
                    available = len(window)
                header = _sound_header(window, at, size - position)
                if header is None:
                    span, position = self._damage(fd, index, position, size, end)
                    yield span
                    continue
                if header.size > available:
                    window, window_at, at = (
                        os.pread(fd, max(_READ_BYTES, header.size), position), position, 0
                    )  # fmt: skip
                yield memoryview(window)[at : at + header.size], header
                position += header.size

    def _damage(
        self, fd: int, index: OffsetIndex, position: int, size: int, end: int
    ) -> tuple[CorruptSpan, int]:
        """Skip bytes that are not a batch, to the next batch in the index; returns (span, position after it)."""
        for n in range(len(index)):
            _, next_position = index.entry(n)
            if next_position > position:
                header = _sound_header(os.pread(fd, HEADER_SIZE, next_position), 0, size - next_position)
                if header is not None:
                    data = os.pread(fd, min(next_position - position, CORRUPT_BYTES_MAX), position)
                    stop = min(header.base_offset, end)
                    return CorruptSpan(
                        self.base_offset, stop, "crc", f"no batch at byte {position}", data
                    ), next_position
        data = os.pread(fd, min(size - position, CORRUPT_BYTES_MAX), position)
        stop = min(self.next_base or end, end)
        return CorruptSpan(self.base_offset, stop, "crc", f"no batch from byte {position} on", data), size


def _sound_header(buf: bytes, at: int, available: int) -> BatchHeader | None:
    try:
        header = read_any_header(memoryview(buf)[at:])
    except RecordsError:
        return None
    return (
        header if header.size <= min(available, BATCH_BYTES_MAX) and header.last_offset_delta >= 0 else None
    )


def trim(data: bytes, entry_size: int) -> bytes:
    """Return the entries of a preallocated index, without the zeros after them."""
    data = data[: len(data) - len(data) % entry_size]
    end = -(-len(data.rstrip(b"\0")) // entry_size) * entry_size
    return data[: max(end, entry_size)]


# --- transactions ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Transactions:
    """Transactions of a partition that are open or were aborted, seen at a high watermark."""

    high_watermark: int
    last_stable_offset: int
    aborted: list[txn_index.AbortedTransaction] = field(default_factory=list)

    @classmethod
    def read(cls, directory: str, high_watermark: int) -> Transactions:
        """Read the transaction indexes of sealed segments, and replay the batches of the rest."""
        bases = _segment_bases(directory)
        last = bisect_right(bases, high_watermark) - 1
        first = last
        while first > 0 and not os.path.exists(
            f"{directory}/{names.file_name(bases[first], names.SNAPSHOT)}"
        ):
            first -= 1
        aborted: list[txn_index.AbortedTransaction] = []
        for base in bases[: max(first, 0)]:
            raw = _read(f"{directory}/{names.file_name(base, names.TXN_INDEX)}")
            if raw:
                aborted += txn_index.decode(raw, base)
        open_since: dict[int, int] = {}
        if first > 0:
            raw = _read(f"{directory}/{names.file_name(bases[first], names.SNAPSHOT)}")
            for entry in snapshot.decode(raw or b""):
                if entry.current_txn_first_offset >= 0:
                    open_since[entry.producer_id] = entry.current_txn_first_offset
        for n in range(max(first, 0), last + 1):
            segment = DiskSegment(directory, bases[n], None)
            for position, header in segment.headers():
                is_beyond = header.base_offset >= high_watermark  # or a damaged header claims so
                if is_beyond or header.magic < 2 or not header.is_transactional:
                    continue
                if not header.is_control:
                    open_since.setdefault(header.producer_id, header.base_offset)
                    continue
                began = open_since.pop(header.producer_id, None)
                if began is not None and _is_abort(segment.batch(position, header)):
                    stable = min(open_since.values(), default=header.next_offset)
                    aborted.append(
                        txn_index.AbortedTransaction(header.producer_id, began, header.last_offset, stable)
                    )
        return cls(high_watermark, min([high_watermark, *open_since.values()]), aborted)

    def aborted_in(self, start: int, end: int) -> list[tuple[int, int, int]]:
        """Return (producer id, first offset, marker's offset) of aborted transactions that overlap [start, end)."""
        return [
            (transaction.producer_id, transaction.first_offset, transaction.last_offset)
            for transaction in self.aborted
            if transaction.last_offset >= start and transaction.first_offset < end
        ]


def _is_abort(batch: bytes) -> bool:
    try:
        header = read_any_header(batch)
        if not check_crc(batch, 0, header):
            raise IncompleteError("a transaction marker has a wrong checksum")
        records = read_records(batch)
        return bool(records) and control.parse_type(records[0].key) is control.ControlType.ABORT
    except RecordsError as error:
        raise IncompleteError(f"a transaction marker is damaged: {error.message}") from None


class AbortedFilter:
    """Filter of batches of aborted transactions, given as (producer id, first offset, marker's offset)."""

    def __init__(self, aborted: list[tuple[int, int, int]]) -> None:
        self._by_producer: dict[int, list[tuple[int, int]]] = {}
        for producer_id, first, last in aborted:
            self._by_producer.setdefault(producer_id, []).append((first, last))

    def hides(self, _: bytes | memoryview, header: BatchHeader) -> bool:
        """Return whether a batch belongs to an aborted transaction."""
        if header.magic < 2 or not header.is_transactional or header.is_control:
            return False
        spans = self._by_producer.get(header.producer_id, ())
        return any(first <= header.base_offset <= last for first, last in spans)
