"""All partitions of a broker, over its log dirs.

The rule: a log dir is locked before anything in it is believed, and the mark of a clean shutdown is gone
before anything in it is changed. A dir that fails goes offline alone, with the logs in it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from barnabas.errors import StorageError
from barnabas.log import logdir
from barnabas.log.config import LogConfig
from barnabas.log.disk import Disk, Lock, OsDisk, Usage
from barnabas.log.flushing import FlushTask
from barnabas.log.format import CorruptFileError, names, properties
from barnabas.log.format.checkpoints import TopicPartition
from barnabas.log.format.names import DirKind
from barnabas.log.format.properties import MetaProperties
from barnabas.log.loading import LoadedLog, Loader
from barnabas.log.logdir import Checkpoints
from barnabas.log.moving import Move, Moves
from barnabas.log.openfiles import OPEN_SEGMENTS_MAX, OpenFiles
from barnabas.log.partition_log import PartitionLog
from barnabas.log.producers import PRODUCER_ID_EXPIRATION_MS
from barnabas.log.trash import Trash

log = logging.getLogger(__name__)

PREFERRED_MAX = 10_000  # wishes of clients for partitions that do not exist


class LogManager:
    """Opens, finds, makes and deletes the logs of partitions.

    Lifecycle: `open`, then everything else, then `close`; after a failure `take_offline` for the dir that
    failed. `open`, `remove_due`, `write_checkpoints` and `close` may be run in a thread, one at a time.
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
    ) -> None:
        """`dirs` are absolute paths, made if need be; `config_for` returns the settings of a topic.

        With `node_id`, dirs that belong to a broker with another number are not opened.
        """
        self._expected_node_id = node_id
        self.recovery_threads = recovery_threads
        self.dirs = list(dict.fromkeys(path.rstrip("/") for path in dirs))
        self.disk: Disk = disk or OsDisk()
        self.config_for = config_for
        self.producer_expiration_ms = producer_expiration_ms
        self.meta: dict[str, MetaProperties] = {}
        self.offline: dict[str, StorageError] = {}
        self.pool = OpenFiles(open_segments_max)
        self.trash = Trash()
        self.moves = Moves(self.disk, self.trash)
        self._preferred: dict[TopicPartition, str] = {}
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._locks: dict[str, Lock] = {}

    def __len__(self) -> int:
        return len(self._logs)

    def __iter__(self) -> Iterator[PartitionLog]:
        return iter(list(self._logs.values()))

    @property
    def online(self) -> list[str]:
        """The log dirs that work."""
        return [path for path in self.dirs if path not in self.offline]

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """Return the log of a partition, None if there is none here."""
        return self._logs.get((topic, partition))

    def set_producer_expiration(self, expiration_ms: int) -> None:
        """Remember idle producers for so long from now on."""
        self.producer_expiration_ms = expiration_ms
        for log in self._logs.values():
            log.producers.expiration_ms = expiration_ms

    # --- opening --------------------------------------------------------------------------------------------

    def open(self, now_ms: int) -> None:
        """Lock the log dirs, read what they are, and open all logs in them; recover those not closed cleanly.

        Raises StorageError if a dir is in use by another broker, if dirs contradict each other, or if none
        works.
        """
        for path in self.dirs:
            try:
                self._lock(path)
                self._open_dir(path, now_ms)
            except OSError as error:
                self.take_offline(path, StorageError(path, error))
            except CorruptFileError as error:
                self._release_locks()
                raise StorageError(path, error) from error
            except StorageError:
                self._release_locks()
                raise
        if not self.online:
            self._release_locks()
            raise next(iter(self.offline.values()))
        try:
            logdir.check_meta({path: self.meta[path] for path in self.online if path in self.meta})
        except StorageError:
            self._release_locks()
            raise
        self._end_moves(now_ms)

    def _lock(self, path: str) -> None:
        self.disk.make_dirs(path)
        try:
            self._locks[path] = self.disk.lock(f"{path}/{names.LOCK}")
        except BlockingIOError as error:
            cause = OSError(
                "another broker is using it (its .lock file is held); give each broker a dir of its own"
            )
            raise StorageError(path, cause) from error

    def _release_locks(self) -> None:
        for lock in self._locks.values():
            lock.release()
        self._locks.clear()

    def _open_dir(self, path: str, now_ms: int) -> None:
        meta = logdir.read_meta(self.disk, path)
        if meta is not None:
            logdir.check_node_id(path, meta, self._expected_node_id)
            self.meta[path] = meta
        entries = self.disk.list(path)
        is_clean = any(entry.name == names.CLEAN_SHUTDOWN for entry in entries)
        if is_clean:
            self.disk.remove(f"{path}/{names.CLEAN_SHUTDOWN}")
            self.disk.sync_dir(path)
        known = logdir.read_checkpoints(self.disk, path, is_clean=is_clean)
        keys = [
            key
            for entry in entries
            if entry.is_dir and (key := self._recognise(path, entry.name, now_ms)) is not None
        ]
        if is_clean or len(keys) < 2 or self.recovery_threads < 2:
            for key in keys:
                self._load(path, key, known, now_ms)
        else:
            self._recover(path, keys, known, now_ms)
        if keys and not is_clean:
            log.warning("%s was not closed cleanly: its %d logs were checked", path, len(keys))

    def _recover(self, path: str, keys: list[TopicPartition], known: Checkpoints, now_ms: int) -> None:
        """Check and open these logs, several at a time. Raises OSError, CorruptFileError."""
        from barnabas.log.recovering import load_many  # not on the way of a start after a clean stop

        loaders = {key: self._loader_of(path, key, known, now_ms) for key in keys}
        for key, loaded in load_many(path, loaders, self.recovery_threads):
            for segment in loaded.segments:
                segment.count_in(self.pool)
            self._take_in(path, key, known, loaders[key].config, loaded, now_ms)

    def _load(self, path: str, key: TopicPartition, known: Checkpoints, now_ms: int) -> PartitionLog:
        """Open the log of a partition. Raises OSError."""
        loader = self._loader_of(path, key, known, now_ms)
        return self._take_in(path, key, known, loader.config, loader.load(), now_ms)

    def _loader_of(self, path: str, key: TopicPartition, known: Checkpoints, now_ms: int) -> Loader:
        """What opens the log of a partition, with what the checkpoints say of it."""
        loader = self._loader(f"{path}/{names.dir_name(*key)}", self.config_for(key[0]), now_ms)
        loader.is_clean = known.is_clean
        loader.recovery_point = known.recovery_points.get(key, 0)
        loader.log_start_offset = known.log_starts.get(key, 0)
        loader.clean_offset = known.clean_offsets.get(key, 0)
        return loader

    def _take_in(
        self,
        path: str,
        key: TopicPartition,
        known: Checkpoints,
        config: LogConfig,
        loaded: LoadedLog,
        now_ms: int,
    ) -> PartitionLog:
        high_watermark = known.high_watermarks.get(key, 0)
        topic_id = logdir.read_topic_id(self.disk, f"{path}/{names.dir_name(*key)}")
        added = self._add(path, key, config, loaded, topic_id, high_watermark, now_ms)
        added.clean_offset = known.clean_offsets.get(key)
        return added

    def _loader(self, directory: str, config: LogConfig, now_ms: int) -> Loader:
        return Loader(
            self.disk, self.pool, directory, config, now_ms=now_ms,
            producer_expiration_ms=self.producer_expiration_ms,
        )  # fmt: skip

    def _recognise(self, path: str, name: str, now_ms: int) -> TopicPartition | None:
        """Say of which partition a directory is the log; deal with those that are none."""
        found = names.parse_dir_name(name)
        if found is None:
            log.info("%s/%s is not of the form topic-partition: left alone", path, name)
            return None
        if found.kind is DirKind.DELETE:
            self.trash.add(now_ms, path, [f"{path}/{name}"])
            return None
        if found.kind is DirKind.FUTURE:
            self.moves.cut_off.append((path, name, (found.topic, found.partition)))
            return None
        if found.kind is not DirKind.CURRENT:
            log.warning("%s/%s is a %s replica: left alone", path, name, found.kind.value)
            return None
        if found.topic == names.CLUSTER_METADATA_TOPIC:
            return None
        other = self._logs.get((found.topic, found.partition))
        if other is not None:
            raise StorageError(
                path,
                OSError(f"{name} is also in {other.log_dir}; remove the copy in the dir that failed last"),
            )
        return found.topic, found.partition

    def _add(
        self,
        path: str,
        key: TopicPartition,
        config: LogConfig,
        loaded: LoadedLog,
        topic_id: bytes | None,
        high_watermark: int,
        now_ms: int,
    ) -> PartitionLog:
        partition_log = PartitionLog(
            *key,
            log_dir=path,
            config=config,
            disk=self.disk,
            pool=self.pool,
            trash=self.trash,
            loaded=loaded,
            topic_id=topic_id,
            high_watermark=high_watermark,
            now_ms=now_ms,
        )
        self._logs[key] = partition_log
        return partition_log

    # --- whose dirs they are --------------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str | None:
        """The cluster that the log dirs belong to, None if they are new."""
        return next((meta.cluster_id for meta in self.meta.values() if meta.cluster_id), None)

    @property
    def node_id(self) -> int | None:
        """The broker that the log dirs belong to, None if they are new."""
        return next((meta.node_id for meta in self.meta.values() if meta.node_id is not None), None)

    def write_meta(self, cluster_id: str, node_id: int) -> None:
        """Make the online dirs those of this broker, each with a directory id (KIP-858).

        Raises StorageError.
        """
        for path in self.online:
            meta = self.meta.setdefault(path, MetaProperties())
            before = meta.encode()
            meta.cluster_id, meta.node_id = cluster_id, node_id
            meta.directory_id = meta.directory_id or self.disk.unique_id()
            data = meta.encode()
            if data != before:
                try:
                    self.disk.replace(f"{path}/{names.META_PROPERTIES}", data, sync=True)
                except OSError as error:
                    raise StorageError(path, error) from error

    # --- making and deleting --------------------------------------------------------------------------------

    def create(
        self,
        topic: str,
        partition: int,
        topic_id: bytes | None,
        config: LogConfig | None = None,
        *,
        now_ms: int = 0,
    ) -> PartitionLog:
        """Make the log of a partition, in the dir that has the fewest.

        What is there already under its name is opened, not overwritten. Raises StorageError.
        """
        key = (topic, partition)
        assert key not in self._logs, key
        if not self.online:
            raise next(iter(self.offline.values()))
        preferred = self._preferred.pop(key, "")
        path = preferred if preferred in self.online else self._emptiest()
        directory = f"{path}/{names.dir_name(topic, partition)}"
        try:
            self.disk.make_dirs(directory)
            loader = self._loader(directory, config or self.config_for(topic), now_ms)
            partition_log = self._add(path, key, loader.config, loader.load(), None, 0, now_ms)
        except OSError as error:
            raise StorageError(path, error) from error
        if topic_id is not None:
            partition_log.save_topic_id(topic_id)
        return partition_log

    def prefer(self, topic: str, partition: int, path: str) -> None:
        """Have a partition that is not here yet made in that log dir, if it works then."""
        if (topic, partition) not in self._logs:
            while len(self._preferred) >= PREFERRED_MAX:
                del self._preferred[next(iter(self._preferred))]
            self._preferred[topic, partition] = path

    def _emptiest(self) -> str:
        online = self.online
        if len(online) == 1:
            return online[0]
        counts = dict.fromkeys(online, 0)
        for partition_log in self._logs.values():
            counts[partition_log.log_dir] += 1
        return min(online, key=lambda path: counts[path])

    def delete(self, topic: str, partition: int, now_ms: int) -> None:
        """Delete a log: its directory is renamed now, and removed by `remove_due` later.

        Raises StorageError.
        """
        partition_log = self._logs.pop((topic, partition), None)
        if partition_log is None:
            return
        move = self.moves.get(topic, partition)
        if move is not None:
            self.moves.cancel(move, now_ms)
        path = partition_log.log_dir
        name = names.marked_dir_name(topic, partition, DirKind.DELETE, self.disk.unique_id().hex())
        partition_log.abandon()
        try:
            self.disk.rename(partition_log.dir, f"{path}/{name}")
        except OSError as error:
            raise StorageError(path, error) from error
        self.trash.add(now_ms + partition_log.config.file_delete_delay_ms, path, [f"{path}/{name}"])

    def set_aside(self, topic: str, partition: int) -> str:
        """Let a log be: its directory is renamed to a stray one, and kept. Returns its path; raises StorageError."""
        partition_log = self._logs.pop((topic, partition))
        name = names.marked_dir_name(topic, partition, DirKind.STRAY, self.disk.unique_id().hex())
        partition_log.abandon()
        try:
            self.disk.rename(partition_log.dir, f"{partition_log.log_dir}/{name}")
        except OSError as error:
            raise StorageError(partition_log.log_dir, error) from error
        return f"{partition_log.log_dir}/{name}"

    # --- moving to another dir (KIP-113) --------------------------------------------------------------------

    def begin_move(self, topic: str, partition: int, target: str, now_ms: int) -> Move | None:
        """Begin to move a log to another dir; None if it is there, or on its way there.

        A move of it to elsewhere is given up. Raises StorageError.
        """
        return self.moves.begin(self._logs[topic, partition], target, now_ms)

    def finish_move(self, move: Move, now_ms: int) -> PartitionLog:
        """Copy what is missing, and put the copy in the log's place; returns the log as it is from now on.

        Raises StorageError for the dir that failed: then the log is where it was, unless it cannot be opened any
        more in its new place.
        """
        old = move.partition_log
        key = (old.topic, old.partition)
        move.complete()
        self.moves.swap(move, now_ms)
        del self._logs[key]
        old.abandon()
        at_end = Checkpoints(
            {key: old.log_end_offset},
            {key: old.log_start_offset},
            {key: old.high_watermark},
            {} if old.clean_offset is None else {key: old.clean_offset},
            is_clean=True,
        )
        try:
            new = self._load(move.target_dir, key, at_end, now_ms)
        except OSError as error:
            raise StorageError(move.target_dir, error) from error
        new.take_over(old)
        return new

    def _end_moves(self, now_ms: int) -> None:
        """Deal with the moves that a crash has cut off.

        As long as the log is at its old place the copy is rubbish. If it is not, then the copy was whole.
        """
        for path, name, key in self.moves.cut_off:
            if path in self.offline:
                continue
            if key in self._logs:
                log.info(
                    "the move of %s-%d to %s was cut off: it stays in %s", *key, path, self._logs[key].log_dir
                )
                self.trash.add(now_ms, path, [f"{path}/{name}"])
            elif self.offline:
                log.warning("%s/%s is left alone: the log itself may be in a dir that is offline", path, name)
            else:
                try:
                    self.disk.rename(f"{path}/{name}", f"{path}/{names.dir_name(*key)}")
                    self.disk.sync_dir(path)
                    self._load(path, key, Checkpoints(), now_ms)
                except OSError as error:
                    self.take_offline(path, StorageError(path, error))
        self.moves.cut_off.clear()

    # --- dirs that fail -------------------------------------------------------------------------------------

    def take_offline(self, path: str, error: StorageError) -> list[PartitionLog]:
        """Stop using a log dir; returns the logs that were in it."""
        if path in self.offline:
            return []
        log.error("taking log dir %s offline: %s", path, error.cause)
        self.offline[path] = error
        lost = [partition_log for partition_log in self._logs.values() if partition_log.log_dir == path]
        for partition_log in lost:
            partition_log.abandon()
            del self._logs[partition_log.topic, partition_log.partition]
        self.trash.forget(path)
        self.moves.lose(path)
        self.meta.pop(path, None)
        lock = self._locks.pop(path, None)
        if lock is not None:
            lock.release()
        return lost

    # --- housekeeping ---------------------------------------------------------------------------------------

    def apply_retention(self, now_ms: int) -> int:
        """Drop old segments of all logs and forget expired producers; returns how many segments.

        Quick: files are renamed, and removed by `remove_due`. Raises StorageError.
        """
        count = 0
        for partition_log in self:
            count += partition_log.apply_retention(now_ms)
            partition_log.producers.expire(now_ms)
        return count

    def remove_due(self, now_ms: int) -> int:
        """Remove the files and directories whose time has come; returns how many. Raises StorageError."""
        due = self.trash.take_due(now_ms)
        synced: set[str] = set()
        for doomed in due:
            try:
                directory = doomed.path.rpartition("/")[0]
                if directory not in synced:  # what took its place must last before it goes
                    self.disk.sync_dir(directory)
                    synced.add(directory)
                if doomed.path.endswith((f"-{DirKind.DELETE.value}", f"-{DirKind.FUTURE.value}")):
                    self.disk.remove_tree(doomed.path)
                else:
                    self.disk.remove(doomed.path)
            except OSError as error:
                raise StorageError(doomed.log_dir, error) from error
        return len(due)

    def flush_due(self, now_ms: int) -> list[FlushTask]:
        """Return the flushes that are due: by flush.ms, or as a segment has been rolled.

        Those that flush.messages asks for are due with the append (`PartitionLog.wants_flush`).
        Each is to be `run`, best in a thread, and then to be told `finish`. Raises StorageError.
        """
        tasks = []
        for partition_log in self:
            if partition_log.recovery_point < partition_log.log_end_offset and (
                partition_log.recovery_point < partition_log.active.base_offset
                or now_ms - partition_log.last_flush_ms >= partition_log.config.flush_ms
            ):
                task = partition_log.begin_flush()
                if task is not None:
                    tasks.append(task)
        return tasks

    def write_checkpoints(self) -> None:
        """Write recovery points, log starts and high watermarks of all log dirs. Raises StorageError."""
        logs = list(self)
        for path in self.online:
            logdir.write_checkpoints(self.disk, path, [entry for entry in logs if entry.log_dir == path])

    def usage(self, path: str) -> Usage:
        """Return how full the volume of a log dir is (DescribeLogDirs v4). Raises StorageError."""
        try:
            return self.disk.usage(path)
        except OSError as error:
            raise StorageError(path, error) from error

    def close(self) -> None:
        """Close all logs cleanly and mark their dirs so; a dir that fails meanwhile is left unmarked."""
        from barnabas.log.closing import close_many

        self.moves.cancel_all()
        for path in self.online:
            try:
                close_many([partition_log for partition_log in self if partition_log.log_dir == path])
            except StorageError as error:
                self._give_up(path, error)
        try:
            self.write_checkpoints()
        except StorageError as error:
            self._give_up(error.log_dir, error)
        for path in self.online:
            try:
                mark = properties.encode_clean_shutdown()
                self.disk.replace(f"{path}/{names.CLEAN_SHUTDOWN}", mark, sync=True)
            except OSError as error:
                self._give_up(path, StorageError(path, error))
        self._logs.clear()
        self._release_locks()

    def _give_up(self, path: str, error: StorageError) -> None:
        log.error(
            "%s could not be closed cleanly and will be checked when it is opened: %s", path, error.cause
        )
        self.offline[path] = error
