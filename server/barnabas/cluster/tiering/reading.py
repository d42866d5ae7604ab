"""Reading records, aborted transactions and times out of remote segments, in worker threads.

The rule: indexes are kept in memory within a bound, records are not; a search starts at a position of an index, as an entry
has the last offset of a batch.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar
from uuid import UUID

from barnabas.log.format import CorruptFileError, txn_index
from barnabas.log.format.offset_index import OffsetIndex
from barnabas.log.format.time_index import TimeIndex
from barnabas.log.format.txn_index import AbortedTransaction
from barnabas.log.scan import iter_headers
from barnabas.log.timestamps import SCAN_BYTES, TimestampOffset, record_steps
from barnabas.records.batch import HEADER_SIZE, iter_batches, read_any_header
from barnabas.records.steps import run
from barnabas.tiered.storage import IndexKind, RemoteObjectNotFoundError, RemoteStorage, RemoteStorageError

if TYPE_CHECKING:
    from barnabas.tiered.segment import RemoteSegment

T = TypeVar("T")

SEARCH_BYTES: Final = 32 << 10
"""Extra bytes read before the requested batch, from the position in the index."""
INDEX_BYTES_MAX: Final = 32 << 20
"""Most bytes of indexes in memory, even if `remote.log.index.file.cache.total.size.bytes` allows more (on disk)."""


class RemoteIndexes:
    """Cache of the most recently used indexes of remote segments. Thread-safe."""

    def __init__(self, storage: RemoteStorage, bytes_max: int) -> None:
        self._storage = storage
        self._bytes_max = min(bytes_max, INDEX_BYTES_MAX)
        self._lock = Lock()
        self._entries: OrderedDict[tuple[UUID, IndexKind], tuple[object, int]] = OrderedDict()
        self._size = 0

    def offsets(self, segment: RemoteSegment) -> OffsetIndex:
        """Return the offset index. Raises RemoteStorageError."""
        return self._get(
            segment,
            IndexKind.OFFSET,
            lambda data: OffsetIndex.decode(segment.start_offset, data, segment.size),
        )

    def times(self, segment: RemoteSegment) -> TimeIndex:
        """Return the time index. Raises RemoteStorageError."""
        return self._get(
            segment, IndexKind.TIMESTAMP, lambda data: TimeIndex.decode(segment.start_offset, data)
        )

    def aborted(self, segment: RemoteSegment) -> list[AbortedTransaction]:
        """Return the aborted transactions with a marker in the segment. Raises RemoteStorageError."""
        return self._get(
            segment, IndexKind.TRANSACTION, lambda data: txn_index.decode(data, segment.start_offset)
        )

    def cached_aborted(self, segment: RemoteSegment) -> list[AbortedTransaction] | None:
        """Return the aborted transactions of a segment if they are in memory."""
        return self._cached(segment, IndexKind.TRANSACTION)  # type: ignore[return-value]  # of that kind

    def forget(self, segment: RemoteSegment) -> None:
        """Drop the indexes of a segment."""
        with self._lock:
            for kind in IndexKind:
                _, size = self._entries.pop((segment.segment_id, kind), (None, 0))
                self._size -= size

    def _get(self, segment: RemoteSegment, kind: IndexKind, decode: Callable[[bytes], T]) -> T:
        cached = self._cached(segment, kind)
        if cached is not None:
            return cached  # type: ignore[return-value]  # of the type that belongs to the kind
        key = segment.segment_id, kind
        try:
            data = self._storage.read_index(segment, kind)
        except RemoteObjectNotFoundError:
            if kind is not IndexKind.TRANSACTION:
                raise
            data = b""
        try:
            index = decode(data)
        except CorruptFileError as error:
            raise RemoteStorageError(
                f"the {kind.value} of {segment.segment_id} is damaged: {error}"
            ) from error
        with self._lock:
            if key not in self._entries:
                self._entries[key] = index, len(data)
                self._size += len(data)
            while self._size > self._bytes_max and self._entries:
                _, (_, size) = self._entries.popitem(last=False)
                self._size -= size
        return index

    def _cached(self, segment: RemoteSegment, kind: IndexKind) -> object | None:
        key = segment.segment_id, kind
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]


class RemoteFile:
    """The log of a remote segment as a `log.scan.ReadableFile`."""

    def __init__(self, storage: RemoteStorage, segment: RemoteSegment) -> None:
        self._storage = storage
        self._segment = segment

    def read(self, size: int, position: int) -> bytes:
        """Read bytes, fewer only at the segment's end. Raises RemoteStorageError."""
        size = min(size, self._segment.size - position)
        return self._storage.read(self._segment, position, size) if size > 0 else b""


class RemoteRecords(NamedTuple):
    """Batches of a remote segment; the last may be incomplete.

    All their records are before `upper_offset`. The batch after them begins at `next_offset`, and at `next_position` in the
    segment, which is -1 if it was not determined.
    """

    data: bytes
    upper_offset: int
    next_offset: int
    next_position: int


@dataclass(frozen=True, slots=True)
class RemoteRange:
    """A part of a remote segment to read.

    Attributes:
        segment: the segment.
        offset: first offset; its batch may begin before it.
        end_offset: end of the records that belong to the log.
        max_bytes: most bytes.
        min_one_batch: whether the first batch is returned whole if it is larger.

    """

    segment: RemoteSegment
    offset: int
    end_offset: int
    max_bytes: int
    min_one_batch: bool


def read_records(storage: RemoteStorage, indexes: RemoteIndexes, part: RemoteRange) -> RemoteRecords | None:
    """Read batches; None if all batches of the segment end before the offset.

    Raises RemoteStorageError, and CorruptRecordsError for bytes that are not batches.
    """
    segment, index = part.segment, indexes.offsets(part.segment)
    file = RemoteFile(storage, segment)
    position = index.lookup(part.offset)
    want = max(part.max_bytes, 0)
    chunk, start = file.read(want + SEARCH_BYTES, position), position
    while True:
        at = position - start
        if len(chunk) - at < HEADER_SIZE and start + len(chunk) < segment.size:
            chunk, start, at = file.read(want + SEARCH_BYTES, position), position, 0
        if at >= len(chunk):
            return None
        header = read_any_header(chunk, at)
        if header.last_offset >= part.offset:
            break
        position += header.size
    if header.base_offset >= part.end_offset:
        return None
    if header.size > want:
        if not part.min_one_batch:
            return RemoteRecords(b"", part.offset, part.offset, -1)
        want = header.size
    data = chunk[at : at + want]
    if len(data) < want:
        data += file.read(want - len(data), position + len(data))
    if part.end_offset > segment.end_offset:
        return _placed(segment, index, position, data)
    records = _placed(segment, index, position, _cut_off(data, part.end_offset))
    return records._replace(upper_offset=min(records.upper_offset, part.end_offset), next_position=-1)


def read_ahead(
    storage: RemoteStorage,
    indexes: RemoteIndexes,
    segment: RemoteSegment,
    position: int,
    max_bytes: int,
    count: int,
    may_continue: Callable[[], bool],
) -> list[RemoteRecords]:
    """Read whole batches from a position on, for `count` fetches of `max_bytes`; fewer at the segment's end.

    A batch larger than `max_bytes` ends the run, as does False from `may_continue`, which is called before each further
    read. Raises RemoteStorageError, CorruptRecordsError.
    """
    index = indexes.offsets(segment)
    pieces: list[RemoteRecords] = []
    while len(pieces) < count and position < segment.size and (not pieces or may_continue()):
        end = segment.size
        if end > position + max_bytes:
            slots = index.slots_before(position + max_bytes + 1)
            end = index.entry(slots - 1)[1] if slots else 0
        if end <= position:
            break
        piece = _placed(segment, index, position, storage.read(segment, position, end - position))
        if piece.next_position != end:
            break  # the index does not fit
        pieces.append(piece)
        position = end
    return pieces


def _placed(segment: RemoteSegment, index: OffsetIndex, position: int, data: bytes) -> RemoteRecords:
    """Return batches that were read at a position, with the position of the batch after them."""
    slot = index.slots_before(position + len(data))
    upper = index.entry(slot)[0] + 1 if slot < len(index) else segment.end_offset + 1
    # the batch of the last entry may be incomplete, the batch before it is not
    start = max(index.entry(slot - 2)[1] - position, 0) if slot > 1 else 0
    next_offset, end = -1, start
    for at, header in iter_batches(data, start):
        next_offset, end = header.next_offset, at + header.size
    return RemoteRecords(data, upper, next_offset, position + end)


def _cut_off(data: bytes, end_offset: int) -> bytes:
    """Return the whole batches that begin before an offset."""
    end = 0
    for position, header in iter_batches(data):
        if header.base_offset >= end_offset:
            break
        end = position + header.size
    return data[:end]


def find_time(
    storage: RemoteStorage,
    indexes: RemoteIndexes,
    segment: RemoteSegment,
    timestamp_ms: int,
    start_offset: int,
    record_bytes_max: int,
) -> TimestampOffset | None:
    """Find the first record of a segment from an offset on that has at least a timestamp.

    Raises RemoteStorageError, RecordsError, the latter also where a decompressed record exceeds `record_bytes_max`.
    """
    lower = max(indexes.times(segment).lookup(timestamp_ms), start_offset)
    file, position = RemoteFile(storage, segment), indexes.offsets(segment).lookup(lower)
    for at, header in iter_headers(file, position, segment.size, chunk_bytes=SCAN_BYTES):
        if header.max_timestamp < timestamp_ms or header.last_offset < start_offset:
            continue
        record = run(record_steps(file, at, header, timestamp_ms, start_offset, record_bytes_max))
        if record is not None:
            return record
    return None
