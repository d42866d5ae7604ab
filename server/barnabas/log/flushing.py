"""Syncs a log without blocking the thread that owns it.

The rule: the thread that owns the log creates a `FlushTask` and calls its `finish`; `run` may be called in any thread. Only
`finish` moves the recovery point, unless the log was truncated meanwhile.
"""

from __future__ import annotations

from typing import Protocol

from barnabas.errors import StorageError
from barnabas.log.disk import Disk, File
from barnabas.log.errors import in_doubt_after_sync
from barnabas.log.format import names
from barnabas.log.segments import Segments


class FlushedLog(Protocol):
    """The log of a flush."""

    @property
    def log_dir(self) -> str:
        """The log dir that goes offline when a sync fails."""

    @property
    def is_closed(self) -> bool:
        """True if the log's files may be gone because it was closed, deleted or set aside."""

    def flushed(self, task: FlushTask, now_ms: int) -> None:
        """Move the recovery point, unless the log was truncated since the task was created."""


class FlushTask:
    """Files and directories to sync so that everything before `end_offset` survives a power cut.

    `appended_messages` is the number of records appended so far if the whole log is synced, None for a part of it.
    """

    __slots__ = (
        "appended_messages",
        "directories",
        "disk",
        "end_offset",
        "files",
        "generation",
        "leader_epoch",
        "log",
        "missing",
        "paths",
    )

    def __init__(
        self,
        log: FlushedLog,
        end_offset: int,
        generation: int,
        appended_messages: int | None,
        leader_epoch: int,
        disk: Disk,
        files: list[File],
        paths: list[str],
        directories: list[str],
    ) -> None:
        self.log = log
        self.end_offset = end_offset
        self.generation = generation
        self.appended_messages = appended_messages
        self.leader_epoch = leader_epoch
        self.disk = disk
        self.files = files
        self.paths = paths
        self.directories = directories
        self.missing: FileNotFoundError | None = None

    def run(self) -> None:
        """Sync; may take long. Raises StorageError; `finish` decides about missing files."""
        try:
            for file in self.files:
                file.sync()
            for path in self.paths:
                try:
                    self.disk.open(path).sync()
                except FileNotFoundError:
                    continue  # deleted meanwhile
            for directory in self.directories:
                self.disk.sync_dir(directory)
        except FileNotFoundError as error:
            self.missing = error
        except OSError as error:
            raise StorageError(self.log.log_dir, in_doubt_after_sync(error)) from error

    def finish(self, now_ms: int) -> None:
        """Move the recovery point, unless the log was deleted, moved or set aside meanwhile.

        Raises StorageError if its directory is gone and the broker has not removed it.
        """
        if self.missing is None:
            self.log.flushed(self, now_ms)
        elif not self.log.is_closed:
            raise StorageError(self.log.log_dir, self.missing) from self.missing


def unsynced_files(
    store: Segments, recovery_point: int, *, is_whole: bool = True
) -> tuple[list[File], list[str]]:
    """Return the open files and the paths of segments and indexes written since the recovery point. Raises OSError.

    The active segment is included if `is_whole`, its indexes never: recovery would rebuild them.
    """
    active = store.active
    files: list[File] = []
    paths: list[str] = []
    # The segment before the recovery point may have been active then, with unsynced indexes.
    for segment in store.all[store.index_of(recovery_point - 1) : -1]:
        segment.write_indexes()
        files.append(segment.file)
        paths += segment.index_paths()
    if not is_whole:
        return files, paths
    files.append(active.file)
    if active.has_txn_index:
        paths.append(active.path(names.TXN_INDEX))
    return files, paths
