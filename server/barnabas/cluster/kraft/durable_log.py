"""The directory of a metadata log: segments, snapshots and `quorum-state`, in Kafka's layout.

The rule: a snapshot counts once it is synced and renamed, and only then is the log restarted after it; a start completes
steps that a crash interrupted. One task owns the log; a method that syncs may run in a thread while no other method does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from barnabas.cluster.kraft.decisions import SnapshotId
from barnabas.cluster.kraft.directory import DIRECTORY
from barnabas.cluster.kraft.quorum import Leadership, decode_control
from barnabas.cluster.kraft.replica_values import METADATA_TOPIC_ID, StoredLog
from barnabas.cluster.kraft.snapshot_times import StoredSnapshot, is_oldest_beyond
from barnabas.cluster.kraft.state import MetadataLogError, Snapshot, snapshot_steps
from barnabas.config.metadata_log import LogSettings
from barnabas.environment import Threads
from barnabas.log.config import UNLIMITED, LogConfig
from barnabas.log.disk import Disk, file_names
from barnabas.log.format import CorruptFileError, names
from barnabas.log.format.quorum_state import QUORUM_STATE, QuorumState
from barnabas.log.openfiles import OpenFiles
from barnabas.log.partition_log import PartitionLog
from barnabas.log.parts import LogParts
from barnabas.log.recovery.loading import Loader
from barnabas.log.removal.pending import Trash
from barnabas.log.removal.remove import RemovalTask
from barnabas.log.scan import iter_headers
from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import BatchHeader, whole_size
from barnabas.records.errors import RecordsError
from barnabas.wire.errors import DecodeError

PART = ".part"
DELETED = ".deleted"
READ_BYTES_MAX = 1 << 20
NEVER_MS = (1 << 31) - 1
"""Expiration time of producers, of which a metadata log has none (Kafka's Integer.MAX_VALUE)."""


class DurableLog:
    """A metadata log on a disk. Lifecycle: `open`, carry out an observer's decisions, `close`.

    Methods raise StorageError or OSError when the disk fails.
    """

    def __init__(self, disk: Disk, log_dir: str, settings: LogSettings) -> None:
        self._disk = disk
        self._log_dir = log_dir
        self._settings = settings
        self._trash = Trash()
        self.path = f"{log_dir}/{DIRECTORY}"
        self.log: PartitionLog
        self.snapshots: list[StoredSnapshot] = []
        self.loaded: Snapshot | None = None
        """The newest snapshot, as loaded by `open`."""
        self._has_bootstrap = self._has_topic_id = False

    # --- opening --------------------------------------------------------------------------------------------

    def open(self, now_ms: int) -> StoredLog:
        """Open or create the log, check it, and complete steps that a crash interrupted; may take long.

        Raises OSError, and MetadataLogError for a directory that cannot be continued.
        """
        disk, settings = self._disk, self._settings
        disk.make_dirs(self.path)
        config = LogConfig(
            segment_bytes=settings.segment_bytes,
            segment_ms=settings.segment_ms,
            retention_bytes=UNLIMITED,
            retention_ms=UNLIMITED,
            max_message_bytes=settings.batch_bytes_max,
            file_delete_delay_ms=settings.delete_delay_ms,
        )
        pool = OpenFiles()
        loader = Loader(disk, pool, self.path, config, now_ms=now_ms, producer_expiration_ms=NEVER_MS)
        parts = LogParts(
            self._log_dir, config, disk, pool, self._trash, loader.load(), METADATA_TOPIC_ID,
            high_watermark=0, now_ms=now_ms,
        )  # fmt: skip
        self.log = PartitionLog(names.CLUSTER_METADATA_TOPIC, 0, parts)
        self._has_topic_id = names.PARTITION_METADATA in file_names(disk, self.path)
        self._find_snapshots()
        self._begin_at_newest()
        if self.snapshots:
            self.loaded = self._decode(self.snapshots[-1].id)
            self.log.advance_high_watermark(self.loaded.end_offset)
        return StoredLog(
            self.log.log_end_offset,
            tuple(self.log.epochs.entries),
            self.snapshots[-1].id if self.snapshots else None,
            tuple(self._controls()),
            self._read_election(),
        )

    def _find_snapshots(self) -> None:
        for name in file_names(self._disk, self.path):
            snapshot_id = names.parse_checkpoint_name(name)
            if snapshot_id is not None and snapshot_id[0] >= self.log.log_start_offset:
                # a bootstrap snapshot: the first voters of a controller, until they are in the log
                if not snapshot_id[0]:
                    self._has_bootstrap = True
                else:
                    self.snapshots.append(self._stored(SnapshotId(*snapshot_id)))
            elif snapshot_id is not None or f"{names.CHECKPOINT}." in name:
                self._disk.remove(f"{self.path}/{name}")  # incomplete, deleted, or before the log start
        self.snapshots.sort()
        if self.log.log_start_offset and not self.snapshots:
            raise MetadataLogError(
                f"{self.path} begins at offset {self.log.log_start_offset}, and has no snapshot of what was before: "
                f"restore its .checkpoint files, or remove {self.path}, so that all of it is fetched from the controllers"
            )

    def _begin_at_newest(self) -> None:
        """Restart the log after a snapshot that is newer than its end: a crash interrupted that step."""
        if not self.snapshots:
            return
        newest, latest_epoch = self.snapshots[-1].id, max(self.log.epochs.latest, 0)
        if newest.epoch > latest_epoch or (
            newest.epoch == latest_epoch and newest.end_offset > self.log.log_end_offset
        ):
            self._restart_at(newest, now_ms=0)

    def _stored(self, snapshot_id: SnapshotId) -> StoredSnapshot:
        """Return size and time of a snapshot, from its header. Raises MetadataLogError."""
        path = self._path(snapshot_id)
        file = self._disk.open(path)
        size = file.size()
        try:
            for position, header in iter_headers(file, 0, size):
                for record in iter_any_records(file.read(header.size, position)):
                    message = decode_control(record)[1]
                    return StoredSnapshot(snapshot_id, size, message.last_contained_log_timestamp)
        except (RecordsError, DecodeError, AttributeError) as error:
            raise MetadataLogError(f"{path}: the snapshot has no header: {error}") from None
        raise MetadataLogError(f"{path}: the snapshot is empty")

    def _decode(self, snapshot_id: SnapshotId) -> Snapshot:
        for snapshot in self.decode_steps(self._path(snapshot_id), snapshot_id):
            if snapshot is not None:
                return snapshot
        raise AssertionError

    def _controls(self) -> Iterator[tuple[int, Leadership]]:
        """Yield the leadership after the snapshot, and after each later control record of the log."""
        leadership, start = Leadership(), 0
        if self.loaded is not None:
            leadership, start = self.loaded.leadership, self.loaded.end_offset
        elif self._has_bootstrap:
            leadership = self._decode(SnapshotId(0, 0)).leadership
        yield start - 1, leadership
        for segment in self.log.segments:
            for position, header in segment.headers():
                if not header.is_control or header.base_offset < start:
                    continue
                for record in iter_any_records(segment.file.read(header.size, position)):
                    leadership = leadership.after(decode_control(record)[1], header.leader_epoch, record)
                    yield record.offset, leadership

    def _read_election(self) -> QuorumState | None:
        path = f"{self.path}/{QUORUM_STATE}"
        try:
            return QuorumState.decode(self._disk.read(path))
        except FileNotFoundError:
            return None
        except CorruptFileError as error:
            raise MetadataLogError(f"{path}: {error}. An observer has no votes: remove the file") from None

    # --- the log --------------------------------------------------------------------------------------------

    def append(self, records: bytes, now_ms: int) -> None:
        """Append whole batches without a sync: an observer fetches again the records that a crash loses."""
        if not self._has_topic_id:  # only now: a log can be opened on a full disk
            self.log.save_topic_id(METADATA_TOPIC_ID)
            self._has_topic_id = True
        self.log.append_as_follower(records, now_ms=now_ms)

    def truncate(self, end_offset: int, now_ms: int) -> None:
        """Truncate the log to an offset."""
        self.log.truncate_to(end_offset, now_ms=now_ms)

    def commit(self, high_watermark: int) -> None:
        """Raise the high watermark."""
        self.log.advance_high_watermark(high_watermark)

    def read(self, offset: int, upper_offset: int) -> bytes:
        """Return batches that begin before `upper_offset`, from `offset` on; the first is whole, the last may be cut.

        Raises MetadataLogError if the log is damaged there.
        """
        try:
            return self.log.read(offset, max_bytes=READ_BYTES_MAX, upper_offset=upper_offset).to_bytes()
        except RecordsError as error:
            raise MetadataLogError(f"{self.path}: {error.message}") from None

    @property
    def start_offset(self) -> int:
        """The offset of the first record."""
        return self.log.log_start_offset

    def read_log(self, offset: int, bytes_max: int) -> bytes:
        """Return whole batches from an offset on, at least one unless the log ends there; they may be uncommitted."""
        data = self.log.read(offset, max_bytes=bytes_max, upper_offset=self.log.log_end_offset).to_bytes()
        return data[: whole_size(data)]

    async def sync(self, threads: Threads, wall_clock_ms: Callable[[], int]) -> int:
        """Sync the log in a thread, and return the end offset of the synced records."""
        flush = self.log.begin_flush()
        if flush is None:
            return self.log.log_end_offset
        await threads.run(flush.run)
        flush.finish(wall_clock_ms())
        return flush.end_offset

    def save_election(self, state: QuorumState) -> None:
        """Write `quorum-state`, synced."""
        self._disk.replace(f"{self.path}/{QUORUM_STATE}", state.encode(), sync=True)

    # --- snapshots ------------------------------------------------------------------------------------------

    @property
    def snapshot_ids(self) -> list[SnapshotId]:
        """The snapshots, the oldest first."""
        return [snapshot.id for snapshot in self.snapshots]

    def snapshot_size(self, snapshot_id: SnapshotId) -> int:
        """Return the size of a snapshot in bytes."""
        return next(snapshot.size for snapshot in self.snapshots if snapshot.id == snapshot_id)

    def read_snapshot(self, snapshot_id: SnapshotId, position: int, size: int) -> bytes:
        """Return a piece of a snapshot."""
        return self._disk.open(self._path(snapshot_id)).read(size, position)

    def _path(self, snapshot_id: SnapshotId, suffix: str = "") -> str:
        end_offset, epoch = snapshot_id
        return f"{self.path}/{end_offset:020d}-{epoch:010d}{names.CHECKPOINT}{suffix}"

    def write_piece(self, snapshot_id: SnapshotId, position: int, data: bytes) -> None:
        """Write a piece of an incomplete snapshot; the piece at position 0 truncates the file first."""
        file = self._disk.open(self._path(snapshot_id, PART), create=not position)
        if not position:
            file.truncate(0)
        file.write(data, position)

    def drop_piece(self, snapshot_id: SnapshotId) -> None:
        """Remove a partly written snapshot."""
        self._disk.remove(self._path(snapshot_id, PART))

    def part_steps(self, snapshot_id: SnapshotId) -> Iterator[Snapshot | None]:
        """Decode a snapshot of which all pieces are written, in steps that yield None; the last yields the snapshot.

        Raises MetadataLogError if it is damaged.
        """
        return self.decode_steps(self._path(snapshot_id, PART), snapshot_id)

    def decode_steps(self, path: str, snapshot_id: SnapshotId) -> Iterator[Snapshot | None]:
        """Decode a snapshot's file, in steps like `part_steps`."""
        return snapshot_steps(snapshot_id, path, self._batches(path))

    def _batches(self, path: str) -> Iterator[tuple[BatchHeader, bytes]]:
        file = self._disk.open(path)
        for position, header in iter_headers(file, 0, file.size()):
            yield header, file.read(header.size, position)

    def finish_snapshot(self, snapshot_id: SnapshotId) -> None:
        """Sync a completely written snapshot, and rename it to its final name, from which on it counts."""
        part = self._path(snapshot_id, PART)
        self._disk.open(part).sync()
        self._disk.rename(part, self._path(snapshot_id))
        self._disk.sync_dir(self.path)

    def takes_snapshot(self, snapshot_id: SnapshotId) -> bool:
        """Return whether a snapshot generated here may be added: it is newer than all others, and after the log start."""
        newest = self.snapshots[-1].id if self.snapshots else SnapshotId(0, 0)
        return snapshot_id > newest and snapshot_id.end_offset > self.log.log_start_offset

    def add_snapshot(self, snapshot_id: SnapshotId, now_ms: int) -> None:
        """Add a finished snapshot to the list; remove it if the log start has passed it."""
        self.snapshots = sorted([*self.snapshots, self._stored(snapshot_id)])
        self._remove_before(SnapshotId(self.log.log_start_offset, 0), now_ms)

    def install(self, snapshot_id: SnapshotId, now_ms: int) -> None:
        """Restart the log after a finished snapshot, and remove older ones."""
        self.add_snapshot(snapshot_id, now_ms)
        self._restart_at(snapshot_id, now_ms=now_ms)

    def _restart_at(self, snapshot_id: SnapshotId, now_ms: int) -> None:
        self.log.truncate_fully_and_start_at(snapshot_id.end_offset)
        self._remove_before(snapshot_id, now_ms)

    # --- retention ------------------------------------------------------------------------------------------

    def clean(self, now_ms: int) -> int:
        """Remove the oldest snapshots by retention, and the log before the next snapshot; returns the number removed."""
        count = 0
        while is_oldest_beyond(
            self.snapshots,
            self.log.size_bytes,
            bytes_max=self._settings.retention_bytes,
            age_ms_max=self._settings.retention_ms,
            now_ms=now_ms,
        ):
            following = self.snapshots[1].id
            self.log.delete_records_before(following.end_offset)
            self.log.apply_retention(now_ms)
            self._remove_before(following, now_ms)
            count += 1
        return count

    def _remove_before(self, snapshot_id: SnapshotId, now_ms: int) -> None:
        removed = [snapshot for snapshot in self.snapshots if snapshot.id < snapshot_id]
        self.snapshots = [snapshot for snapshot in self.snapshots if snapshot.id >= snapshot_id]
        for snapshot in removed:
            path = self._path(snapshot.id)
            self._disk.rename(path, path + DELETED)
            self._trash.add(now_ms + self._settings.delete_delay_ms, self._log_dir, [path + DELETED])

    def begin_removal(self, now_ms: int) -> RemovalTask | None:
        """Return the removal of files that are due for deletion; None if no file is."""
        due = self._trash.take_due(now_ms)
        return RemovalTask(self._disk, self._trash, due) if due else None

    def close(self) -> None:
        """Close the log, with the files of a clean shutdown."""
        self.log.close()
