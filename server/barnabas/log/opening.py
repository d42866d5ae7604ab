"""Opens logs: classifies the directories in a log dir, applies its checkpoints, and recovers logs.

The rule: the mark of a clean shutdown is removed before anything in a log dir is changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.errors import StorageError
from barnabas.log import logdir
from barnabas.log.checkpointing import Checkpointer
from barnabas.log.cut_off import CutOffCopies, MarkedDir
from barnabas.log.disk import Disk
from barnabas.log.format import names, properties
from barnabas.log.format.names import DirKind
from barnabas.log.logdir import Checkpoints, LogGoneError
from barnabas.log.openfiles import OpenFiles
from barnabas.log.parts import LogParts
from barnabas.log.registry import LogRegistry
from barnabas.log.removal.pending import Trash
from barnabas.log.workers import Workers
from barnabas.wire.topic_partitions import TopicPartition

if TYPE_CHECKING:
    from barnabas.log.config import LogConfig
    from barnabas.log.partition_log import PartitionLog
    from barnabas.log.recovery.loading import LoadedLog, Loader

log = logging.getLogger(__name__)


class Opener:
    """Opens logs from disk, and adds them to the registry."""

    def __init__(
        self,
        registry: LogRegistry,
        disk: Disk,
        pool: OpenFiles,
        trash: Trash,
        cut_off: CutOffCopies,
        checkpoints: Checkpointer,
        *,
        config_for: Callable[[str], LogConfig],
        producer_expiration_ms: int,
        recovery_threads: int,
        workers: Workers,
        missing: dict[TopicPartition, str],
    ) -> None:
        """`missing` gets the logs that are gone, with their former directories."""
        self._missing = missing
        self._registry = registry
        self._disk = disk
        self._pool = pool
        self._trash = trash
        self._cut_off = cut_off
        self._checkpoints = checkpoints
        self.broker_epochs: dict[str, int] = {}
        """Broker epochs in the marks of a clean shutdown, by log dir."""
        self._config_for = config_for
        self.producer_expiration_ms = producer_expiration_ms
        self._recovery_threads = recovery_threads
        self._workers = workers

    # --- one log --------------------------------------------------------------------------------------------

    def loader(
        self, path: str, key: TopicPartition, config: LogConfig, checkpoints: Checkpoints, now_ms: int
    ) -> Loader:
        """Return the loader that opens or creates a partition's log in a log dir with `checkpoints`."""
        from barnabas.log.recovery.loading import Loader  # not needed by a start without logs

        return Loader(
            self._disk,
            self._pool,
            f"{path}/{names.dir_name(*key)}",
            config,
            now_ms=now_ms,
            producer_expiration_ms=self.producer_expiration_ms,
            is_clean=checkpoints.is_clean,
            recovery_point=checkpoints.recovery_points.get(key, 0),
            log_start_offset=checkpoints.log_starts.get(key, 0),
            clean_offset=checkpoints.clean_offsets.get(key, 0),
            is_cache_intact=checkpoints.is_cache_intact,
            was_there=had_log(checkpoints, key),
        )

    def load(self, path: str, key: TopicPartition, checkpoints: Checkpoints, now_ms: int) -> PartitionLog:
        """Open the log of a partition in a log dir. Raises OSError."""
        loader = self.loader(path, key, self._config_for(key[0]), checkpoints, now_ms)
        return self._add_loaded(path, key, checkpoints, loader.config, loader.load(), now_ms)

    def add(
        self,
        path: str,
        key: TopicPartition,
        config: LogConfig,
        loaded: LoadedLog,
        topic_id: bytes | None,
        high_watermark: int,
        now_ms: int,
    ) -> PartitionLog:
        """Add a log to the registry, with the content that a loader has loaded."""
        from barnabas.log.partition_log import PartitionLog

        parts = LogParts(
            path, config, self._disk, self._pool, self._trash, loaded, topic_id, high_watermark, now_ms
        )
        partition_log = PartitionLog(*key, parts)
        self._registry.add(partition_log)
        return partition_log

    def _add_loaded(
        self,
        path: str,
        key: TopicPartition,
        checkpoints: Checkpoints,
        config: LogConfig,
        loaded: LoadedLog,
        now_ms: int,
    ) -> PartitionLog:
        high_watermark = checkpoints.high_watermarks.get(key, 0)
        topic_id = logdir.read_topic_id(self._disk, f"{path}/{names.dir_name(*key)}")
        added = self.add(path, key, config, loaded, topic_id, high_watermark, now_ms)
        added.clean_offset = checkpoints.clean_offsets.get(key)
        return added

    # --- a log dir ------------------------------------------------------------------------------------------

    def open_dir(self, path: str, now_ms: int) -> bool:
        """Open all logs in a log dir, and recover those that may need it; returns whether the dir was closed cleanly.

        Raises OSError, CorruptFileError, and StorageError for a log that is in another log dir too.
        """
        entries = self._disk.list(path)
        is_clean = any(entry.name == names.CLEAN_SHUTDOWN for entry in entries)
        if is_clean:
            mark = self._disk.read(f"{path}/{names.CLEAN_SHUTDOWN}")
            self.broker_epochs[path] = properties.decode_clean_shutdown(mark)
            self._disk.remove(f"{path}/{names.CLEAN_SHUTDOWN}")
            self._disk.sync_dir(path)
        checkpoints = logdir.read_checkpoints(self._disk, path, is_clean=is_clean)
        keys = [
            key
            for entry in entries
            if entry.is_dir and (key := self._recognise(path, entry.name, now_ms)) is not None
        ]
        if is_clean or len(keys) < 2 or self._recovery_threads < 2:
            for key in keys:
                try:
                    self.load(path, key, checkpoints, now_ms)
                except LogGoneError:
                    self._gone(path, key)
        else:
            self._recover(path, keys, checkpoints, now_ms)
        for key in {key for offsets in checkpoints[:4] for key in offsets}.difference(keys):
            self._checkpoints.log_removed(path, key)
            if had_log(checkpoints, key):
                self._gone(path, key)
        logdir.write_boot_id(self._disk, path)
        if keys and not is_clean:
            log.warning("%s was not closed cleanly: its %d logs were checked", path, len(keys))
        return is_clean

    def _recover(self, path: str, keys: list[TopicPartition], checkpoints: Checkpoints, now_ms: int) -> None:
        """Check and open these logs, several in parallel. Raises OSError, CorruptFileError."""
        from barnabas.log.recovery.parallel import load_many  # not needed after a clean shutdown

        loaders = {key: self.loader(path, key, self._config_for(key[0]), checkpoints, now_ms) for key in keys}
        for key, loaded in load_many(path, loaders, self._recovery_threads, self._workers):
            if loaded is None:
                self._gone(path, key)
                continue
            for segment in loaded.segments:
                segment.count_in(self._pool)
            self._add_loaded(path, key, checkpoints, loaders[key].config, loaded, now_ms)

    def _gone(self, path: str, key: TopicPartition) -> None:
        self._missing[key] = f"{path}/{names.dir_name(*key)}"

    def _recognise(self, path: str, name: str, now_ms: int) -> TopicPartition | None:
        """Return the partition of a log's directory; handle directories that are no logs."""
        parsed_name = names.parse_dir_name(name)
        if parsed_name is None:
            log.info("%s/%s is not of the form topic-partition: left alone", path, name)
            return None
        if parsed_name.kind is DirKind.DELETE:
            self._trash.add(now_ms, path, [f"{path}/{name}"])
            self._cut_off.renamed.append(MarkedDir(path, name, parsed_name.topic, parsed_name.partition))
            return None
        if parsed_name.kind is DirKind.FUTURE:
            self._cut_off.found.append(MarkedDir(path, name, parsed_name.topic, parsed_name.partition))
            return None
        if parsed_name.kind is not DirKind.CURRENT:
            log.warning("%s/%s is a %s replica: left alone", path, name, parsed_name.kind.value)
            self._cut_off.renamed.append(MarkedDir(path, name, parsed_name.topic, parsed_name.partition))
            return None
        if parsed_name.topic == names.CLUSTER_METADATA_TOPIC:
            return None
        other = self._registry.get((parsed_name.topic, parsed_name.partition))
        if other is not None:
            raise StorageError(
                path,
                OSError(f"{name} is also in {other.log_dir}; remove the copy in the dir that failed last"),
            )
        return parsed_name.topic, parsed_name.partition


def had_log(checkpoints: Checkpoints, key: TopicPartition) -> bool:
    """Return whether a missing log existed when the checkpoints were written, and cannot be missing because of a crash.

    A power cut may lose a directory that was never synced; an empty log counts as missing.
    """
    recovery_point = checkpoints.recovery_points.get(key)
    if recovery_point is None:
        return False
    return recovery_point > 0 or (checkpoints.is_cache_intact and not checkpoints.is_clean)
