"""Durability of a log: its recovery point, the files that the next flush must sync, and closing.

The rule: the recovery point never passes what a flush has synced. A flush is planned by the owner of the log, run in any
thread, and finished by the owner, which checks whether the log was truncated meanwhile.
"""

from __future__ import annotations

from barnabas.log.epoch_file import save_epochs
from barnabas.log.errors import guarded
from barnabas.log.flushing import FlushTask, unsynced_files
from barnabas.log.format import names, properties
from barnabas.log.parts import LogParts
from barnabas.log.readable import ReadableLog


class DurableLog(ReadableLog):
    """A log with its recovery point: all records before it are synced. `config` may be replaced at any time."""

    __slots__ = (
        "_flushed_messages",
        "_generation",
        "appended_messages",
        "are_epochs_synced",
        "highest_remote_offset",
        "is_closed",
        "is_dir_synced",
        "last_flush_ms",
        "needs_sync",
        "recovery_point",
        "topic_id",
    )

    def __init__(self, topic: str, partition: int, parts: LogParts) -> None:
        super().__init__(topic, partition, parts)
        self.topic_id = parts.topic_id
        self.highest_remote_offset = -1
        """The last offset in tiered storage, by the lineage of leader epochs; -1 while it is unknown."""
        self.recovery_point = parts.loaded.recovery_point
        self.last_flush_ms = parts.now_ms
        self.appended_messages = 0  # in this life
        # Those of them that are synced; negative while records of an earlier life, above the recovery point, are not.
        self._flushed_messages = self.recovery_point - self.log_end_offset
        self.is_closed = False  # for good: closed, deleted, or its disk has failed
        self.is_dir_synced = False  # whether the directory's own name is known to last
        # Whether a clean end must sync even if nothing was appended.
        self.needs_sync = not parts.loaded.is_clean
        self.are_epochs_synced = True  # whether the file of the leader epochs is synced
        self._generation = 0  # counts truncations

    @property
    def is_tiered(self) -> bool:
        """True if closed segments go to tiered storage; internal topics stay local, whatever their settings are."""
        return self.config.is_tiered and self.topic not in names.LOCAL_TOPICS

    @property
    def generation(self) -> int:
        """Number of truncations of the log since it was opened: offsets may have other records since."""
        return self._generation

    def _save_epochs(self, *, sync: bool) -> None:
        save_epochs(self.disk, self.dir, self.epochs, sync=sync)
        self.are_epochs_synced = sync

    @property
    def unflushed_messages(self) -> int:
        """Number of records that no finished flush of the whole log covers, those recovered after a crash included."""
        return self.appended_messages - self._flushed_messages

    @property
    def is_flushed(self) -> bool:
        """True if nothing is left to sync, or the log is closed."""
        return self.log_end_offset <= self.recovery_point or self.is_closed

    @property
    def wants_flush(self) -> bool:
        """True if flush.messages requires a flush now, before the records are acknowledged."""
        return self.unflushed_messages >= self.config.flush_after_messages

    @guarded
    def begin_flush(self) -> FlushTask | None:
        """Return the flush of all records appended so far; None if all are synced. Raises StorageError."""
        return None if self.is_flushed else self._plan_flush()

    @guarded
    def begin_due_flush(self, now_ms: int) -> FlushTask | None:
        """Return a flush that is due by flush.ms, or after a roll; None if none is. Raises StorageError.

        After a roll it covers the segments before the active one, as in Kafka: a write to a file would wait for its
        sync. A flush by flush.messages is due with the append (`wants_flush`).
        """
        if self.is_flushed:
            return None
        is_whole = now_ms - self.last_flush_ms >= self.config.flush_ms
        if not is_whole and self.active.base_offset <= self.recovery_point:
            return None
        return self._plan_flush(is_whole=is_whole)

    def _plan_flush(self, *, is_whole: bool = True) -> FlushTask:
        """Plan a flush of all appended records, or only of the segments before the active one."""
        files, paths = unsynced_files(self.store, self.recovery_point, is_whole=is_whole)
        directories = [self.dir]
        if not self.are_epochs_synced:
            paths.append(f"{self.dir}/{names.LEADER_EPOCH_CHECKPOINT}")
        if not self.is_dir_synced:
            paths.append(f"{self.dir}/{names.PARTITION_METADATA}")
            directories.append(self.log_dir)
        return FlushTask(
            self,
            end_offset=self.log_end_offset if is_whole else self.active.base_offset,
            generation=self._generation,
            appended_messages=self.appended_messages if is_whole else None,
            leader_epoch=self.epochs.latest,
            disk=self.disk,
            files=files,
            paths=paths,
            directories=directories,
        )

    def flushed(self, task: FlushTask, now_ms: int) -> None:
        """Note a flush that was run."""
        if task.appended_messages is not None:
            self.last_flush_ms = now_ms
        self.is_dir_synced = True
        if task.generation == self._generation:
            self.are_epochs_synced = self.are_epochs_synced or task.leader_epoch == self.epochs.latest
            self.recovery_point = max(self.recovery_point, task.end_offset)
            if task.appended_messages is not None:
                self._flushed_messages = max(self._flushed_messages, task.appended_messages)

    def flush(self, now_ms: int) -> None:
        """Return when everything appended so far survives a power cut. Raises StorageError."""
        task = self.begin_flush()
        if task is not None:
            task.run()
            task.finish(now_ms)

    @guarded
    def finish_close(self, task: FlushTask | None) -> None:
        """Record the finished sync, and close all files. Raises StorageError."""
        if task is not None:
            task.finish(self.last_flush_ms)
        for segment in self.segments:
            segment.close()
        self.is_closed = True

    def abandon(self) -> None:
        """Close all files without a write: the partition is deleted, or its disk has failed."""
        self.is_closed = True
        self.store.abandon()

    @guarded
    def save_topic_id(self, topic_id: bytes) -> None:
        """Write `partition.metadata`. Raises StorageError."""
        path = f"{self.dir}/{names.PARTITION_METADATA}"
        self.disk.replace(path, properties.encode_partition_metadata(topic_id), sync=False)
        self.topic_id = topic_id
