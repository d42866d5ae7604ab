"""Limit on the number of segments with open files, or indexes in memory.

The rule: the pool releases only idle segments (a second-chance queue), and a segment in use need not ask it. Released
files and indexes are opened again when needed.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Protocol

OPEN_SEGMENTS_MAX: Final = 1024


class Releasable(Protocol):
    """A holder of open files and indexes."""

    used: bool

    def release(self) -> None:
        """Release files and indexes."""


class OpenFiles:
    """The segments with open resources, in the order in which they will be asked to release them."""

    __slots__ = ("_queue", "count_max")

    def __init__(self, count_max: int = OPEN_SEGMENTS_MAX) -> None:
        self.count_max = count_max
        # any segment can be removed in constant time
        self._queue: OrderedDict[Releasable, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, segment: Releasable) -> None:
        """Note that a segment has open resources now; other segments may have to release theirs."""
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
        """Remove a segment that has released its resources itself."""
        self._queue.pop(segment, None)
