"""Forcing a log to the medium, without holding up the thread that owns it.

The rule: a `FlushTask` is made, and its `finish` called, by the thread that owns the log; `run` may be called
in any. Only `finish` moves the recovery point, and not if the log was truncated meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.errors import StorageError
from barnabas.log.disk import Disk, File

if TYPE_CHECKING:
    from barnabas.log.partition_log import PartitionLog


@dataclass(frozen=True, slots=True)
class FlushTask:
    """What must be synced so that everything before `end_offset` survives a power cut."""

    partition_log: PartitionLog
    end_offset: int
    generation: int
    message_count: int
    disk: Disk
    files: list[File]
    paths: list[str]
    directories: list[str]

    def run(self) -> None:
        """Sync; may take long. Raises StorageError."""
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
        except FileNotFoundError:
            return  # the whole log was deleted meanwhile
        except OSError as error:
            raise StorageError(self.partition_log.log_dir, error) from error

    def finish(self, now_ms: int) -> None:
        """Move the recovery point."""
        self.partition_log.flushed(self, now_ms)
