"""Salvage of a damaged metadata log: its readable records become a snapshot, with which the log is restarted.

The rule: nothing is removed before the whole directory is copied aside, and each unreadable place is named. The caller
decides whether to continue without the lost records.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from barnabas.cluster.kraft.decisions import SnapshotId
from barnabas.cluster.kraft.directory import read_snapshot
from barnabas.cluster.kraft.image import EMPTY, Position, QuorumImage
from barnabas.cluster.kraft.quorum import Leadership
from barnabas.cluster.kraft.replay import Replay
from barnabas.cluster.kraft.snapshots import snapshot_batches
from barnabas.cluster.kraft.state import MetadataLogError
from barnabas.cluster.kraft.transitions import MetadataRecordError
from barnabas.cluster.kraft.value_records import partition_record
from barnabas.cluster.kraft.values import UNASSIGNED, Partition
from barnabas.log.disk import file_names
from barnabas.log.format import names
from barnabas.log.scan import sound_header_at
from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import HEADER_SIZE, MAGIC_OFFSET, BatchHeader
from barnabas.wire.errors import DecodeError
from barnabas.wire.metadata_records import decode_record

if TYPE_CHECKING:
    from barnabas.cluster.kraft.durable_log import DurableLog
    from barnabas.log.disk import Disk, File

log = logging.getLogger(__name__)

COPY_SUFFIX: Final = "barnabas-metadata.damaged"
"""Suffix of the directory with the copy of the log; a number follows if the name is taken."""
SEARCH_BYTES: Final = 1 << 16
OFFSETS_LEFT_OUT: Final = 1_000
"""Offsets skipped after the last readable record: so lost records and new ones have different offsets."""


def has_batch_from(file: File, position: int, base_offset: int) -> bool:
    """Return whether there is a sound batch at or after a damaged position."""
    return any(True for _ in _batches(file, position, base_offset))


def salvage(
    disk: Disk, log_dir: str, durable: DurableLog, damage: Sequence[str], now_ms: int
) -> tuple[str, ...]:
    """Copy the directory aside, and replace the log by a snapshot of all readable records. Returns the damaged places.

    Raises OSError, and MetadataLogError for records that a newer version wrote; then the damaged log is unchanged.
    """
    reader = _Reader(disk, durable.path)
    image = reader.read()
    lost = (*damage, *reader.lost)
    copy = _copied(disk, durable.path, log_dir)
    snapshot_id = SnapshotId(image.position.offset + 1, image.position.epoch)
    position = 0
    for batch in snapshot_batches(image, Leadership(), now_ms=now_ms):
        durable.write_piece(snapshot_id, position, batch)
        position += len(batch)
    durable.finish_snapshot(snapshot_id)
    for path in reader.damaged_snapshots:
        disk.remove(path)
    log.error("%s is damaged; as it was, it is in %s", durable.path, copy)
    return lost


class _Reader:
    """Reads all sound batches of a directory."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self.lost: list[str] = []
        self.damaged_snapshots: list[str] = []

    def read(self) -> QuorumImage:
        present = sorted(file_names(self._disk, self._path))
        image, start = self._snapshot(present)
        replay = Replay(image)
        last_offset, epoch = start - 1, image.position.epoch
        for name in present:
            segment = names.parse_file_name(name)
            if segment is None or segment[1:] != (names.LOG, ""):
                continue
            file = self._disk.open(f"{self._path}/{name}")
            for position, header in _batches(file, 0, segment.base_offset):
                # in the order of the file: damaged offsets may be out of order
                if header.base_offset >= start:
                    last_offset, epoch = max(last_offset, header.last_offset), max(epoch, header.leader_epoch)
                    if not header.is_control:
                        self._apply(replay, file.read(header.size, position))
        if replay.in_transaction:
            replay.apply(_abort())
        self._fill_gaps(replay)
        return replay.publish(
            Position(last_offset + OFFSETS_LEFT_OUT, epoch + 1, image.position.timestamp_ms)
        )

    def _snapshot(self, present: Sequence[str]) -> tuple[QuorumImage, int]:
        """Return the newest readable snapshot, and its end offset."""
        for name in reversed(present):
            snapshot_id = names.parse_checkpoint_name(name)
            if snapshot_id is None or not snapshot_id[0]:
                continue
            path = f"{self._path}/{name}"
            try:
                return read_snapshot(self._disk, path).image, snapshot_id[0]
            except MetadataLogError as error:
                self.lost.append(str(error))
                self.damaged_snapshots.append(path)
        return EMPTY, 0

    def _apply(self, replay: Replay, batch: bytes) -> None:
        for record in iter_any_records(batch):
            try:
                message, _ = decode_record(record.value or b"")
            except DecodeError as error:  # the batch is sound: a newer version wrote it
                raise MetadataLogError(f"{self._path}: record at offset {record.offset}: {error}") from None
            try:
                replay.apply(message)
            except MetadataRecordError as error:
                self.lost.append(f"the record at offset {record.offset}: {error}")

    def _fill_gaps(self, replay: Replay) -> None:
        """Set a record without a leader for lost partitions, so that later partitions keep their numbers."""
        image = replay.publish(Position())
        for topic in image.topics.values():
            count = image.partition_counts.get(topic.id, 0)
            for index in range(max(count, 1)):
                if (topic.id, index) not in image.partitions:
                    self.lost.append(f"partition {index} of topic {topic.name}")
                    replay.apply(partition_record(topic.id, index, _LOST_PARTITION, 1))


_LOST_PARTITION: Final = Partition((-1,), (), -1, 0, 0, directories=(UNASSIGNED,))


def _abort() -> object:
    from barnabas.wire.generated.metadata_records.abort_transaction import AbortTransactionRecord

    return AbortTransactionRecord("the log is damaged")


def _batches(file: File, position: int, base_offset: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of the sound batches of a segment, wherever they begin.

    No checksum covers offsets: one larger than the file could reach without gaps is wrong.
    """
    end = file.size()
    while position < end - HEADER_SIZE:
        header = sound_header_at(file, position, end)
        if (
            header is not None
            and base_offset <= header.base_offset
            and header.last_offset < base_offset + end
        ):
            yield position, header
            position += header.size
        else:
            position = _next_candidate(file, position + 1, end)


def _next_candidate(file: File, position: int, end: int) -> int:
    """Return the next position at which a batch of magic 2 could begin, `end` if no position remains."""
    while position < end:
        chunk = file.read(min(SEARCH_BYTES, end - position), position + MAGIC_OFFSET)
        at = chunk.find(2)
        if at >= 0:
            return position + at
        position += max(len(chunk), 1)
    return end


def _copied(disk: Disk, path: str, log_dir: str) -> str:
    """Copy a directory to one beside it, and return its path."""
    present = {entry.name for entry in disk.list(log_dir)}
    number = next(count for count in range(len(present) + 1) if _name(count) not in present)
    copy = f"{log_dir}/{_name(number)}"
    disk.make_dirs(copy)
    disk.make_private_dir(copy)
    for name in file_names(disk, path):
        disk.replace(f"{copy}/{name}", disk.read(f"{path}/{name}"), sync=True)
    disk.sync_dir(log_dir)
    return copy


def _name(number: int) -> str:
    return f"{COPY_SUFFIX}.{number}" if number else COPY_SUFFIX
