"""A store in a directory, in the layout of Kafka's LocalTieredStorage.

    DIR/kafka-tiered-storage/TOPIC-PARTITION-TOPICID/START-SEGMENTID.log ...   a segment
    DIR/partial/SEGMENTID.log ...                                              while it is written

Beside `.log` there are `.index`, `.timeindex`, `.snapshot`, `.leader_epoch_checkpoint` and, if need be, `.txnindex`. Ids
are Kafka's text of them, START has twenty digits. The rule: a file is complete once it has its name, and durable once
`copy` has returned; Kafka's class walks the directories of the partitions and takes nothing else in them, so partial
files are beside.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from uuid import UUID

from barnabas.log.disk import OsFile
from barnabas.tiered.segment import RemoteSegment, TopicIdPartition
from barnabas.tiered.storage import IndexKind, RemoteObjectNotFoundError, RemoteStorageError, SegmentFiles
from barnabas.wire.ids import parse_uuid, uuid_text

ROOT: Final = "kafka-tiered-storage"
PARTIAL: Final = "partial"
LOG: Final = "log"


class DirectoryStorage:
    """Segments below a directory, which is created."""

    def __init__(self, directory: Path) -> None:
        """Open or create the store.

        Raises:
            RemoteStorageError: the directories cannot be created.

        """
        self._root = directory / ROOT
        self._partial = directory / PARTIAL
        with failures(f"the directory {directory} of the remote store"):
            self._root.mkdir(parents=True, exist_ok=True)
            self._partial.mkdir(exist_ok=True)

    def copy(self, segment: RemoteSegment, files: SegmentFiles) -> None:
        """Store a segment. Raises RemoteStorageError."""
        with failures(f"the copy of {_name(segment)}", missing=RemoteStorageError):
            folder = self._folder(segment.partition)
            if not folder.is_dir():
                folder.mkdir(exist_ok=True)
                synchronize(self._root)
            self._write(segment, files.log, LOG)
            self._write(segment, files.offset_index, IndexKind.OFFSET.value)
            self._write(segment, files.time_index, IndexKind.TIMESTAMP.value)
            if files.transaction_index is not None:
                self._write(segment, files.transaction_index, IndexKind.TRANSACTION.value)
            self._write(segment, files.leader_epochs, IndexKind.LEADER_EPOCH.value)
            self._write(segment, files.producer_snapshot, IndexKind.PRODUCER_SNAPSHOT.value)
            synchronize(folder)

    def read(self, segment: RemoteSegment, start: int, length: int) -> bytes:
        """Bytes of a segment's log. Raises RemoteStorageError."""
        expected = max(0, min(length, segment.size - start))
        with self._reading(f"the log of {_name(segment)}"):
            data = read_range(self._path(segment, LOG), start, expected)
        if len(data) < expected:
            raise RemoteStorageError(
                f"the log of {_name(segment)} has {start + len(data)} bytes, and not {segment.size}"
            )
        return data

    def read_index(self, segment: RemoteSegment, kind: IndexKind) -> bytes:
        """Whole bytes of an index. Raises RemoteStorageError."""
        path = self._path(segment, kind.value)
        with self._reading(f"{kind.value} of {_name(segment)}"):
            try:
                return path.read_bytes()
            except FileNotFoundError:
                if not self._path(segment, LOG).exists():
                    raise
                return path.read_bytes()  # a store that has just come back has it

    def delete(self, segment: RemoteSegment) -> None:
        """Remove all files of a segment. Raises RemoteStorageError."""
        with failures(f"the deletion of {_name(segment)}"):
            for suffix in (LOG, *(kind.value for kind in IndexKind)):
                self._path(segment, suffix).unlink(missing_ok=True)
                self._partial_path(segment, suffix).unlink(missing_ok=True)
            folder = self._folder(segment.partition)
            if folder.is_dir():
                synchronize(folder)

    def objects(self, partition: TopicIdPartition) -> Iterator[tuple[str, int, str]]:
        """Files of a partition: Kafka's text of the segment's id, bytes, name. Raises RemoteStorageError."""
        folder = self._folder(partition)
        with failures(f"the directory {folder}"):
            for path in sorted(folder.iterdir()) if folder.is_dir() else ():
                segment_id = path.stem.partition("-")[2]
                with suppress(FileNotFoundError):
                    yield segment_id, path.stat().st_size, f"{folder.name}/{path.name}"

    def partitions(self) -> Iterator[TopicIdPartition]:
        """Partitions that have a directory. Raises RemoteStorageError."""
        with failures(f"the directory {self._root}"):
            for path in sorted(self._root.iterdir()):
                topic, _, number = path.name[:-23].rpartition("-")
                with suppress(ValueError):
                    yield TopicIdPartition(topic, int(number), UUID(bytes=parse_uuid(path.name[-22:])))

    def close(self) -> None:
        """Nothing is open between calls."""

    @contextmanager
    def _reading(self, subject: str) -> Iterator[None]:
        """Raise errors of files as those of a store; if the store is missing, for example unmounted, all are failures."""
        try:
            with failures(subject):
                yield
        except RemoteObjectNotFoundError as error:
            if self._root.is_dir():
                raise
            raise RemoteStorageError(f"{subject}: {self._root} does not exist") from error

    def _folder(self, partition: TopicIdPartition) -> Path:
        return self._root / f"{partition.topic}-{partition.partition}-{uuid_text(partition.topic_id.bytes)}"

    def _path(self, segment: RemoteSegment, suffix: str) -> Path:
        name = f"{segment.start_offset:020}-{uuid_text(segment.segment_id.bytes)}.{suffix}"
        return self._folder(segment.partition) / name

    def _partial_path(self, segment: RemoteSegment, suffix: str) -> Path:
        return self._partial / f"{uuid_text(segment.segment_id.bytes)}.{suffix}"

    def _write(self, segment: RemoteSegment, source: Path | bytes, suffix: str) -> None:
        partial = self._partial_path(segment, suffix)
        write_durably(partial, self._path(segment, suffix), source)


def write_durably(partial: Path, path: Path, source: Path | bytes | Iterable[bytes]) -> None:
    """Write a file under a temporary name, flush it, and rename it; the directory is flushed by the caller."""
    if isinstance(source, Path):
        shutil.copyfile(source, partial)
    else:
        with partial.open("wb") as file:
            file.writelines([source] if isinstance(source, bytes) else source)
    synchronize(partial)
    partial.replace(path)


def synchronize(path: Path) -> None:
    """Flush a file or a directory to the disk."""
    OsFile(str(path), os.O_RDONLY).sync()


def read_range(path: Path, start: int, length: int) -> bytes:
    """Read `length` bytes of a file from `start`, fewer only at its end."""
    return OsFile(str(path), os.O_RDONLY).read(length, start)


@contextmanager
def failures(subject: str, missing: type[RemoteStorageError] = RemoteObjectNotFoundError) -> Iterator[None]:
    """Raise errors of files as those of a store."""
    try:
        yield
    except FileNotFoundError as error:
        raise missing(f"{subject}: {error.filename} does not exist") from error
    except OSError as error:
        raise RemoteStorageError(f"{subject}: {error}") from error


def _name(segment: RemoteSegment) -> str:
    partition = segment.partition
    return f"segment {segment.segment_id} of {partition.topic}-{partition.partition}, offset {segment.start_offset}"
