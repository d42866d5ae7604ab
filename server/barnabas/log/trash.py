"""Files and directories that were renamed to go, and when.

The rule: nothing is removed before it is due: whoever still reads it may finish, and a mistake may be undone
by hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import NamedTuple


class Doomed(NamedTuple):
    """A file or directory that may be removed from `due_ms` on."""

    due_ms: int
    path: str
    log_dir: str


class Trash:
    """What is to be removed, the next first."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[Doomed] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, due_ms: int, log_dir: str, paths: Iterable[str]) -> None:
        """Have `paths` removed at `due_ms`."""
        for path in paths:
            heappush(self._heap, Doomed(due_ms, path, log_dir))

    def take_due(self, now_ms: int) -> list[Doomed]:
        """Take out what is due."""
        due = []
        while self._heap and self._heap[0].due_ms <= now_ms:
            due.append(heappop(self._heap))
        return due

    def discard(self, path: str) -> None:
        """Keep a path after all."""
        self._heap = sorted(doomed for doomed in self._heap if doomed.path != path)

    def forget(self, log_dir: str) -> None:
        """Drop what is on a log dir that has failed."""
        self._heap = sorted(doomed for doomed in self._heap if doomed.log_dir != log_dir)
