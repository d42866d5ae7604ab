"""Files and directories that were renamed to go, and when.

The rule: nothing is removed before it is due: a reader of it may finish, and a mistake may be undone
by hand. What waits in a directory follows that directory when it is renamed, and goes with it when it is deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush


class Doomed:
    """A file or directory that may be removed from `due_ms` on. `directory` changes when that one is renamed."""

    __slots__ = ("directory", "due_ms", "is_cancelled", "log_dir", "name")

    def __init__(self, due_ms: int, log_dir: str, directory: str, name: str) -> None:
        self.due_ms = due_ms
        self.log_dir = log_dir
        self.directory = directory
        self.name = name
        self.is_cancelled = False  # it went with its directory, or its log dir is offline

    @property
    def path(self) -> str:
        """Path of the file or directory now."""
        return f"{self.directory}/{self.name}"


class Trash:
    """Files and directories to be removed, the next first. All methods are called by the thread that owns the logs."""

    __slots__ = ("_count", "_heap", "_waiting")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Doomed]] = []
        self._waiting: dict[
            str, dict[str, Doomed]
        ] = {}  # directory -> name -> what is in the heap or in work
        self._count = 0  # numbers the entries, so that equal times keep their order

    def __len__(self) -> int:
        """Number of entries that wait or are being removed."""
        return sum(map(len, self._waiting.values()))

    def add(self, due_ms: int, log_dir: str, paths: Iterable[str]) -> None:
        """Have `paths` removed at `due_ms`; a path that waits already waits until then."""
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
        """Return the files that are due; each is to be handed to `removed` or `put_back`."""
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
        """Try to remove it again with the next that are due."""
        if not doomed.is_cancelled:
            self._push(doomed)

    def directory_renamed(self, before: str, after: str) -> None:
        """Look for what waits in a directory under its new name."""
        waiting = self._waiting.pop(before, None)
        if waiting:
            self._waiting[after] = waiting
            for doomed in waiting.values():
                doomed.directory = after

    def directory_deleted(self, directory: str) -> None:
        """Forget what waits in a directory that is going to be removed as a whole."""
        for doomed in self._waiting.pop(directory, {}).values():
            doomed.is_cancelled = True

    def forget(self, log_dir: str) -> None:
        """Drop what is on a log dir that has failed."""
        for directory, waiting in list(self._waiting.items()):
            for name, doomed in list(waiting.items()):
                if doomed.log_dir == log_dir:
                    doomed.is_cancelled = True
                    del waiting[name]
            if not waiting:
                del self._waiting[directory]
        self._heap = [entry for entry in self._heap if not entry[2].is_cancelled]
