"""Limit on the segments that have their file open, or their index in memory, at a time.

The rule: a segment that is in use again is asked no question; the pool only takes away what was idle (a
second-chance queue). What it takes away is opened again when needed.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Protocol

OPEN_SEGMENTS_MAX: Final = 1024


class Releasable(Protocol):
    """Something that holds a file."""

    used: bool

    def release(self) -> None:
        """Let files and indexes go."""


class OpenFiles:
    """The segments that hold something, in the order in which they will be asked to release it."""

    __slots__ = ("_queue", "count_max")

    def __init__(self, count_max: int = OPEN_SEGMENTS_MAX) -> None:
        self.count_max = count_max
        self._queue: OrderedDict[Releasable, None] = OrderedDict()  # any of them leaves at once

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, segment: Releasable) -> None:
        """Note that a segment now holds a file; others may have to let theirs go."""
        queue = self._queue
        segment.used = True
        queue[segment] = None
        chances = len(queue)
        while len(queue) > self.count_max:
            oldest, _ = queue.popitem(last=False)
            if oldest.used and chances:
                oldest.used = False
                queue[oldest] = None
                chances -= 1
            else:
                oldest.release()

    def discard(self, segment: Releasable) -> None:
        """Forget a segment that has let go by itself."""
        self._queue.pop(segment, None)
