"""`verify`: checks the files of a partition's directory, and whether they agree.

The rule: an ERROR makes a broker lose or misread records, or would have to be repaired; a WARNING is odd but harmless; a
NOTE explains a finding. Nothing is repaired here, and nothing is trusted unread.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from struct import Struct

from barnabas.log.config import UNBOUNDED
from barnabas.log.disk import Disk, File
from barnabas.log.format import CorruptFileError, checkpoints, names, properties, snapshot, txn_index
from barnabas.log.producers import ProducerState, is_end_marker
from barnabas.log.replay import aborted_entry
from barnabas.log.scan import iter_checked, read_marker
from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import BatchHeader
from barnabas.records.errors import RecordsError
from barnabas.tools.logtool.dump import padding
from barnabas.tools.logtool.places import PartitionPlace

_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")
CHUNK_BYTES = 1 << 20
UNINDEXED_BYTES_MAX = 1 << 20  # a reader would scan that far for one record


class Severity(IntEnum):
    """Severity of a finding."""

    NOTE = 0
    WARNING = 1
    ERROR = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault of a file; `position` is a byte of it, -1 if not applicable."""

    severity: Severity
    path: str
    text: str
    position: int = -1


Report = Callable[[Finding], None]


@dataclass(slots=True)
class SegmentMap:
    """Sound batches of a segment, in order: positions, offsets, timestamps."""

    base_offset: int
    positions: list[int] = field(default_factory=list)
    base_offsets: list[int] = field(default_factory=list)
    last_offsets: list[int] = field(default_factory=list)
    max_timestamps: list[int] = field(default_factory=list)  # of this batch and all before it
    aborted: list[txn_index.AbortedTransaction] = field(default_factory=list)
    max_timestamp: int = -1
    size: int = 0  # bytes of sound batches
    is_whole: bool = True

    @property
    def end_offset(self) -> int:
        """The offset after the last sound batch."""
        return self.last_offsets[-1] + 1 if self.last_offsets else self.base_offset

    def add(self, position: int, header: BatchHeader) -> None:
        """Take in the next batch."""
        base_offset = header.base_offset
        self.positions.append(position)
        self.base_offsets.append(base_offset)
        self.last_offsets.append(base_offset + header.last_offset_delta)
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
        self.max_timestamps.append(self.max_timestamp)
        self.size = position + header.size


@dataclass(slots=True)
class Verifier:
    """Checks one partition after the other.

    `deep` decodes every record. `is_live`: a broker has the log dir open, so that its last bytes may be
    incomplete. `on_bytes` is called with the number of bytes read.
    """

    disk: Disk
    report: Report
    deep: bool = False
    is_live: bool = False
    on_bytes: Callable[[int], None] = lambda _: None

    def partition(self, place: PartitionPlace) -> int:
        """Check a partition; returns its end offset. Raises OSError if the disk itself fails."""
        for name in place.leftovers:
            self._note(f"{place.path}/{name}", "left over from a deletion or a compaction that has not ended")
        for name in sorted(place.file_names):
            if name.startswith(names.UNDECIDED):
                text = "a batch was cut out there: the coordinator is out of service until repair --salvage"
                self._warn(f"{place.path}/{name}", text)
        for name in place.inventory.orphans:
            self._warn(f"{place.path}/{name}", "there is no segment to it")
        producers = ProducerState(place.name, expiration_ms=UNBOUNDED)
        epochs: dict[int, int] = {}
        end_offset: int | None = None
        segments = place.inventory.segments
        for n, files in enumerate(segments):
            path = place.file(files.base_offset, names.LOG)
            if end_offset is not None and files.base_offset < end_offset:
                self._error(path, f"begins before {end_offset}, where the segment before it ends")
            elif end_offset is not None and files.base_offset > end_offset:
                self._note(
                    path,
                    f"offsets {end_offset} to {files.base_offset - 1} are missing before it (compacted?)",
                )
            segment = self._log(path, files.base_offset, producers, epochs, is_last=n == len(segments) - 1)
            end_offset = segment.end_offset
            for suffix, is_there, check in (
                (names.OFFSET_INDEX, files.has_offset_index, self._offset_index),
                (names.TIME_INDEX, files.has_time_index, self._time_index),
            ):
                index_path = place.file(files.base_offset, suffix)
                if is_there:
                    check(index_path, segment)
                elif segment.positions:
                    is_active = n == len(segments) - 1
                    what = "is not written yet: the log was not closed" if is_active else "is missing"
                    self._find(Severity.NOTE if is_active else Severity.ERROR, index_path, what)
            self._txn_index(place, segment, has_file=files.has_txn_index)
        start = segments[0].base_offset if segments else 0
        end = start if end_offset is None else end_offset
        if not segments:
            self._warn(place.path, "there is no segment")
        self._snapshots(place, end)
        self._epochs(place, epochs)
        self._topic_id(place)
        return end

    # --- the log --------------------------------------------------------------------------------------------

    def _log(
        self, path: str, base_offset: int, producers: ProducerState, epochs: dict[int, int], *, is_last: bool
    ) -> SegmentMap:
        file = self.disk.open(path)
        size = file.size()
        segment = SegmentMap(base_offset)
        problems: list[tuple[int, str]] = []
        reported = 0
        for position, header in iter_checked(
            file, size, base_offset=base_offset, on_problem=lambda *args: problems.append(args)
        ):
            segment.add(position, header)
            if header.leader_epoch not in epochs and header.magic == 2:
                epochs[header.leader_epoch] = header.base_offset
            if self.deep or header.producer_id >= 0:
                try:
                    self._replay(file, position, header, producers, segment)
                    if self.deep:
                        self._records(path, position, header, file.read(header.size, position))
                except RecordsError as error:
                    self._error(path, f"the batch at offset {header.base_offset}: {error.message}", position)
            if position - reported > CHUNK_BYTES:
                self.on_bytes(position - reported)
                reported = position
        self.on_bytes(size - reported)
        for position, text in problems:
            segment.is_whole = False
            rest = size - position
            if is_last and _is_zero(file, position, size):
                self._note(
                    path,
                    f"{rest} bytes of zeros at the end: the file was preallocated and not closed",
                    position,
                )
            elif is_last and self.is_live:
                self._note(path, f"{rest} bytes at the end are being written: {text}", position)
            else:
                self._error(
                    path, f"after offset {segment.end_offset - 1}: {text} ({rest} bytes left)", position
                )
        return segment

    def _replay(
        self, file: File, position: int, header: BatchHeader, producers: ProducerState, segment: SegmentMap
    ) -> None:
        if header.producer_id < 0:
            return
        if not is_end_marker(header):
            producers.append(header)
            return
        marker = read_marker(file, position, header)
        completed = producers.append_marker(header, marker) if marker else None
        if completed is not None and completed.is_aborted:
            segment.aborted.append(aborted_entry(completed, producers))

    def _records(self, path: str, position: int, header: BatchHeader, data: bytes) -> None:
        previous = -1
        largest = -1
        for record in iter_any_records(data):
            if record.offset <= previous:
                self._error(path, f"record {record.offset} follows record {previous}", position)
            if header.magic == 2 and not header.base_offset <= record.offset <= header.last_offset:
                self._error(path, f"record {record.offset} is in the batch at {header.base_offset}", position)
            previous = record.offset
            largest = max(largest, record.timestamp)
        if largest > header.max_timestamp:
            self._error(
                path, f"a record has timestamp {largest}, its batch says {header.max_timestamp}", position
            )

    # --- indexes --------------------------------------------------------------------------------------------

    def _offset_index(self, path: str, segment: SegmentMap) -> None:
        entries = self._entries(path, _OFFSET_ENTRY)
        before = (-1, -1)
        covered = 0
        for n, (relative, position) in enumerate(entries):
            at = n * _OFFSET_ENTRY.size
            offset = segment.base_offset + relative
            if not (relative > before[0] and position > before[1]):
                self._error(path, f"entry {offset} at {position} does not follow the one before it", at)
            before = relative, position
            slot = bisect_left(segment.positions, position)
            if slot == len(segment.positions) or segment.positions[slot] != position:
                if segment.is_whole or position < segment.size:
                    self._error(path, f"no batch begins at {position}, where offset {offset} shall be", at)
                continue
            if not segment.last_offsets[slot] <= offset < segment.end_offset:
                self._error(
                    path, f"offset {offset} is not at {position}: {segment.last_offsets[slot]} is there", at
                )
            covered = position
        if segment.size - covered > UNINDEXED_BYTES_MAX:
            self._warn(path, f"nothing of the last {segment.size - covered} bytes of the segment is indexed")

    def _time_index(self, path: str, segment: SegmentMap) -> None:
        before = (-1, -1)
        for n, (timestamp, relative) in enumerate(self._entries(path, _TIME_ENTRY)):
            at = n * _TIME_ENTRY.size
            offset = segment.base_offset + relative
            if not (timestamp > before[0] and relative >= before[1]):
                self._error(
                    path, f"entry {timestamp} at offset {offset} does not follow the one before it", at
                )
            before = timestamp, relative
            if offset >= segment.end_offset:
                if segment.is_whole:
                    self._error(path, f"offset {offset} is not in the segment", at)
                continue
            slot = bisect_right(segment.base_offsets, offset) - 1
            largest = segment.max_timestamps[slot] if slot >= 0 else -1
            if largest != timestamp:
                self._error(
                    path, f"the largest timestamp up to offset {offset} is {largest}, not {timestamp}", at
                )

    def _entries(self, path: str, entry: Struct) -> Iterator[tuple[int, ...]]:
        data = self.disk.read(path)
        if len(data) % entry.size:
            self._error(path, f"{len(data)} bytes are no whole number of entries of {entry.size} bytes")
        used = -(-(len(data) - padding(data)) // entry.size) * entry.size
        if len(data) - used >= entry.size:
            self._note(path, f"{len(data) - used} bytes of zeros at the end: the file was not closed", used)
        whole = len(data) - len(data) % entry.size
        return entry.iter_unpack(memoryview(data)[: min(used, whole)])

    def _txn_index(self, place: PartitionPlace, segment: SegmentMap, *, has_file: bool) -> None:
        path = place.file(segment.base_offset, names.TXN_INDEX)
        try:
            there = txn_index.decode(self.disk.read(path), segment.base_offset) if has_file else []
        except CorruptFileError as error:
            self._error(path, str(error))
            return
        entries = {entry.last_offset: entry for entry in there}
        for expected in segment.aborted:
            entry = entries.get(expected.last_offset)
            if entry is None:
                self._error(
                    path, f"the transaction that was aborted at offset {expected.last_offset} is missing"
                )
            elif entry.producer_id != expected.producer_id or entry.first_offset > expected.first_offset:
                self._error(path, f"{_show(entry)} should be {_show(expected)}")
        for entry in there:
            is_there = entry.last_offset in segment.base_offsets
            if not is_there and segment.is_whole and entry.last_offset >= segment.end_offset:
                self._error(path, f"{_show(entry)} ends after the segment")

    # --- what belongs to the whole --------------------------------------------------------------------------

    def _snapshots(self, place: PartitionPlace, end_offset: int) -> None:
        bases = {files.base_offset for files in place.inventory.segments}
        for offset in place.inventory.snapshots:
            path = place.file(offset, names.SNAPSHOT)
            try:
                entries = snapshot.decode(self.disk.read(path))
            except CorruptFileError as error:
                self._error(path, str(error))
                continue
            if offset > end_offset:
                self._error(path, f"is of an offset after the log's end, {end_offset}")
            elif offset not in bases and offset != end_offset:
                self._note(path, "is at no segment's beginning, nor at the end")
            for entry in entries:
                if entry.last_offset >= offset:
                    self._error(
                        path, f"producer {entry.producer_id} has written offset {entry.last_offset} already"
                    )

    def _epochs(self, place: PartitionPlace, epochs: dict[int, int]) -> None:
        path = f"{place.path}/{names.LEADER_EPOCH_CHECKPOINT}"
        written = {epoch: start for epoch, start in epochs.items() if epoch >= 0}
        try:
            data = self.disk.read(path) if names.LEADER_EPOCH_CHECKPOINT in place.file_names else b""
            starts = dict(checkpoints.decode_epochs(data))
        except CorruptFileError as error:
            self._error(path, str(error))
            return
        for epoch, start in written.items():
            if epoch not in starts:
                self._error(path, f"leader epoch {epoch}, which begins at offset {start}, is missing")
            elif starts[epoch] > start and start >= min(starts.values()):
                self._error(path, f"leader epoch {epoch} begins at offset {start}, not {starts[epoch]}")

    def _topic_id(self, place: PartitionPlace) -> None:
        if names.PARTITION_METADATA in place.file_names:
            path = f"{place.path}/{names.PARTITION_METADATA}"
            try:
                properties.decode_partition_metadata(self.disk.read(path))
            except CorruptFileError as error:
                self._error(path, str(error))

    # --- reporting ------------------------------------------------------------------------------------------

    def _find(self, severity: Severity, path: str, text: str, position: int = -1) -> None:
        self.report(Finding(severity, path, text, position))

    def _error(self, path: str, text: str, position: int = -1) -> None:
        self._find(Severity.ERROR, path, text, position)

    def _warn(self, path: str, text: str, position: int = -1) -> None:
        self._find(Severity.WARNING, path, text, position)

    def _note(self, path: str, text: str, position: int = -1) -> None:
        self._find(Severity.NOTE, path, text, position)


def _show(entry: txn_index.AbortedTransaction) -> str:
    return f"the aborted transaction of producer {entry.producer_id}, {entry.first_offset} to {entry.last_offset}"


def _is_zero(file: File, position: int, end: int) -> bool:
    while position < end:
        data = file.read(min(CHUNK_BYTES, end - position), position)
        if not data or any(data):
            return False
        position += len(data)
    return True
