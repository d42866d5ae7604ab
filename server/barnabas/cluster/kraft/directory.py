"""The directory of a metadata log, read without a broker: segments and snapshots, up to an offset or a time.

The rule: nothing is written, not even a lock. Unreadable data is an error that names file and offset; at the end of the
last segment, which may be written just now, only a note. All records in the log are applied: a directory does not show
which of them a majority has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from barnabas.cluster.kraft.state import LogState, MetadataLogError, Snapshot, SnapshotReader, Step
from barnabas.log.disk import Disk
from barnabas.log.format import names
from barnabas.log.scan import iter_checked
from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import BatchHeader
from barnabas.records.errors import RecordsError
from barnabas.records.record import Record

DIRECTORY = names.CLUSTER_METADATA_DIR


class Until(NamedTuple):
    """The end of reading: an offset, or a time in ms since 1970, inclusive; None for no bound."""

    offset: int | None = None
    time_ms: int | None = None

    def excludes(self, offset: int, timestamp_ms: int) -> bool:
        """Return whether a record comes after the bound."""
        if self.offset is not None and offset > self.offset:
            return True
        return self.time_ms is not None and timestamp_ms > self.time_ms

    def __str__(self) -> str:
        return f"offset {self.offset}" if self.offset is not None else f"time {self.time_ms}"


END = Until()


class MetadataLog:
    """A metadata log for reading. Lifecycle: `begin`, then `steps` any number of times, each continuing the last.

    `state` is that of the last step; `notes` are messages for the user.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        """`path` is the directory of the log, or a log dir that contains it. Raises MetadataLogError."""
        self._disk = disk
        self.path = _find(disk, path)
        file_names = [entry.name for entry in disk.list(self.path) if not entry.is_dir]
        parsed = (names.parse_file_name(name) for name in file_names)
        self._segments = sorted(
            file.base_offset for file in parsed if file and file.suffix == names.LOG and not file.mark
        )
        ids = (names.parse_checkpoint_name(name) for name in file_names)
        self._snapshots = sorted(pair for pair in ids if pair is not None)
        if not self._segments and not self._snapshots:
            raise MetadataLogError(f"{self.path} has neither segments nor snapshots")
        self.notes: list[str] = []
        self.state = LogState()
        self._start = 0

    @property
    def oldest(self) -> Until:
        """The oldest state available: before the first segment, or that of the first snapshot that the log continues."""
        log_start = self._segments[0] if self._segments else 0
        return Until(offset=self._oldest(log_start) if log_start or not self._segments else -1)

    def begin(self, until: Until = END) -> None:
        """Load the newest snapshot within a bound that the log continues. Raises MetadataLogError."""
        log_start = self._segments[0] if self._segments else 0
        for end_offset, epoch in reversed(self._snapshots):
            if (until.offset is not None and end_offset - 1 > until.offset) or (
                self._segments and end_offset < log_start
            ):
                continue
            path = f"{self.path}/{end_offset:020d}-{epoch:010d}{names.CHECKPOINT}"
            snapshot = read_snapshot(self._disk, path)
            if until.time_ms is not None and end_offset and snapshot.last_ms > until.time_ms:
                continue
            self.state.load(snapshot)
            self._start = end_offset
            return
        if log_start or not self._segments:
            raise MetadataLogError(
                f"{self.path}: the oldest state is that of offset {self._oldest(log_start)}, after {until}"
            )

    def steps(self, until: Until = END) -> Iterator[Step]:
        """Apply and yield each record up to a bound. Raises MetadataLogError for an unreadable or invalid record."""
        expected = self._segments[0] if self._segments else 0
        for base_offset in self._segments:
            path = f"{self.path}/{names.file_name(base_offset, names.LOG)}"
            if base_offset > max(expected, self._start):
                raise MetadataLogError(
                    f"{path}: offsets {expected} to {base_offset - 1} are missing before it"
                )
            for header, records in self._batches(path, base_offset):
                if until.excludes(header.base_offset, header.base_timestamp):
                    return
                expected = header.last_offset + 1
                for record in records:
                    if record.offset < self._start:
                        self.state.note_leader(header, record, path)
                        continue
                    if until.excludes(record.offset, record.timestamp):
                        return
                    yield self.state.step(header, record, path)
                    self._start = record.offset + 1

    def _batches(self, path: str, base_offset: int) -> Iterator[tuple[BatchHeader, list[Record]]]:
        """Yield the batches of a segment, without the records that the loaded snapshot covers."""
        file = self._disk.open(path)
        problems: list[str] = []
        for position, header in iter_checked(
            file, file.size(), base_offset=base_offset, on_problem=lambda _, text: problems.append(text)
        ):
            if header.last_offset < self._start and not header.is_control:
                yield header, []
                continue
            try:
                yield header, list(iter_any_records(file.read(header.size, position)))
            except RecordsError as error:
                raise MetadataLogError(
                    f"{path}: batch at offset {header.base_offset}: {error.message}"
                ) from None
        if problems and base_offset != self._segments[-1]:
            raise MetadataLogError(f"{path}: {problems[0]}")
        self.notes += [f"{path}: the end is not read: {text}" for text in problems]

    def _oldest(self, log_start: int) -> int:
        return min(
            (end_offset - 1 for end_offset, _ in self._snapshots if end_offset >= log_start), default=-1
        )


def read_snapshot(disk: Disk, path: str) -> Snapshot:
    """Read a `.checkpoint` file completely. Raises MetadataLogError if it is damaged or ends before its footer."""
    ids = names.parse_checkpoint_name(path.rpartition("/")[2])
    if ids is None:
        raise MetadataLogError(f"{path} is not the name of a snapshot")
    reader = SnapshotReader(*ids, path)
    problems: list[str] = []
    file = disk.open(path)
    for position, header in iter_checked(
        file, file.size(), base_offset=0, on_problem=lambda _, text: problems.append(text)
    ):
        try:
            reader.add(header, list(iter_any_records(file.read(header.size, position))))
        except RecordsError as error:
            raise MetadataLogError(f"{path}: {error.message}") from None
    if problems:
        raise MetadataLogError(f"{path}: {problems[0]}")
    return reader.finish()


def _find(disk: Disk, path: str) -> str:
    """Return the directory of the metadata log: the path itself, or a directory in it. Raises MetadataLogError."""
    path = path.rstrip("/") or "/"
    try:
        entries = disk.list(path)
    except NotADirectoryError:
        raise MetadataLogError(f"{path} is a file; name a log dir, or the {DIRECTORY} in it") from None
    except OSError as error:
        raise MetadataLogError(f"{path}: {error.strerror}") from None
    if any(entry.is_dir and entry.name == DIRECTORY for entry in entries):
        return f"{path}/{DIRECTORY}"
    if any(
        names.parse_checkpoint_name(entry.name)
        or ((file := names.parse_file_name(entry.name)) and file.suffix == names.LOG)
        for entry in entries
    ):
        return path
    raise MetadataLogError(f"{path} has no {DIRECTORY}")
