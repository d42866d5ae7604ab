"""Renames the directories of deleted logs without blocking the thread that owns the logs.

The rule: a `Deletion` is begun, when the logs are no longer served, and finished by the thread that owns the logs
(`LogManager`); `run` may be called in any thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from barnabas.errors import StorageError

if TYPE_CHECKING:
    from barnabas.log.disk import Disk
    from barnabas.log.removal.pending import Trash
    from barnabas.log.workers import Workers

log = logging.getLogger(__name__)

THREADS = 4


class Leaving:
    """A directory that gets an unused name, and is removed from `due_ms` on."""

    __slots__ = ("directory", "due_ms", "error", "log_dir", "renamed")

    def __init__(self, log_dir: str, directory: str, renamed: str, due_ms: int) -> None:
        self.log_dir = log_dir
        self.directory = directory
        self.renamed = renamed
        self.due_ms = due_ms
        self.error: OSError | None = None

    def rename(self, disk: Disk) -> None:
        """Rename the directory; an error is kept."""
        try:
            disk.rename(self.directory, self.renamed)
        except FileNotFoundError:
            log.warning("%s is gone already: it was removed by another program", self.directory)
        except OSError as error:
            self.error = error


class Deletion(NamedTuple):
    """Logs that are deleted together."""

    disk: Disk
    workers: Workers
    trash: Trash
    is_online: Callable[[str], bool]
    directories: Sequence[Leaving]

    def run(self) -> None:
        """Rename all directories."""
        if len(self.directories) < THREADS:
            self._rename(self.directories)
            return
        with self.workers.executor(THREADS) as executor:
            running = [
                executor.submit(self._rename, self.directories[first::THREADS]) for first in range(THREADS)
            ]
            for part in running:
                part.result()

    def _rename(self, directories: Sequence[Leaving]) -> None:
        for leaving in directories:
            leaving.rename(self.disk)

    def finish(self) -> None:
        """Schedule the removal of the renamed directories. Raises StorageError for the first that could not be renamed."""
        failed: Leaving | None = None
        for leaving in self.directories:
            if leaving.error is not None:
                failed = failed or leaving
            elif self.is_online(leaving.log_dir):
                self.trash.add(leaving.due_ms, leaving.log_dir, [leaving.renamed])
        if failed is not None:
            assert failed.error is not None
            raise StorageError(failed.log_dir, failed.error) from failed.error
