"""Timers of all shards of a coordinator, in one heap.

The rule: a timer has one entry in the heap. When that is due and the timer was postponed meanwhile, it is pushed again.
Very many timers are set in slices, and a later decision on one of them prevails.

Decisions have times of the wall clock. The remaining time when they are set counts: a change of the wall clock neither
ends nor prolongs a timer, as in Kafka.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, Generic

import trio

from barnabas.coordinators.runtime.shard import Checkpoint, M, Shard, Timer, TimersToSet

log = logging.getLogger(__name__)

IDLE_SECONDS: Final = 3600.0
TIMERS_PER_TURN: Final = 200
"""Timers set before other tasks may run."""
_Entry = tuple[int, int, Shard[M], Hashable]
"""Due time of the entry, its number, and the shard and key of its timer."""


class Timers(Generic[M]):
    """Due times of timers by shard and key. `name` is used in log lines.

    `wall_ms` is the clock of decisions, `steady_ms` the monotonic one.
    """

    def __init__(
        self, name: str, checkpoint: Checkpoint, *, wall_ms: Callable[[], int], steady_ms: Callable[[], int]
    ) -> None:
        self._name = name
        self._checkpoint = checkpoint
        self._wall_ms = wall_ms
        self._steady_ms = steady_ms
        self._heap: list[_Entry[M]] = []
        self._pushed = 0
        self._changed = trio.Event()

    def set(self, shard: Shard[M], timers: Mapping[Hashable, int | None]) -> None:
        """Set timers of a shard to their times in ms of the wall clock, or cancel them with None."""
        ahead_ms = self._steady_ms() - self._wall_ms()
        for key, at_ms in timers.items():
            if at_ms is None:
                shard.timers.pop(key, None)
                continue
            due_ms = at_ms + ahead_ms
            timer = shard.timers.get(key)
            if timer is not None and timer.entry_ms <= due_ms:
                timer.due_ms = due_ms
                continue
            shard.timers[key] = Timer(due_ms, due_ms)
            self._push(due_ms, shard, key)

    def set_decided(
        self,
        shard: Shard[M],
        timers: Mapping[Hashable, int | None],
        many: Sequence[Iterable[tuple[Hashable, int | None]]] = (),
    ) -> bool:
        """Set the timers of a decision; an entry of `timers` prevails over the same key in `many`.

        Returns whether the caller must start to set the rest: there are very many, and no task sets this shard's yet.
        """
        to_set = shard.timers_to_set
        if not (many or to_set) and len(timers) <= TIMERS_PER_TURN:
            if timers:
                self.set(shard, timers)
            return False
        for waiting in to_set:
            waiting.overruled.update(timers)
        is_in_progress = bool(to_set)
        to_set.extend([TimersToSet(iter(each), set(timers)) for each in many])
        if len(timers) <= TIMERS_PER_TURN:
            self.set(shard, timers)
        else:
            to_set.append(TimersToSet(iter(timers.items()), set()))
        return bool(to_set) and not is_in_progress

    def set_rest(self, shard: Shard[M]) -> None:
        """Set the remaining timers without a pause: before the runtime runs there are no other tasks."""
        while shard.timers_to_set:
            self._set_some(shard)

    async def set_rest_in_slices(self, shard: Shard[M]) -> None:
        """Set the remaining timers of `set_decided`, also of calls meanwhile; yields in between."""
        while shard.timers_to_set:
            if self._set_some(shard):
                await self._checkpoint()

    def _set_some(self, shard: Shard[M]) -> bool:
        """Set the next remaining timers of one decision; returns whether there were any."""
        first = shard.timers_to_set[0]
        try:
            some = dict(islice(first.timers, TIMERS_PER_TURN))
        except Exception:
            log.exception("%s: timers of partition %d cannot be set", self._name, shard.partition)
            some = {}
        if not some:
            shard.timers_to_set.popleft()
            return False
        for key in first.overruled & some.keys():
            del some[key]
        self.set(shard, some)
        return True

    def due(self) -> Iterator[tuple[Shard[M], Hashable]]:
        """Remove and yield the timers that are due, except those that are set meanwhile."""
        now_ms, end = self._steady_ms(), self._pushed
        later: list[_Entry[M]] = []
        try:
            while (timer := self._pop_due(now_ms, end, later)) is not None:
                yield timer
        finally:
            for entry in later:
                heapq.heappush(self._heap, entry)

    def is_due(self) -> bool:
        """Return whether a timer may be due."""
        return bool(self._heap) and self._heap[0][0] <= self._steady_ms()

    def _pop_due(self, now_ms: int, end: int, later: list[_Entry[M]]) -> tuple[Shard[M], Hashable] | None:
        """Remove and return a timer that is due, with an entry before `end`; later entries go to `later`."""
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            entry = heapq.heappop(heap)
            at_ms, number, shard, key = entry
            if number > end:
                later.append(entry)
                continue
            timer = shard.timers.get(key)
            if timer is None or timer.entry_ms != at_ms:
                continue  # cancelled, or set again with a separate entry
            if timer.due_ms > now_ms:
                timer.entry_ms = timer.due_ms
                self._push(timer.due_ms, shard, key)
                continue
            del shard.timers[key]
            return shard, key
        return None

    def postpone(self, shard: Shard[M], kinds: Collection[str], ms: int) -> None:
        """Postpone the timers of a shard by `ms` that have keys beginning with one of `kinds`."""
        for key, timer in shard.timers.items():
            if isinstance(key, tuple) and key[0] in kinds:
                timer.due_ms += ms

    async def wait_due(self) -> None:
        """Wait until the next timer is due, including timers set meanwhile."""
        self._changed = trio.Event()
        wait_ms = self._heap[0][0] - self._steady_ms() if self._heap else None
        with trio.move_on_after(IDLE_SECONDS if wait_ms is None else max(wait_ms, 1) / 1000):
            await self._changed.wait()

    def _push(self, at_ms: int, shard: Shard[M], key: Hashable) -> None:
        self._pushed += 1
        heapq.heappush(self._heap, (at_ms, self._pushed, shard, key))
        if self._heap[0][0] == at_ms:
            self._changed.set()
