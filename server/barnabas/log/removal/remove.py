"""Removing what has waited long enough, without holding up the thread that owns the logs.

The rule: a `RemovalTask` is made, and its `finish` called, by the thread that owns the logs; `run` may be called in
any. Directories may be renamed or deleted meanwhile: what `run` does not find is judged by `finish`, which knows.
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
    """Files and directories that are due, and what became of them."""

    __slots__ = ("_failures", "_missing", "_removed", "disk", "due", "trash")

    def __init__(self, disk: Disk, trash: Trash, due: list[Doomed]) -> None:
        self.disk = disk
        self.trash = trash
        self.due = due
        self._removed: dict[Doomed, str] = {}  # with the directory in which it was removed
        self._missing: dict[Doomed, tuple[str, OSError]] = {}  # where its directory was not
        self._failures: dict[str, OSError] = {}  # log dir -> the first error there

    def run(self, check_cancelled: Callable[[], object] = bool) -> None:
        """Remove; may take long. What fails is kept for `finish`.

        `check_cancelled` is called before each, and ends it where it raises: what is left is removed by a later start.
        """
        synced: set[str] = set()
        for doomed in self.due:
            check_cancelled()
            if doomed.is_cancelled or doomed.log_dir in self._failures:
                continue
            directory = doomed.directory
            path = f"{directory}/{doomed.name}"
            try:
                if directory not in synced:  # what took its place must last before it goes
                    self.disk.sync_dir(directory)
                    synced.add(directory)
                if doomed.name.endswith(TREES):
                    self.disk.remove_tree(path)
                else:
                    self.disk.remove(path)
            except FileNotFoundError as error:
                self._missing[doomed] = directory, error
            except OSError as error:
                if error.errno not in (ENOTEMPTY, EEXIST):  # a task that was cancelled still wrote there
                    self._failures[doomed.log_dir] = error
            else:
                self._removed[doomed] = directory

    def finish(self) -> int:
        """Return how many are gone; the others are tried again. Raises StorageError, when all is in order again.

        A directory that is not there although this broker has not renamed it is reported as a missing file.
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
        failure = next(iter(self._failures.items()), None)  # what the others met is met again
        if failure is not None:
            raise StorageError(*failure) from failure[1]
        if missing is not None:
            raise missing
        return count
