"""Files and directories that were renamed for deletion, with the times at which they are due.

The rule: nothing is removed before it is due: readers may finish, and a mistake may be undone by hand. Pending files in
a directory follow that directory when it is renamed, and are removed with it when it is deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush


class Doomed:
    """A file or directory that may be removed from `due_ms` on. `directory` changes when that directory is renamed."""

    __slots__ = ("directory", "due_ms", "is_cancelled", "log_dir", "name")

    def __init__(self, due_ms: int, log_dir: str, directory: str, name: str) -> None:
        self.due_ms = due_ms
        self.log_dir = log_dir
        self.directory = directory
        self.name = name
        self.is_cancelled = False  # removed with its directory, or its log dir is offline

    @property
    def path(self) -> str:
        """Current path of the file or directory."""
        return f"{self.directory}/{self.name}"


class Trash:
    """Files and directories to be removed, in order of their times. The thread that owns the logs calls all methods."""

    __slots__ = ("_count", "_heap", "_waiting")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Doomed]] = []
        self._waiting: dict[
            str, dict[str, Doomed]
        ] = {}  # directory -> name -> entry in the heap or in progress
        self._count = 0  # numbers the entries, so that equal times keep their order

    def __len__(self) -> int:
        """Number of entries that are pending or being removed."""
        return sum(map(len, self._waiting.values()))

    def add(self, due_ms: int, log_dir: str, paths: Iterable[str]) -> None:
        """Schedule `paths` for removal at `due_ms`; a pending path gets the new time."""
        for path in paths:
            directory, _, name = path.rpartition("/")
            waiting = self._waiting.setdefault(directory, {})
            if name in waiting:
                waiting[name].is_cancelled = True
            doomed = waiting[name] = Doomed(due_ms, log_dir, directory, name)
            self._push(doomed)

    def _push(self, doomed: Doomed) -> None:
        self._count += 1
        heappush(self._heap, (doomed.due_ms, self._count, doomed))

    def take_due(self, now_ms: int) -> list[Doomed]:
        """Return the files that are due; pass each to `removed` or `put_back` afterwards."""
        due = []
        while self._heap and self._heap[0][0] <= now_ms:
            doomed = heappop(self._heap)[2]
            if not doomed.is_cancelled:
                due.append(doomed)
        return due

    def removed(self, doomed: Doomed) -> None:
        """Drop the entry of a removed file."""
        waiting = self._waiting.get(doomed.directory, {})
        if waiting.get(doomed.name) is doomed:
            del waiting[doomed.name]
            if not waiting:
                del self._waiting[doomed.directory]

    def put_back(self, doomed: Doomed) -> None:
        """Schedule the removal again, together with the next files that are due."""
        if not doomed.is_cancelled:
            self._push(doomed)

    def directory_renamed(self, before: str, after: str) -> None:
        """Note the new name of a directory with pending files."""
        waiting = self._waiting.pop(before, None)
        if waiting:
            self._waiting[after] = waiting
            for doomed in waiting.values():
                doomed.directory = after

    def directory_deleted(self, directory: str) -> None:
        """Drop the pending files in a directory that will be removed as a whole."""
        for doomed in self._waiting.pop(directory, {}).values():
            doomed.is_cancelled = True

    def forget(self, log_dir: str) -> None:
        """Drop the pending files on a failed log dir."""
        for directory, waiting in list(self._waiting.items()):
            for name, doomed in list(waiting.items()):
                if doomed.log_dir == log_dir:
                    doomed.is_cancelled = True
                    del waiting[name]
            if not waiting:
                del self._waiting[directory]
        self._heap = [entry for entry in self._heap if not entry[2].is_cancelled]
