"""Tiered storage without a broker: segments by the records of `__remote_log_metadata` in log dirs, and the objects.

The rule: an object is an orphan if no record has ever begun its copy, and that is decided only if its metadata partition
is available from the first record on. The objects are listed before the records are read, so that
a copy that begins meanwhile is no orphan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

from barnabas.log.disk import OsDisk
from barnabas.log.format import names
from barnabas.records.batch import (
    DECOMPRESSED_BYTES_MAX,
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    iter_batches,
    iter_records,
    require_crc,
)
from barnabas.records.errors import CorruptRecordsError, RecordsError
from barnabas.tiered.lineage import LineageError, PartitionSegments
from barnabas.tiered.metadata import (
    METADATA_TOPIC,
    MetadataRecordError,
    PartitionDelete,
    decode,
    metadata_partition,
)
from barnabas.tiered.segment import RemoteSegment, SegmentState, TopicIdPartition
from barnabas.tiered.storage import IndexKind, RemoteObjectNotFoundError, RemoteStorage
from barnabas.tiered.stores import ListedStorage
from barnabas.tools.logtool.places import PartitionPlace, open_partition, partitions_of
from barnabas.tools.logtool.verify import Finding, Severity, Verifier
from barnabas.wire.ids import parse_uuid, uuid_text

READ_BYTES = 4 << 20
BATCH_BYTES_MAX = 128 << 20
_FILES = {
    IndexKind.OFFSET: names.OFFSET_INDEX,
    IndexKind.TIMESTAMP: names.TIME_INDEX,
    IndexKind.TRANSACTION: names.TXN_INDEX,
}


@dataclass
class TierMetadata:
    """Segments by the records of `__remote_log_metadata`.

    Attributes:
        segments: segments by partition, without deleted ones.
        begun: partitions and ids of all segments with a record that began their copy, deleted ones too.
        read: numbers of the metadata partitions that were read from their first record on.
        problems: records that are damaged, or contradict earlier ones: place and text.
    """

    segments: dict[TopicIdPartition, PartitionSegments] = field(default_factory=dict)
    begun: set[tuple[TopicIdPartition, UUID]] = field(default_factory=set)
    read: set[int] = field(default_factory=set)
    problems: list[tuple[str, str]] = field(default_factory=list)

    def read_log_dirs(self, log_dirs: Iterable[str]) -> None:
        """Read the metadata partitions in log dirs; the longest copy of each. Raises OSError."""
        disk = OsDisk(read_only=True)
        longest: dict[int, tuple[int, int, PartitionPlace]] = {}
        for log_dir in log_dirs:
            for place in partitions_of(disk, log_dir, METADATA_TOPIC):
                if place.inventory.segments:
                    base_offset = place.inventory.segments[-1].base_offset
                    size = disk.stat(place.file(base_offset, names.LOG)).size
                    candidate = (base_offset, size, place)
                    longest[place.partition] = max(
                        longest.get(place.partition, candidate), candidate, key=lambda item: item[:2]
                    )
        for number, (_, _, place) in sorted(longest.items()):
            if place.inventory.segments[0].base_offset == 0:
                self.read.add(number)
            for files in place.inventory.segments:
                self._read_file(place.file(files.base_offset, names.LOG))

    def is_decided(self, partition: TopicIdPartition, count: int) -> bool:
        """Return whether all records of a partition were read, of `count` metadata partitions."""
        return metadata_partition(partition, count) in self.read

    def _read_file(self, path: str) -> None:
        with Path(path).open("rb") as file:
            try:
                while head := file.read(LOG_OVERHEAD):
                    size = int.from_bytes(head[LENGTH_OFFSET:], "big", signed=True)
                    if not 0 < size <= BATCH_BYTES_MAX:
                        raise CorruptRecordsError(f"a batch of {size} bytes")
                    self._read_batch(head + file.read(size), path)
            except RecordsError as error:
                self.problems.append((path, error.message))

    def _read_batch(self, data: bytes, path: str) -> None:
        for position, header in iter_batches(data):
            require_crc(data, position, header)
            if not header.is_control:
                for record in iter_records(data, position, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX):
                    self._apply(record.value, f"{path} offset {record.offset}")

    def _apply(self, value: bytes | None, place: str) -> None:
        try:
            record = decode(value or b"")
            if isinstance(record, PartitionDelete):
                return
            if isinstance(record, RemoteSegment):
                self.begun.add((record.partition, record.segment_id))
            self.segments.setdefault(record.partition, PartitionSegments()).apply(record)
        except (LineageError, MetadataRecordError) as error:
            self.problems.append((place, str(error)))


@dataclass(frozen=True)
class Orphan:
    """Objects of a segment that no record names.

    Attributes:
        segment: partition, id and start offset out of the objects' names; its other fields mean nothing.
        names: the objects.
        size: their bytes.
        is_decided: whether the records would have named it; if not, its metadata partition is not here.
    """

    segment: RemoteSegment
    names: tuple[str, ...]
    size: int
    is_decided: bool


def objects_by_segment(store: ListedStorage) -> dict[tuple[TopicIdPartition, UUID], list[tuple[str, int]]]:
    """Return names and bytes of all objects of a store. Raises RemoteStorageError."""
    listed: dict[tuple[TopicIdPartition, UUID], list[tuple[str, int]]] = {}
    for partition in store.partitions():
        for text, size, name in store.objects(partition):
            try:
                segment_id = UUID(bytes=parse_uuid(text))
            except ValueError:
                continue  # no object of a store
            listed.setdefault((partition, segment_id), []).append((name, size))
    return listed


def orphans(
    listed: dict[tuple[TopicIdPartition, UUID], list[tuple[str, int]]], metadata: TierMetadata, count: int
) -> Iterator[Orphan]:
    """Yield the objects of segments that no record names, or that are recorded as deleted.

    Args:
        listed: objects of the store, listed before the records were read.
        metadata: the records.
        count: partitions of `__remote_log_metadata`.

    """
    for (partition, segment_id), objects in listed.items():
        lineage = metadata.segments.get(partition)
        if lineage is not None and lineage.get(segment_id) is not None:
            continue
        start = int(objects[0][0].rpartition("/")[2].partition("-")[0])
        yield Orphan(
            RemoteSegment(partition, segment_id, start, start, -1, -1, -1, ((0, start),), 0),
            tuple(name for name, _ in objects),
            sum(size for _, size in objects),
            (partition, segment_id) in metadata.begun or metadata.is_decided(partition, count),
        )


def verify(
    store: RemoteStorage, segment: RemoteSegment, *, deep: bool, on_bytes: Callable[[int], None]
) -> list[str]:
    """Return the problems of a copied segment: of its batches and indexes, or that they are missing.

    The segment is checked like one of a log dir, in a temporary directory.

    Raises:
        RemoteStorageError: the store failed, and may have the segment.

    """
    partition = segment.partition
    problems: list[str] = []
    with TemporaryDirectory(prefix="barnabas-tier-") as folder:
        place = Path(folder) / f"{partition.topic}-{partition.partition}"
        place.mkdir()
        log = place / names.file_name(segment.start_offset, names.LOG)
        with log.open("wb") as file:
            for position in range(0, segment.size, READ_BYTES):
                file.write(store.read(segment, position, READ_BYTES))
                on_bytes(min(READ_BYTES, segment.size - position))
        problems += _indexes(store, segment, place)
        disk = OsDisk(read_only=True)

        def report(finding: Finding) -> None:
            if finding.severity is Severity.ERROR:
                problems.append(f"{Path(finding.path).suffix[1:] or Path(finding.path).name}: {finding.text}")

        end = Verifier(disk, report, deep=deep).partition(open_partition(disk, str(place)))
    if end != segment.end_offset + 1:
        problems.append(f"log: ends before offset {end}, and its record says {segment.end_offset}")
    return problems


def _indexes(store: RemoteStorage, segment: RemoteSegment, place: Path) -> Iterator[str]:
    for kind in IndexKind:
        try:
            content = store.read_index(segment, kind)
        except RemoteObjectNotFoundError:
            if kind is not IndexKind.TRANSACTION or not segment.is_transaction_index_empty:
                yield f"{kind.value}: is missing"
            continue
        if kind in _FILES:
            (place / names.file_name(segment.start_offset, _FILES[kind])).write_bytes(content)
        elif kind is IndexKind.PRODUCER_SNAPSHOT:
            (place / names.file_name(segment.end_offset + 1, names.SNAPSHOT)).write_bytes(content)
        else:
            (place / names.LEADER_EPOCH_CHECKPOINT).write_bytes(content)


def copied(metadata: TierMetadata, only: str) -> Iterable[RemoteSegment]:
    """Return the segments that consumers may read, of one topic or partition (orders-0) if `only` names it."""
    for partition, lineage in sorted(
        metadata.segments.items(), key=lambda item: (item[0].topic, item[0].partition)
    ):
        if only in ("", partition.topic, f"{partition.topic}-{partition.partition}"):
            for segment in lineage.segments():
                if segment.state is SegmentState.COPY_FINISHED:
                    yield segment


def described(segment: RemoteSegment) -> dict[str, object]:
    """Return the fields of a row about a segment."""
    partition = segment.partition
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "topic_id": uuid_text(partition.topic_id.bytes),
        "segment_id": uuid_text(segment.segment_id.bytes),
        "start": segment.start_offset,
    }
