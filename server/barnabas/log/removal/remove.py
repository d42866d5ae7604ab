"""Removes files that are due without blocking the thread that owns the logs.

The rule: the thread that owns the logs creates a `RemovalTask` and calls its `finish`; `run` may be called in any thread.
Directories may be renamed or deleted meanwhile: `finish` decides about files that `run` does not find.
"""

from __future__ import annotations

from collections.abc import Callable
from errno import EEXIST, ENOTEMPTY

from barnabas.errors import StorageError
from barnabas.log.disk import Disk
from barnabas.log.format.names import DirKind
from barnabas.log.removal.pending import Doomed, Trash

TREES = (f"-{DirKind.DELETE.value}", f"-{DirKind.FUTURE.value}")


class RemovalTask:
    """Files and directories that are due, and the outcome of each."""

    __slots__ = ("_failures", "_missing", "_removed", "disk", "due", "trash")

    def __init__(self, disk: Disk, trash: Trash, due: list[Doomed]) -> None:
        self.disk = disk
        self.trash = trash
        self.due = due
        self._removed: dict[Doomed, str] = {}  # removed files, with their directories at that time
        self._missing: dict[Doomed, tuple[str, OSError]] = {}  # where its directory was not
        self._failures: dict[str, OSError] = {}  # log dir -> the first error there

    def run(self, check_cancelled: Callable[[], object] = bool) -> None:
        """Remove the files; may take long. Failures are kept for `finish`.

        `check_cancelled` is called before each file, and may raise to stop: a later start removes the rest.
        """
        synced: set[str] = set()
        for doomed in self.due:
            check_cancelled()
            if doomed.is_cancelled or doomed.log_dir in self._failures:
                continue
            directory = doomed.directory
            path = f"{directory}/{doomed.name}"
            try:
                if directory not in synced:  # its replacement must be synced before it is removed
                    self.disk.sync_dir(directory)
                    synced.add(directory)
                if doomed.name.endswith(TREES):
                    self.disk.remove_tree(path)
                else:
                    self.disk.remove(path)
            except FileNotFoundError as error:
                self._missing[doomed] = directory, error
            except OSError as error:
                if error.errno not in (ENOTEMPTY, EEXIST):  # a cancelled task still wrote there
                    self._failures[doomed.log_dir] = error
            else:
                self._removed[doomed] = directory

    def finish(self) -> int:
        """Return the number of removed files; the others are tried again.

        Raises StorageError after all entries are updated. A directory that is missing although this broker has not
        renamed it is reported as a missing file.
        """
        count = 0
        missing: StorageError | None = None
        for doomed in self.due:
            if doomed.is_cancelled:
                count += doomed in self._removed
            elif self._removed.get(doomed) == doomed.directory:
                self.trash.removed(doomed)
                count += 1
            elif doomed in self._missing and self._missing[doomed][0] == doomed.directory:
                self.trash.removed(doomed)
                missing = missing or StorageError(doomed.log_dir, self._missing[doomed][1])
            else:
                self.trash.put_back(doomed)
        failure = next(iter(self._failures.items()), None)  # the others would fail in the same way
        if failure is not None:
            raise StorageError(*failure) from failure[1]
        if missing is not None:
            raise missing
        return count
