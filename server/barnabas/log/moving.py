"""Moves a log to another log dir while it is written and read (KIP-113).

The rule: files are copied byte for byte into a `-future` directory, repeatedly until little is missing; the last step
copies the rest and swaps the directories without a pause, so that an incomplete log is never visible. A `Move` is
planned and finished by the thread that owns the log; `run` may be called in any thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from errno import ENOENT
from typing import TYPE_CHECKING, NamedTuple

from barnabas.errors import StorageError
from barnabas.log.disk import Disk, File, file_names
from barnabas.log.epoch_file import save_epochs
from barnabas.log.errors import in_doubt
from barnabas.log.format import names, properties
from barnabas.log.format.names import DirKind
from barnabas.log.removal.pending import Trash
from barnabas.wire.topic_partitions import TopicPartition

if TYPE_CHECKING:
    from barnabas.log.partition_log import PartitionLog
    from barnabas.log.segment import Segment

log = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 20
LAST_STEP_BYTES = 1 << 20  # limit for the last step, during which the log is not written
INDEX_SUFFIXES = (names.OFFSET_INDEX, names.TIME_INDEX, names.TXN_INDEX)


Throttle = Callable[[int], None]


def _unlimited(_: int) -> None:
    """Do not throttle: the log stands still while its last bytes are copied."""


class Copy(NamedTuple):
    """Bytes of one file to copy; with `start` 0, the present content of the target is replaced."""

    segment: Segment
    base_offset: int
    suffix: str
    source: str
    start: int
    end: int


class Move:
    """A log that is moved to `target_dir`; `directory` has the growing copy.

    Lifecycle: `plan` and `run` in turns until `is_near`, then `LogManager.finish_move`; `cancel` at any time.
    """

    __slots__ = (
        "_copied",
        "_generation",
        "_planned_end_offset",
        "copied_end_offset",
        "directory",
        "disk",
        "is_cancelled",
        "partition_log",
        "target_dir",
    )

    def __init__(self, partition_log: PartitionLog, target_dir: str, directory: str, disk: Disk) -> None:
        self.partition_log = partition_log
        self.target_dir = target_dir
        self.directory = directory
        self.disk = disk
        self.is_cancelled = False
        self.copied_end_offset = 0  # log end when the last finished copy was planned
        self._copied: dict[str, tuple[Segment, int]] = {}  # file name -> what, bytes of it
        self._generation = 0
        self._planned_end_offset = 0

    @property
    def offset_lag(self) -> int:
        """Number of offsets that the copy lacks (DescribeLogDirs)."""
        return max(0, self.partition_log.log_end_offset - self.copied_end_offset)

    @property
    def size_bytes(self) -> int:
        """Bytes of the log that are copied."""
        copied = list(self._copied.items())  # atomic: a thread may modify it
        return sum(size for name, (_, size) in copied if name.endswith(names.LOG))

    @property
    def is_near(self) -> bool:
        """True if so little is missing that the last step is short."""
        return self.partition_log.size_bytes - self.size_bytes <= LAST_STEP_BYTES

    def cancel(self) -> None:
        """Ask `run` to stop soon; from any thread."""
        self.is_cancelled = True

    # --- in the thread that owns the log --------------------------------------------------------------------

    def plan(self, *, whole: bool = False) -> list[Copy]:
        """Plan the bytes to copy: of the active segment only the batches, unless `whole`. Raises OSError."""
        log = self.partition_log
        # truncated meanwhile: the copied bytes may belong to another history
        if log.generation != self._generation:
            self._generation = log.generation
            self._copied.clear()
        self._planned_end_offset = log.log_end_offset
        copies: list[Copy] = []
        for segment in log.segments:
            self._plan_file(copies, segment, names.LOG, segment.size)
            if segment is not log.active or whole:
                segment.write_indexes()
                for suffix in INDEX_SUFFIXES:
                    if suffix != names.TXN_INDEX or segment.has_txn_index:
                        self._plan_index(copies, segment, suffix)
        return copies

    def _plan_index(self, copies: list[Copy], segment: Segment, suffix: str) -> None:
        try:
            size = self.disk.stat(segment.path(suffix)).size
        except FileNotFoundError:
            return  # created again at the new place
        self._plan_file(copies, segment, suffix, size)

    def _plan_file(self, copies: list[Copy], segment: Segment, suffix: str, size: int) -> None:
        copied_segment, start = self._copied.get(names.file_name(segment.base_offset, suffix), (None, 0))
        if copied_segment is not segment or start > size:
            start = 0
        if copied_segment is not segment or start < size:
            copies.append(Copy(segment, segment.base_offset, suffix, segment.path(suffix), start, size))

    def complete(self) -> None:
        """Copy all missing bytes, and remove files that the log no longer has. Raises StorageError."""
        log = self.partition_log
        try:
            log.active.seal()
            log.take_snapshot()
            copies = self.plan(whole=True)
            snapshots = self._read_snapshots()
        except OSError as error:
            raise StorageError(log.log_dir, error) from error
        self.run(copies)
        if (
            self.copied_end_offset < log.log_end_offset
        ):  # no other task changes the log now: an outsider has removed files
            missing = log.missing_file(all_segments=True) or log.dir
            raise StorageError(log.log_dir, FileNotFoundError(ENOENT, "a file is gone", missing))
        try:
            self._write_small_files(snapshots)
        except OSError as error:
            raise StorageError(self.target_dir, error) from error

    def _read_snapshots(self) -> dict[str, bytes]:
        snapshots = {}
        for offset in self.partition_log.store.snapshots.offsets:
            try:
                data = self.disk.read(self.partition_log.store.snapshots.path(offset))
            except FileNotFoundError:
                continue  # a snapshot only saves time
            snapshots[names.file_name(offset, names.SNAPSHOT)] = data
        return snapshots

    def _write_small_files(self, snapshots: dict[str, bytes]) -> None:
        log = self.partition_log
        kept_names = set(snapshots)
        for segment in log.segments:
            kept_names |= {names.file_name(segment.base_offset, suffix) for suffix in names.SEGMENT_SUFFIXES}
            if not segment.has_txn_index:
                kept_names.discard(names.file_name(segment.base_offset, names.TXN_INDEX))
        for name, data in snapshots.items():
            self.disk.replace(f"{self.directory}/{name}", data, sync=True)
        for entry in self.disk.list(self.directory):
            if entry.name not in kept_names:
                self.disk.remove(f"{self.directory}/{entry.name}")
        if log.topic_id is not None:
            path = f"{self.directory}/{names.PARTITION_METADATA}"
            self.disk.replace(path, properties.encode_partition_metadata(log.topic_id), sync=True)
        save_epochs(self.disk, self.directory, log.epochs, sync=True)  # last: it marks the copy as complete
        self.disk.sync_dir(self.directory)
        self.disk.sync_dir(self.target_dir)  # its name must be synced before the old one is removed

    # --- in any thread --------------------------------------------------------------------------------------

    def run(
        self, copies: list[Copy], throttle: Throttle = _unlimited, *, chunk_bytes: int = CHUNK_BYTES
    ) -> None:
        """Copy; all is synced when this returns. Raises StorageError, and the errors of `throttle`.

        The next plan handles files that are gone meanwhile (deleted or compacted). `throttle` is called with the number
        of bytes copied, at most `chunk_bytes` at a time, and may wait.
        """
        end_offset = self._planned_end_offset
        for n, copy in enumerate(copies):
            if self.is_cancelled:
                return
            if copy.suffix == names.LOG and n:
                self.copied_end_offset = copy.base_offset
            if not self._copy(copy, throttle, chunk_bytes):
                end_offset = min(end_offset, copy.base_offset)
        self.copied_end_offset = end_offset

    def _copy(self, copy: Copy, throttle: Throttle, chunk_bytes: int) -> bool:
        """Copy one file; False if it is gone. Raises StorageError for the dir that fails."""
        try:
            source = self.disk.open(copy.source)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StorageError(self.partition_log.log_dir, error) from error
        name = names.file_name(copy.base_offset, copy.suffix)
        try:
            target = self.disk.open(f"{self.directory}/{name}", create=True)
            if not copy.start:
                target.truncate(0)
            position = copy.start
            while position < copy.end and not self.is_cancelled:
                data = self._read(source, min(chunk_bytes, copy.end - position), position)
                if not data:
                    return False  # truncated meanwhile: the next plan starts over
                target.write(data, position)
                position += len(data)
                self._copied[name] = (copy.segment, position)
                throttle(len(data))
            target.sync()
        except OSError as error:
            raise StorageError(self.target_dir, error) from error
        self._copied[name] = (copy.segment, position)
        return True

    def _read(self, source: File, size: int, position: int) -> bytes:
        try:
            return source.read(size, position)
        except OSError as error:
            raise StorageError(self.partition_log.log_dir, error) from error


class Moves:
    """The moves in progress."""

    def __init__(self, disk: Disk, trash: Trash) -> None:
        self._disk = disk
        self._trash = trash
        self._moves: dict[TopicPartition, Move] = {}

    def __len__(self) -> int:
        return len(self._moves)

    def __iter__(self) -> Iterator[Move]:
        return iter(list(self._moves.values()))

    def get(self, topic: str, partition: int) -> Move | None:
        """Return the move of a partition's log."""
        return self._moves.get((topic, partition))

    def begin(self, partition_log: PartitionLog, target: str, now_ms: int) -> Move | None:
        """Begin a move, unless the log is there or being moved there. Raises StorageError."""
        key = (partition_log.topic, partition_log.partition)
        move = self._moves.get(key)
        if move is not None:
            if move.target_dir == target:
                return None
            self.cancel(move, now_ms)
        if partition_log.log_dir == target:
            return None
        name = names.marked_dir_name(*key, DirKind.FUTURE, self._disk.unique_id().hex())
        try:
            self._disk.make_dirs(f"{target}/{name}")
        except OSError as error:
            raise StorageError(target, error) from error
        move = self._moves[key] = Move(partition_log, target, f"{target}/{name}", self._disk)
        return move

    def cancel(self, move: Move, now_ms: int) -> None:
        """Cancel a move, and remove its copy."""
        move.cancel()
        if self._forget(move):
            key = (move.partition_log.topic, move.partition_log.partition)
            self.discard_copy(key, move.target_dir, move.directory, now_ms)

    def discard_copy(self, key: TopicPartition, log_dir: str, directory: str, now_ms: int) -> None:
        """Have a `-future` directory removed.

        It is first renamed, and the rename synced: after a crash a start takes a `-future` directory without a log at
        the old place for a complete copy.
        """
        gone = f"{log_dir}/{names.marked_dir_name(*key, DirKind.DELETE, self._disk.unique_id().hex())}"
        try:
            self._disk.rename(directory, gone)
        except OSError as error:
            log.warning("%s could not be given another name: %s", directory, error)
            gone = directory
        self._trash.add(now_ms, log_dir, [gone])
        try:
            self._disk.sync_dir(log_dir)
        except OSError as error:  # the next write there reports it
            log.warning("%s could not be synced: %s", log_dir, error)

    def _forget(self, move: Move) -> bool:
        key = (move.partition_log.topic, move.partition_log.partition)
        if self._moves.get(key) is not move:
            return False
        del self._moves[key]
        return True

    def cancel_all(self) -> None:
        """Cancel all moves; their copies are removed when the dirs are opened again."""
        for move in self:
            move.cancel()
        self._moves.clear()

    def lose(self, log_dir: str) -> list[Move]:
        """End the moves from and to a failed log dir, and return them."""
        ended = [move for move in self if log_dir in (move.target_dir, move.partition_log.log_dir)]
        for move in ended:
            move.cancel()
            self._forget(move)
        return ended

    def swap(self, move: Move, now_ms: int) -> None:
        """Rename the old directory, and give its name to the new one; a start completes this after a crash in between.

        Raises StorageError, and the old directory has its name again.
        """
        old = move.partition_log
        key = (old.topic, old.partition)
        try:
            has_kept = any(names.is_kept(name) for name in file_names(self._disk, old.dir))
            kind = DirKind.STRAY if has_kept else DirKind.DELETE
            gone = f"{old.log_dir}/{names.marked_dir_name(*key, kind, self._disk.unique_id().hex())}"
            self._disk.rename(old.dir, gone)
            self._disk.sync_dir(old.log_dir)
        except OSError as error:
            raise StorageError(old.log_dir, error) from error
        try:
            self._disk.rename(move.directory, f"{move.target_dir}/{old.name}")
        except OSError as error:
            self._undo_swap(gone, old)
            raise StorageError(move.target_dir, error) from error
        self._forget(move)
        self._trash.directory_deleted(old.dir)
        if has_kept:
            log.warning(
                "%s stays: it has records that were cut out of the log, and did not move with it", gone
            )
        else:
            self._trash.add(now_ms + old.config.file_delete_delay_ms, old.log_dir, [gone])
        try:
            self._disk.sync_dir(move.target_dir)
        except OSError as error:
            raise StorageError(move.target_dir, in_doubt(error)) from error

    def _undo_swap(self, gone: str, old: PartitionLog) -> None:
        try:
            self._disk.rename(gone, old.dir)
        except OSError as error:
            raise StorageError(old.log_dir, error) from error
