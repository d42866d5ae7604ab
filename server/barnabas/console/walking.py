"""Records of several partitions in the order of their times, from the newest or the oldest on, up to a limit.

The rule: each partition is in the order of its offsets, and among the next records of all partitions the one with the
first time is next. No partition is read further than that needs; a log is read forwards, so a walk from the newest record
on reads windows of it, each before the last one.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from barnabas.console.reader import ROWS_BYTES_MAX, Place, Span

if TYPE_CHECKING:
    from barnabas.console.batches import Row
    from barnabas.console.reader import Reader, Scanned

RECORDS_MAX = 20_000
"""Records of a window; the next one is shorter after one that had more, and longer after one that had few."""
SHRINK_FACTOR = 8
PROBLEMS_MAX = 200
"""Batches that could not be looked at after which it ends."""
LANES_MAX = 16
"""Partitions that are looked at together once all have been looked at."""


class Window(NamedTuple):
    """Offsets to search, from and to (not included), by partition."""

    starts: Mapping[Place, int]
    ends: Mapping[Place, int]


class Limits(NamedTuple):
    """Limits of a walk: rows, and searched records; `width` is the number of a partition's records in its first window."""

    rows: int
    records: int
    width: int


@dataclass(slots=True)
class _Lane:
    """A partition: the offsets from `low` up to, not including, `high` are not searched yet."""

    place: Place
    low: int
    high: int
    width: int
    rows: deque[Row] = field(default_factory=deque)
    """Rows waiting for their turn, the next one first."""
    frontier: int | None = None
    """Time of the record that was looked at last; None before the first one."""


class Walk:
    """A walk through a window. Lifecycle: `step` until `is_done`."""

    def __init__(self, reader: Reader, window: Window, limits: Limits, *, is_newest_first: bool) -> None:
        self._reader = reader
        self._window = window
        self._limits = limits
        self._is_newest_first = is_newest_first
        self._lanes = [
            _Lane(place, start, window.ends[place], limits.width)
            for place, start in window.starts.items()
            if start < window.ends[place]
        ]
        self.total = sum(lane.high - lane.low for lane in self._lanes)
        """Offsets of the window."""
        self.returned = 0
        """Rows that steps have returned."""
        self.scanned = 0
        """Records that were looked at."""
        self.problems: list[str] = []
        """Why some records could not be looked at."""
        self.is_cut = False
        """True if there may be more than was given."""
        self.is_too_large = False
        """True if it has ended because of the bytes of its rows."""
        self.is_done = not self._lanes

    @property
    def covered(self) -> int:
        """Number of searched offsets."""
        return self.total - sum(lane.high - lane.low for lane in self._lanes)

    @property
    def rest(self) -> Window:
        """Offsets of the window that were given, or hold nothing to be given."""
        starts, ends = dict(self._window.starts), dict(self._window.ends)
        for lane in self._lanes:
            if self._is_newest_first:
                starts[lane.place] = lane.rows[0].offset + 1 if lane.rows else lane.high
            else:
                ends[lane.place] = lane.rows[0].offset if lane.rows else lane.low
        return Window(starts, ends)

    async def step(self) -> list[Row]:
        """Look at some more, and return the rows that are next. Raises ClientError."""
        scanned = await self._reader.scan({lane.place: self._span(lane) for lane in self._next_lanes()})
        by_place = {lane.place: lane for lane in self._lanes}
        for place, result in scanned.items():
            self._note(by_place[place], result)
        rows = self._merged(is_last=False)
        size = sum(result.size for result in scanned.values())
        size += sum(len(row.content) for lane in self._lanes for row in lane.rows)
        if size > ROWS_BYTES_MAX:
            self.is_too_large = True
            rows += self._merged(is_last=True)
        is_exhausted = not any(lane.rows or lane.low < lane.high for lane in self._lanes)
        is_enough = self.returned >= self._limits.rows or self.scanned >= self._limits.records
        is_enough |= len(self.problems) >= PROBLEMS_MAX
        self.is_done = is_exhausted or is_enough or self.is_too_large
        self.is_cut = not is_exhausted
        return rows

    def flush(self) -> list[Row]:
        """Return the available rows, in their order, without waiting for the rest."""
        self.is_done = True
        return self._merged(is_last=True)

    # --- looking ----------------------------------------------------------------------------------------------

    def _next_lanes(self) -> list[_Lane]:
        """Return the partitions to read: all at first, then those where the next row may precede all others."""
        empty = [lane for lane in self._lanes if not lane.rows and lane.low < lane.high]
        new = [lane for lane in empty if lane.frontier is None]
        return new or heapq.nsmallest(LANES_MAX, empty, key=self._key)

    def _span(self, lane: _Lane) -> Span:
        if self._is_newest_first:  # all of the window, since its last rows come first
            start = max(lane.low, lane.high - lane.width)
            return Span(start, lane.high, 0, self._limits.rows, is_for_last=True)
        return Span(lane.low, lane.high, lane.width, self._limits.rows)

    def _note(self, lane: _Lane, result: Scanned) -> None:
        self.scanned += result.records
        self.problems += result.problems
        rows = result.rows
        if self._is_newest_first:
            if result.at < result.span.end:
                return  # broken off: it is looked at again
            is_trimmed = len(rows) >= self._limits.rows
            lane.high = rows[0].offset if is_trimmed else result.span.start
            lane.rows.extend(reversed(rows))
            lane.frontier = lane.frontier if result.first is None else result.first
        else:
            lane.low = result.at
            lane.rows.extend(rows)
            lane.frontier = lane.frontier if result.last is None else result.last
        if result.records > RECORDS_MAX:
            lane.width = max(lane.width // SHRINK_FACTOR, self._limits.width)
        elif result.records <= RECORDS_MAX // 2:
            lane.width *= 2

    # --- order ------------------------------------------------------------------------------------------------

    def _key(self, lane: _Lane) -> tuple[float, int]:
        """Return the key that orders partitions by their next row, or by a lower bound of it."""
        at = lane.rows[0].timestamp if lane.rows else lane.frontier
        if at is None:
            return float("-inf"), lane.place[1]
        return (-at if self._is_newest_first else at), lane.place[1]

    def _merged(self, *, is_last: bool) -> list[Row]:
        """Return the next rows, as long as no other row can precede them."""
        lanes = [lane for lane in self._lanes if lane.rows or (lane.low < lane.high and not is_last)]
        heap = [(self._key(lane), lane.place[1], lane) for lane in lanes]
        heapq.heapify(heap)
        rows: list[Row] = []
        while heap and self.returned < self._limits.rows:
            lane = heap[0][2]
            if not lane.rows:
                break
            rows.append(lane.rows.popleft())
            self.returned += 1
            if lane.rows or (lane.low < lane.high and not is_last):
                heapq.heapreplace(heap, (self._key(lane), lane.place[1], lane))
            else:
                heapq.heappop(heap)
        return rows
