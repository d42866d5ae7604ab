"""The logs of a broker's partitions, in its log dirs.

The rule: a log dir is locked before its content is used, and the mark of a clean shutdown is removed before anything in
the dir is changed. When a dir fails, only that dir and its logs go offline.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from barnabas.errors import StorageError
from barnabas.log import logdir
from barnabas.log.checkpointing import Checkpointer, CheckpointPlan
from barnabas.log.creating import Creation, NewLog, Wanted
from barnabas.log.cut_off import CutOffCopies
from barnabas.log.disk import Disk, OsDisk, Usage
from barnabas.log.format import CorruptFileError, names, properties
from barnabas.log.format.names import DirKind
from barnabas.log.format.properties import MetaProperties
from barnabas.log.logdir import Checkpoints
from barnabas.log.missing_files import find_missing, missing_file_of
from barnabas.log.moving import Move, Moves
from barnabas.log.openfiles import OPEN_SEGMENTS_MAX, OpenFiles
from barnabas.log.opening import Opener
from barnabas.log.ownership import Ownership
from barnabas.log.registry import LogRegistry
from barnabas.log.removal.pending import Trash
from barnabas.log.removal.remove import RemovalTask
from barnabas.log.removal.rename import Deletion, Leaving
from barnabas.log.workers import OsWorkers, Workers
from barnabas.wire.topic_partitions import TopicPartition

if TYPE_CHECKING:
    from barnabas.log.config import LogConfig
    from barnabas.log.partition_log import PartitionLog

log = logging.getLogger(__name__)

PRODUCER_ID_EXPIRATION_MS = 86_400_000  # producer.id.expiration.ms
PREFERRED_MAX = 10_000  # log dirs that clients prefer for partitions that do not exist


class LogManager:
    """Opens, finds, creates and deletes the logs of partitions.

    Lifecycle: `open`, then everything else, then `close`; after a failure `take_offline` for the dir that
    failed. `open`, `find_missing` and `close` may be run in a thread.
    """

    def __init__(
        self,
        dirs: Sequence[str],
        *,
        config_for: Callable[[str], LogConfig],
        disk: Disk | None = None,
        open_segments_max: int = OPEN_SEGMENTS_MAX,
        producer_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        recovery_threads: int = 1,
        node_id: int | None = None,
        workers: Workers | None = None,
    ) -> None:
        """`dirs` are absolute paths, created if necessary; `config_for` returns the settings of a topic.

        With `node_id`, dirs that belong to a broker with another number are not opened.
        """
        self.dirs = list(dict.fromkeys(path.rstrip("/") for path in dirs))
        self.disk: Disk = disk or OsDisk()
        self.workers: Workers = workers or OsWorkers()
        self.ownership = Ownership(self.disk, node_id)
        self.config_for = config_for
        self.offline: dict[str, StorageError] = {}
        self.missing: dict[TopicPartition, str] = {}
        """Logs that are gone, before the start or since, with their former directories."""
        self.checkpoints = Checkpointer(self.disk, self.ownership.check_in_place, self.missing)
        self.pool = OpenFiles(open_segments_max)
        self.trash = Trash()
        self.moves = Moves(self.disk, self.trash)
        self.cordoned: frozenset[str] = frozenset()
        """Log dirs that get no new log while there are others (KIP-1066)."""
        self._preferred: dict[TopicPartition, str] = {}
        self._logs = LogRegistry(self.dirs, self.checkpoints)
        self.cut_off = CutOffCopies(self.disk, self._logs, self.moves, self.missing, self.offline)
        self._opener = Opener(
            self._logs, self.disk, self.pool, self.trash, self.cut_off, self.checkpoints,
            config_for=config_for, producer_expiration_ms=producer_expiration_ms,
            recovery_threads=recovery_threads, workers=self.workers, missing=self.missing,
        )  # fmt: skip
        self.is_unclean = False
        """True if a log dir is new, or was not closed cleanly before it was opened."""
        self.stays_unclean = False
        """True if `close` leaves the log dirs without the mark of a clean shutdown."""

        self._is_locked_outside = False
        self.broker_epoch = -1
        """Epoch of the broker's registration in a KRaft quorum, kept in the mark of a clean shutdown (KIP-966)."""

    def __len__(self) -> int:
        return len(self._logs)

    def __iter__(self) -> Iterator[PartitionLog]:
        return iter(self._logs)

    @property
    def online(self) -> list[str]:
        """The log dirs that work."""
        return [path for path in self.dirs if path not in self.offline]

    @property
    def previous_broker_epoch(self) -> int:
        """The broker epoch in the clean-shutdown marks of all opened dirs; -1 if they differ or a dir lacks it."""
        epochs = {self._opener.broker_epochs.get(path, -1) for path in self.dirs}
        return epochs.pop() if len(epochs) == 1 else -1

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """Return the log of a partition, None if this broker has none."""
        return self._logs.get((topic, partition))

    def set_producer_expiration(self, expiration_ms: int) -> None:
        """Set the time after which idle producers expire."""
        self._opener.producer_expiration_ms = expiration_ms
        for partition_log in self._logs:
            partition_log.producers.expiration_ms = expiration_ms

    def lock(self, metadata_dir: str | None = None) -> None:
        """Lock the log dirs, and the metadata log dir, before `open` and until `unlock`.

        Raises StorageError if another broker holds a lock, or the metadata log dir fails.
        """
        self._is_locked_outside = True
        if metadata_dir is not None and metadata_dir not in self.dirs:
            try:
                self.ownership.take(metadata_dir)
            except OSError as error:
                raise StorageError(metadata_dir, error) from error
        for path in self.dirs:
            try:
                self.ownership.take(path)
            except OSError as error:
                self.take_offline(path, StorageError(path, error))
            except StorageError:
                self.ownership.release()
                raise

    def unlock(self) -> None:
        """Release the locks of the log dirs."""
        self.ownership.release()

    # --- opening --------------------------------------------------------------------------------------------

    def open(self, now_ms: int) -> None:
        """Lock the log dirs, read their properties, and open all logs in them; recover those not closed cleanly.

        Raises StorageError if a dir is in use by another broker, if dirs contradict each other, or if none
        works.
        """
        for path in self.dirs:
            try:
                self.ownership.take(path)
                self.ownership.read(path)
                self.is_unclean |= not self._opener.open_dir(path, now_ms)
            except OSError as error:
                self.take_offline(path, StorageError(path, error))
            except CorruptFileError as error:
                self.ownership.release()
                raise StorageError(path, error) from error
            except StorageError:
                self.ownership.release()
                raise
        if not self.online:
            self.ownership.release()
            raise next(iter(self.offline.values()))
        try:
            self.ownership.check(self.online)
        except StorageError:
            self.ownership.release()
            raise
        self.cut_off.end(
            lambda path, key: self._opener.load(path, key, Checkpoints(), now_ms), self.take_offline, now_ms
        )
        for key in [key for key in self.missing if key in self._logs]:
            del self.missing[key]  # the log is in another log dir, or was being moved there

    # --- owners of the dirs ---------------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str | None:
        """The cluster that the log dirs belong to, None if they are new."""
        return self.ownership.cluster_id

    @property
    def node_id(self) -> int | None:
        """The broker that the log dirs belong to, None if they are new."""
        return self.ownership.node_id

    @property
    def meta(self) -> Mapping[str, MetaProperties]:
        """Content of meta.properties, by log dir."""
        return self.ownership.meta

    def write_meta(self, cluster_id: str, node_id: int, *, on_zookeeper: bool = False) -> None:
        """Write the properties of the online dirs: this broker, alone or in a cluster on ZooKeeper. Raises StorageError."""
        self.ownership.write(self.online, cluster_id, node_id, self._logs.counts, on_zookeeper=on_zookeeper)

    # --- creating and deleting ------------------------------------------------------------------------------

    def create(
        self,
        topic: str,
        partition: int,
        topic_id: bytes | None,
        config: LogConfig | None = None,
        *,
        now_ms: int = 0,
    ) -> PartitionLog:
        """Create the log of a partition, in the dir with the fewest logs.

        An existing log of that name is opened, not overwritten. Raises StorageError.
        """
        creation = self.begin_creation([Wanted(topic, partition, topic_id, config)], now_ms)
        creation.run()
        return self.finish_creation(creation.logs[0], now_ms)

    def begin_creation(self, new_logs: Sequence[Wanted], now_ms: int) -> Creation:
        """Return the creation of these logs, in the dirs with the fewest logs; its `run` is best called in a thread.

        Then `finish_creation` is called for each of its logs, even if others have failed. Meanwhile these partitions
        must not be used. Raises StorageError; then no log is created.
        """
        if not self.online:
            raise next(iter(self.offline.values()))
        for path in self.online:
            self.ownership.check_in_place(path)  # a missing log would be created again, empty
        new = []
        nothing_known = Checkpoints()
        counts = dict(self._logs.counts)
        for topic, partition, topic_id, config in new_logs:
            key = (topic, partition)
            assert key not in self._logs, key
            preferred = self._preferred.pop(key, "")
            allowed = [path for path in self.online if path not in self.cordoned] or self.online
            path = preferred if preferred in self.online else min(allowed, key=counts.__getitem__)
            counts[path] += 1
            self._leave_behind(key)
            if self.checkpoints.may_mislead(path, key):
                self.write_checkpoints(path)
            loader = self._opener.loader(path, key, config or self.config_for(topic), nothing_known, now_ms)
            new.append(NewLog(key, path, topic_id, loader))
        return Creation(self.disk, self.workers, new)

    def finish_creation(self, new: NewLog, now_ms: int) -> PartitionLog:
        """Register a created log. Raises StorageError if its creation has failed, or its log dir since."""
        path = new.log_dir
        if path in self.offline:
            raise self.offline[path]
        if new.error is not None:
            raise StorageError(path, new.error) from new.error
        assert new.loaded is not None
        for segment in new.loaded.segments:
            segment.count_in(self.pool)
        self.checkpoints.log_added(path)
        return self._opener.add(path, new.key, new.loader.config, new.loaded, new.topic_id, 0, now_ms)

    def are_misleading(self, new_logs: Sequence[Wanted]) -> bool:
        """Return whether checkpoints may have entries of former logs with these names: then they must be written first."""
        return any(
            self.checkpoints.may_mislead(path, (new_log.topic, new_log.partition))
            for path in self.online
            for new_log in new_logs
        )

    def prefer(self, topic: str, partition: int, path: str) -> None:
        """Set the log dir in which a partition that does not exist yet will be created, if the dir works then."""
        if (topic, partition) not in self._logs:
            while len(self._preferred) >= PREFERRED_MAX:
                del self._preferred[next(iter(self._preferred))]
            self._preferred[topic, partition] = path

    def delete(self, topic: str, partition: int, now_ms: int) -> None:
        """Delete a log: its directory is renamed now, and removed by `remove_due` later.

        Takes constant time, except for closing its segments. Raises StorageError.
        """
        deletion = self.begin_deletion([(topic, partition)], now_ms)
        deletion.run()
        deletion.finish()

    def begin_deletion(self, keys: Sequence[TopicPartition], now_ms: int) -> Deletion:
        """Begin to delete those of the logs that exist; `run` the result, best in a thread, then `finish` it.

        Meanwhile no log of their names may be created.
        """
        leaving = []
        for key in keys:
            self.cut_off.discard(key, now_ms)
            partition_log = self._logs.get(key)
            if partition_log is not None:
                self._end_move(*key, now_ms)
                self._logs.remove(partition_log)
                self.trash.directory_deleted(partition_log.dir)
                path, directory = partition_log.log_dir, partition_log.dir
                due_ms = now_ms + partition_log.config.file_delete_delay_ms
            else:
                directory = self.missing.pop(key, "")
                if not directory:
                    continue
                path, due_ms = directory.rpartition("/")[0], now_ms
            renamed = logdir.other_name(self.disk, key, path, DirKind.DELETE)
            leaving.append(Leaving(path, directory, renamed, due_ms))
        return Deletion(self.disk, self.workers, self.trash, lambda path: path not in self.offline, leaving)

    def set_aside(self, topic: str, partition: int, now_ms: int = 0) -> str:
        """Stop using a log, and keep its files: its directory becomes a stray one.

        Returns its path; raises StorageError.
        """
        key = (topic, partition)
        partition_log = self._logs[key]
        self._end_move(topic, partition, now_ms)
        self._logs.remove(partition_log)
        kept = logdir.rename_away(self.disk, key, partition_log.log_dir, partition_log.dir, DirKind.STRAY)
        self.trash.directory_renamed(partition_log.dir, kept)
        return kept

    def _leave_behind(self, key: TopicPartition) -> None:
        """Rename the remaining files of a removed log and of its copies, to keep them as stray. Raises StorageError."""
        directory = self.missing.pop(key, "")
        path = directory.rpartition("/")[0]
        if directory and path not in self.offline:
            logdir.rename_away(self.disk, key, path, directory, DirKind.STRAY)
        self.cut_off.set_aside(key)

    def _end_move(self, topic: str, partition: int, now_ms: int) -> None:
        move = self.moves.get(topic, partition)
        if move is not None:
            self.moves.cancel(move, now_ms)

    # --- moving to another dir (KIP-113) --------------------------------------------------------------------

    def begin_move(self, topic: str, partition: int, target: str, now_ms: int) -> Move | None:
        """Begin to move a log to another dir; None if it is there or being moved there. A move to a third dir is cancelled.

        Raises StorageError.
        """
        return self.moves.begin(self._logs[topic, partition], target, now_ms)

    def finish_move(self, move: Move, now_ms: int) -> PartitionLog:
        """Copy the missing rest, and replace the log by the copy; returns the new log.

        Raises StorageError for the dir that failed: the log then stays in its dir, unless it cannot be opened in the new
        dir.
        """
        old = move.partition_log
        key = (old.topic, old.partition)
        move.complete()
        self.moves.swap(move, now_ms)
        self._logs.remove(old)
        at_end = Checkpoints(
            {key: old.log_end_offset},
            {key: old.log_start_offset},
            {key: old.high_watermark},
            {} if old.clean_offset is None else {key: old.clean_offset},
            is_clean=True,
        )
        try:
            new = self._opener.load(move.target_dir, key, at_end, now_ms)
        except OSError as error:
            self.missing[key] = f"{move.target_dir}/{old.name}"
            raise StorageError(move.target_dir, error) from error
        new.take_over(old)
        return new

    # --- failed dirs ----------------------------------------------------------------------------------------

    def take_offline(self, path: str, error: StorageError) -> list[PartitionLog]:
        """Stop using a log dir; returns the logs that were in it."""
        if path in self.offline:
            return []
        log.error("taking log dir %s offline: %s", path, error.cause)
        self.offline[path] = error
        lost = self._logs.in_dir(path)
        for partition_log in lost:
            self._logs.remove(partition_log)
        self.trash.forget(path)
        self.checkpoints.forget(path)
        self.cut_off.lose(path, self.moves.lose(path))
        self.ownership.forget(path)
        return lost

    # --- missing files --------------------------------------------------------------------------------------

    def find_missing(self, *, also_logs: bool) -> list[StorageError]:
        """Check, in any thread, whether the log dirs are in place, and with `also_logs` the active segments.

        `lose_missing` checks each answer again: a log may just be deleted or moved.
        """
        return find_missing(self._logs, self.ownership, self.online, also_logs=also_logs)

    def lose_missing(self, error: StorageError) -> list[PartitionLog]:
        """Find missing files after an error about a missing file; returns the logs that go offline.

        No log does if all files are in place: then this broker itself has removed or renamed the file.
        """
        try:
            log_and_file = missing_file_of(self._logs, self.ownership, error)
        except StorageError as failure:
            return self.take_offline(error.log_dir, failure)
        if log_and_file is None:
            log.warning("%s, but all that is needed is there", error)
            return []
        partition_log, missing = log_and_file
        log.error(
            "%s-%d is offline: %s is gone, or is another file; it was removed while the broker had it open. "
            "Nothing is written to it before a restart, which begins with what is left",
            partition_log.topic, partition_log.partition, missing,
        )  # fmt: skip
        self._end_move(partition_log.topic, partition_log.partition, 0)
        self._logs.remove(partition_log)
        self.trash.directory_deleted(partition_log.dir)
        self.missing[partition_log.topic, partition_log.partition] = partition_log.dir
        return [partition_log]

    # --- housekeeping ---------------------------------------------------------------------------------------

    def begin_removal(self, now_ms: int) -> RemovalTask | None:
        """Return the removal of all files that are due; `run` it, best in a thread, then `finish` it."""
        due = self.trash.take_due(now_ms)
        return RemovalTask(self.disk, self.trash, due) if due else None

    def remove_due(self, now_ms: int) -> int:
        """Remove the files and directories that are due; returns how many. Raises StorageError."""
        task = self.begin_removal(now_ms)
        if task is None:
            return 0
        task.run()
        return task.finish()

    def begin_checkpoints(self) -> CheckpointPlan:
        """Begin to write recovery points, log starts and high watermarks: the caller adds all logs to the plan, then
        calls `checkpoints.write`, best in a thread, and `checkpoints.written`.
        """
        return self.checkpoints.begin(self.online)

    def write_checkpoints(self, path: str | None = None) -> None:
        """Write the checkpoints of all log dirs, or of one. Raises StorageError."""
        plan = self.checkpoints.begin(self.online if path is None else [path])
        for partition_log in self._logs:
            plan.add(partition_log)
        self.checkpoints.write(plan)
        self.checkpoints.written(plan)

    def usage(self, path: str) -> Usage:
        """Return how full the volume of a log dir is (DescribeLogDirs v4). Raises StorageError."""
        try:
            return self.disk.usage(path)
        except OSError as error:
            raise StorageError(path, error) from error

    def close(self) -> None:
        """Close all logs cleanly, and mark their dirs as clean unless `stays_unclean`; a dir that fails is not marked."""
        from barnabas.log.closing import close_many

        self.moves.cancel_all()
        for path in self.online:
            logs = self._logs.in_dir(path)
            plan = self.checkpoints.begin([path])
            try:
                self.ownership.check_in_place(path)
                close_many(logs, self.workers)
                for partition_log in logs:
                    plan.dirs[path].add(partition_log)
                self.checkpoints.write(plan)
                if not self.stays_unclean:
                    self.disk.replace(
                        f"{path}/{names.CLEAN_SHUTDOWN}",
                        properties.encode_clean_shutdown(self.broker_epoch),
                        sync=True,
                    )
            except StorageError as error:
                self._give_up(path, error)
            except OSError as error:
                self._give_up(path, StorageError(path, error))
        self._logs.clear()
        if not self._is_locked_outside:
            self.ownership.release()

    def _give_up(self, path: str, error: StorageError) -> None:
        log.error(
            "%s could not be closed cleanly and will be checked when it is opened: %s", path, error.cause
        )
        self.offline[path] = error
