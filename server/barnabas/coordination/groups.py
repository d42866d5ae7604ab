"""The group coordinator: shards of groups over the partitions of __consumer_offsets.

The rule: whatever an event decides is appended before anybody hears of it, and answers wait for the high watermark.
A shard whose append fails no longer agrees with its log, so it is thrown away and read again at its next use.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import trio

from barnabas.coordination.journal import Journal
from barnabas.errors import PeerError, RequestError, StorageError
from barnabas.groups.decision import Decision
from barnabas.groups.hashing import partition_for
from barnabas.groups.settings import GroupSettings
from barnabas.groups.shard import GroupShard
from barnabas.wire.generated.errors import ErrorCode

log = logging.getLogger(__name__)

Event = Callable[[GroupShard, Decision], Any]


@dataclass(slots=True)
class _Running:
    """A loaded shard with what waits on it."""

    shard: GroupShard
    waiting: dict[int, _Waiter] = field(default_factory=dict)
    timers: dict[Hashable, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Waiter:
    """A request that is answered later, by some event."""

    event: trio.Event = field(default_factory=trio.Event)
    response: Any = None
    failure: ErrorCode | None = None


class GroupCoordinator:
    """Facade for the handlers. Lifecycle: `run` in a task for the timers; events at any time after."""

    def __init__(self, journal: Journal, settings: GroupSettings, now_ms: Callable[[], int]) -> None:
        self._journal = journal
        self._settings = settings
        self._now_ms = now_ms
        self._shards: dict[int, _Running] = {}
        self._heap: list[tuple[int, int, int, Hashable]] = []
        self._numbers = count(1)
        self._changed = trio.Event()
        self._partitions = 0

    async def partition_of(self, group_id: str) -> int:
        """The partition that is responsible for a group. Raises RequestError."""
        if not self._partitions:
            try:
                self._partitions = await self._journal.ensure()
            except RequestError as error:
                raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error
        return partition_for(group_id, self._partitions)

    async def perform(self, group_id: str, event: Event) -> Any:
        """Let `event` decide on a group's shard; returns what it returns, once what it decided is committed.

        Raises the RequestError that the event raises, with nothing changed by the log.
        """
        partition = await self.partition_of(group_id)
        running = self._loaded(partition)
        out = Decision()
        try:
            result = event(running.shard, out)
        except RequestError:
            await self._settle(partition, running, out)
            raise
        await self._settle(partition, running, out)
        return result

    async def perform_and_wait(
        self, group_id: str, event: Callable[[GroupShard, Decision, int], None]
    ) -> Any:
        """Let `event` decide with a waiter's number, and wait until some event answers that waiter."""
        number, waiter = next(self._numbers), _Waiter()
        partition = await self.partition_of(group_id)
        running = self._loaded(partition)
        running.waiting[number] = waiter
        try:
            await self.perform(group_id, lambda shard, out: event(shard, out, number))
            await waiter.event.wait()
        finally:
            running.waiting.pop(number, None)
        if waiter.failure is not None:
            raise RequestError(waiter.failure)
        return waiter.response

    async def all_shards(self) -> list[GroupShard]:
        """Every shard, loaded."""
        await self.partition_of("")
        return [self._loaded(partition).shard for partition in range(self._partitions)]

    async def perform_on_all(self, event: Event) -> None:
        """Let `event` decide on each shard; on none while no group has ever been."""
        for partition in range(self._journal.partition_count()):
            running = self._loaded(partition)
            out = Decision()
            event(running.shard, out)
            await self._settle(partition, running, out)

    async def forget_topics(self, topics: set[str]) -> None:
        """These topics are deleted: the offsets committed in them go too."""
        await self.perform_on_all(lambda shard, out: shard.forget_topics(topics, out))

    # --- deciding -------------------------------------------------------------------------------------------

    def _loaded(self, partition: int) -> _Running:
        running = self._shards.get(partition)
        if running is not None:
            return running
        running = _Running(GroupShard(self._settings))
        for key, value in self._journal.read(partition):
            try:
                running.shard.replay(key, value, loading=True)
            except PeerError as error:
                log.warning("a record of partition %d of __consumer_offsets is skipped: %s", partition, error)
        self._shards[partition] = running
        out = Decision()
        running.shard.loaded(self._now_ms(), out)
        self._set_timers(partition, running, out)
        return running

    async def _settle(self, partition: int, running: _Running, out: Decision) -> None:
        """Append, take up, and release what was decided."""
        self._set_timers(partition, running, out)
        if out.records:
            try:
                end_offset = self._journal.append(partition, out.records, self._now_ms())
            except (RequestError, StorageError) as error:
                log.error("partition %d of __consumer_offsets cannot be written: %s", partition, error)
                self._discard(partition, running)
                raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE) from error
            for key, value in out.records:
                running.shard.replay(key, value, loading=False)
            await self._journal.wait_committed(partition, end_offset)
        for number, response in out.replies:
            waiter = running.waiting.get(number)
            if waiter is not None:
                waiter.response = response
                waiter.event.set()

    def _discard(self, partition: int, running: _Running) -> None:
        self._shards.pop(partition, None)
        for waiter in running.waiting.values():
            waiter.failure = ErrorCode.NOT_COORDINATOR
            waiter.event.set()

    # --- timers ---------------------------------------------------------------------------------------------

    def _set_timers(self, partition: int, running: _Running, out: Decision) -> None:
        for key, at_ms in out.timers.items():
            if at_ms is None:
                running.timers.pop(key, None)
                continue
            earlier = running.timers.get(key)
            running.timers[key] = at_ms
            # One entry of the heap per timer is enough: when it comes and the timer was put off, it is pushed again.
            if earlier is None or at_ms < earlier:
                heapq.heappush(self._heap, (at_ms, next(self._numbers), partition, key))
                if self._heap[0][0] == at_ms:
                    self._changed.set()
        out.timers.clear()

    async def run(self) -> None:
        """Let timers expire, until cancelled."""
        while True:
            self._changed = trio.Event()
            await self._expire_due()
            seconds = max(self._heap[0][0] - self._now_ms(), 1) / 1000 if self._heap else 3600.0
            with trio.move_on_after(seconds):
                await self._changed.wait()

    async def _expire_due(self) -> None:
        while self._heap and self._heap[0][0] <= self._now_ms():
            at_ms, _, partition, key = heapq.heappop(self._heap)
            running = self._shards.get(partition)
            due_ms = None if running is None else running.timers.get(key)
            if running is None or due_ms is None:
                continue
            if due_ms > at_ms:
                heapq.heappush(self._heap, (due_ms, next(self._numbers), partition, key))
                continue
            del running.timers[key]
            out = Decision()
            running.shard.expire(key, self._now_ms(), out)
            try:
                await self._settle(partition, running, out)
            except RequestError as error:
                log.warning("what the end of %s decided is lost: %s", key, error)
