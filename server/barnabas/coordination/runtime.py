"""Runs pure machines over the partitions of an internal topic: one shard each, its timers, its waiting requests.

The rule: whatever an event decides is appended before anybody hears of it, and every answer waits until all that its
shard has appended is committed. A shard whose append fails no longer agrees with its log, so it is thrown away and
read again at its next use. One that is long to read is read beside everything else, in slices; who asks meanwhile is
told COORDINATOR_LOAD_IN_PROGRESS.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Generic, Protocol, TypeVar

import trio

from barnabas.coordination.journal import Journal
from barnabas.errors import PeerError, RequestError, StorageError
from barnabas.records.batch import NO_PRODUCER_ID
from barnabas.statemachine.decision import Decision, Entry
from barnabas.statemachine.partitioning import partition_for
from barnabas.wire.generated.errors import ErrorCode

log = logging.getLogger(__name__)

COMMIT_TIMEOUT_MS = 5_000
"""How long an answer waits for replicas (Kafka's offsets.commit.timeout.ms)."""
IDLE_SECONDS = 3600.0
SLICE_RECORDS = 500
"""So many records are read before others have their turn: a few milliseconds' worth."""
_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR)
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
_OF_PRODUCER = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE)
_REFUSED = (*_TOO_LARGE, *_OF_PRODUCER)
"""The records were refused, and the log is as it was."""


class Machine(Protocol):
    """What a shard must be able to do."""

    def replay(self, key: bytes, value: bytes | None, *, loading: bool) -> None:
        """Replay a record. Raises PeerError if it cannot be read."""

    def loaded(self, now_ms: int, out: Decision) -> None:
        """All records have been replayed."""

    def expire(self, timer: Hashable, now_ms: int, out: Decision) -> None:
        """A timer that a decision has set has come."""


M = TypeVar("M", bound=Machine)
R = TypeVar("R")
GiveWay = Callable[[], Awaitable[None]]
"""Lets others run if this turn of the event loop has been long enough (`LoopBudget.checkpoint`)."""


async def never() -> None:
    """Give way to nobody: for runtimes that are alone, as in tests."""


@dataclass(slots=True)
class _Timer:
    """When it is due, and for when its one entry in the heap is: never later."""

    due_ms: int
    entry_ms: int


@dataclass(slots=True)
class _Waiter:
    """A request that is answered later, by some event."""

    event: trio.Event = field(default_factory=trio.Event)
    response: Any = None
    failure: int | None = None


@dataclass(slots=True)
class _Shard(Generic[M]):
    """A loaded machine with what waits on it. `end_offset` is after the last record that it has appended."""

    partition: int
    machine: M
    end_offset: int = 0
    waiting: dict[int, _Waiter] = field(default_factory=dict)
    timers: dict[Hashable, _Timer] = field(default_factory=dict)


@dataclass(slots=True)
class _Loading(Generic[M]):
    """A machine that takes up its partition's records. `done` is set when it has all of them, or has failed."""

    machine: M
    entries: Iterator[Entry]
    records: int = 0
    failure: RequestError | None = None
    done: trio.Event = field(default_factory=trio.Event)


class Runtime(Generic[M]):
    """Lifecycle: `run` in a task, for the timers and for answers to others; events at any time after."""

    def __init__(
        self,
        journal: Journal,
        make: Callable[[], M],
        now_ms: Callable[[], int],
        *,
        commit_timeout_ms: int = COMMIT_TIMEOUT_MS,
        give_way: GiveWay = never,
    ) -> None:
        self._journal = journal
        self._give_way = give_way
        self._make = make
        self._now_ms = now_ms
        self._commit_seconds = commit_timeout_ms / 1000
        self._shards: dict[int, _Shard[M]] = {}
        self._loading: dict[int, _Loading[M]] = {}
        self._heap: list[tuple[int, int, _Shard[M], Hashable]] = []
        self._numbers = count(1)
        self._changed = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._partitions = 0

    async def partition_of(self, key: str) -> int:
        """The partition that is responsible for an id; makes the topic if need be. Raises RequestError."""
        if not self._partitions:
            try:
                self._partitions = await self._journal.ensure()
            except RequestError as error:
                raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error
        return self._partition_for(key)

    def _partition_for(self, key: str) -> int:
        return partition_for(key, self._partitions)

    async def machine(self, key: str) -> M:
        """The machine that is responsible for an id, to look at it. Raises RequestError as `perform`."""
        return self._loaded(await self.partition_of(key)).machine

    async def perform(self, key: str, event: Callable[[M, Decision], R]) -> R:
        """Let `event` decide on an id's shard; returns what it returns, once all that it saw is committed.

        Nothing is waited for before the event. Gives way after it, so that a loop of them keeps nobody waiting. Raises the
        RequestError that the event raises, and COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR or
        COORDINATOR_LOAD_IN_PROGRESS.
        """
        try:
            return await self._perform(key, event)
        finally:
            await self._give_way()

    async def _perform(self, key: str, event: Callable[[M, Decision], R]) -> R:
        shard = self._loaded(await self.partition_of(key))
        out = Decision()
        try:
            result = event(shard.machine, out)
        finally:
            self._apply(shard, out)
        await self._committed(shard, shard.end_offset)
        return result

    async def perform_and_wait(self, key: str, event: Callable[[M, Decision, int], None]) -> Any:
        """Let `event` decide with a waiter's number, and wait until some event answers that waiter.

        A caller that is cancelled is forgotten; an answer that comes for it later goes nowhere.
        """
        shard = self._loaded(await self.partition_of(key))
        number, waiter = next(self._numbers), _Waiter()
        shard.waiting[number] = waiter
        out = Decision()
        try:
            try:
                event(shard.machine, out, number)
            finally:
                self._apply(shard, out)
            await waiter.event.wait()
        finally:
            shard.waiting.pop(number, None)
        if waiter.failure is not None:
            raise RequestError(waiter.failure)
        return waiter.response

    async def machines(self) -> list[M]:
        """Every shard's machine, with all of its state committed; none while there is no such topic.

        Raises RequestError as `perform`: a part of them is not what was asked for.
        """
        shards = [self._loaded(partition) for partition in range(self._journal.partition_count())]
        for shard in shards:
            await self._committed(shard, shard.end_offset)
        return [shard.machine for shard in shards]

    async def perform_in_slices(
        self, events_of: Callable[[M], Iterable[Callable[[M, Decision], Any]]]
    ) -> None:
        """Let events decide on each shard, once it is loaded; others may run between two of them.

        `events_of` may be a generator: it goes on when the event before is committed, and sees what has changed meanwhile.
        What cannot be done on a shard is logged, and the others go on.
        """
        for partition in range(self._journal.partition_count()):
            try:
                shard = await self._when_loaded(partition)
                for event in events_of(shard.machine):
                    if self._shards.get(partition) is not shard:
                        break  # it is read again at its next use, and the next round finds what is left to do
                    out = Decision()
                    event(shard.machine, out)
                    self._apply(shard, out)
                    await self._committed(shard, shard.end_offset)
                    await self._give_way()
            except RequestError as error:
                log.warning("partition %d of the coordinator is left out: %s", partition, error)

    # --- loading --------------------------------------------------------------------------------------------

    def _loaded(self, partition: int) -> _Shard[M]:
        """The shard of a partition; one that is long to read goes on being read in the background.

        Raises COORDINATOR_LOAD_IN_PROGRESS until then, or that it cannot be read.
        """
        shard = self._shards.get(partition)
        if shard is None and partition not in self._loading:
            loading = _Loading(self._make(), self._journal.read(partition))
            shard = self._load_slice(partition, loading)
            while shard is None and self._nursery is None:  # nobody there to go on with it
                shard = self._load_slice(partition, loading)
            if shard is None and self._nursery is not None:
                self._loading[partition] = loading
                self._nursery.start_soon(self._load_rest, partition, loading)
        if shard is None:
            raise RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"partition {partition} is being read")
        return shard

    async def _when_loaded(self, partition: int) -> _Shard[M]:
        """The same, after a wait. Raises RequestError if it cannot be read."""
        while True:
            try:
                return self._loaded(partition)
            except RequestError as error:
                if error.code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    raise
            loading = self._loading[partition]  # the error says that it is there, and nobody ran since
            await loading.done.wait()
            if loading.failure is not None:
                raise loading.failure

    def _load_slice(self, partition: int, loading: _Loading[M]) -> _Shard[M] | None:
        """Take up some more records; the shard when there are no more, with nothing in between.

        So nothing can be appended that it has not seen. Raises RequestError.
        """
        slice_end = loading.records + SLICE_RECORDS
        try:
            for entry in loading.entries:
                self._replay(partition, loading.machine, entry, loading=True)
                loading.records += max(len(entry.records), 1)
                if loading.records >= slice_end:
                    return None
        except (RequestError, StorageError) as error:
            raise RequestError(_client_code(error), f"partition {partition} cannot be read") from error
        shard = self._shards[partition] = _Shard(partition, loading.machine)
        out = Decision()
        loading.machine.loaded(self._now_ms(), out)
        self._apply(shard, out)
        return shard

    async def _load_rest(self, partition: int, loading: _Loading[M]) -> None:
        began_ms = self._now_ms()
        try:
            while loading.failure is None and self._load_slice(partition, loading) is None:
                await trio.lowlevel.checkpoint()
            if loading.failure is None:
                log.info(
                    "%s: %d records of partition %d were read in %d ms",
                    type(self).__name__, loading.records, partition, self._now_ms() - began_ms,
                )  # fmt: skip
        except RequestError as error:
            loading.failure = error
            log.error("%s: %s; it is tried again when it is asked for", type(self).__name__, error)
        finally:
            if self._loading.get(partition) is loading:
                del self._loading[partition]
            loading.done.set()

    def unload(self) -> None:
        """The internal topic was deleted: forget all that was read from it. It is made again when it is next needed.

        Requests that wait are answered with NOT_COORDINATOR, upon which clients look for their coordinator again.
        """
        if self._shards or self._loading:
            log.warning(
                "%s: the internal topic was deleted, and all that was in it is forgotten", type(self).__name__
            )
        self._partitions = 0
        for shard in tuple(self._shards.values()):
            self._discard(shard)
        for loading in self._loading.values():
            loading.failure = RequestError(ErrorCode.NOT_COORDINATOR, "the internal topic was deleted")
        self._loading.clear()

    def _replay(self, partition: int, machine: M, entry: Entry, *, loading: bool) -> None:
        """Hand what is in the log to the machine; what it cannot read is left out."""
        for key, value in entry.records:
            try:
                machine.replay(key, value, loading=loading)
            except PeerError as error:
                log.warning("a record of the coordinator's partition %d is skipped: %s", partition, error)

    def _discard(self, shard: _Shard[M]) -> None:
        """Forget a shard; its waiters are told to look for their coordinator again."""
        if self._shards.get(shard.partition) is shard:
            del self._shards[shard.partition]
        shard.timers.clear()
        for waiter in shard.waiting.values():
            waiter.failure = ErrorCode.NOT_COORDINATOR
            waiter.event.set()

    # --- deciding -------------------------------------------------------------------------------------------

    def _apply(self, shard: _Shard[M], out: Decision) -> None:
        """Append and take up what was decided; the answers to waiters follow once it is committed."""
        if out.records:
            self._append(shard, out)
        self._set_timers(shard, out)
        if out.effects:
            assert self._nursery is not None, "effects are for a runtime that runs"
            self._nursery.start_soon(self._take_effect_when_committed, shard, shard.end_offset, out)
        if not out.replies:
            return
        if self._nursery is None or not shard.end_offset:
            # Nothing to wait for, or nobody who could: before `run` there are no requests.
            self._answer(shard, out)
        else:
            # In a task of its own: whoever has caused this may go away, and the others must still be answered.
            self._nursery.start_soon(self._answer_when_committed, shard, shard.end_offset, out)

    def _append(self, shard: _Shard[M], out: Decision) -> None:
        try:
            shard.end_offset = self._journal.append(
                shard.partition, out.records, self._now_ms(), out.producer
            )
        except (RequestError, StorageError) as error:
            log.error("the coordinator's partition %d cannot be written: %s", shard.partition, error)
            # What only adds records has changed nothing yet, so that one request too large disturbs nobody else.
            harmless = not (out.replies or out.timers or out.effects)
            if not harmless or not (isinstance(error, RequestError) and error.code in _REFUSED):
                self._discard(shard)
            raise RequestError(_client_code(error)) from error
        producer_id = out.producer[0] if out.producer else NO_PRODUCER_ID
        self._replay(shard.partition, shard.machine, Entry(out.records, producer_id), loading=False)

    async def _take_effect_when_committed(self, shard: _Shard[M], end_offset: int, out: Decision) -> None:
        try:
            await self._committed(shard, end_offset)
        except RequestError as error:
            log.warning("what the coordinator's partition %d decided waits: %s", shard.partition, error)
            # When the shard is read again it finds what is still to be done.
            self._discard(shard)
            return
        if self._nursery is not None:
            for effect in out.effects:
                self._nursery.start_soon(self.take_effect, effect)

    async def load_all(self) -> None:
        """Load every partition in which there is something: who is gone must be missed, and who comes not wait."""
        for partition in range(self._journal.partition_count()):
            try:
                if not self._journal.is_empty(partition):
                    await self._when_loaded(partition)
            except RequestError as error:
                log.warning("%s: %s", type(self).__name__, error)
            await trio.lowlevel.checkpoint()

    async def take_effect(self, effect: Any) -> None:
        """What a decision wants to happen elsewhere; for coordinators whose machines want something."""
        raise NotImplementedError(effect)

    async def _committed(self, shard: _Shard[M], end_offset: int) -> None:
        """Wait for the high watermark. Raises RequestError as for a client."""
        if not end_offset:
            return
        try:
            with trio.fail_after(self._commit_seconds):
                await self._journal.wait_committed(shard.partition, end_offset)
        except trio.TooSlowError:
            raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "replicas do not follow") from None
        except (RequestError, StorageError) as error:
            self._discard(shard)
            raise RequestError(_client_code(error)) from error

    async def _answer_when_committed(self, shard: _Shard[M], end_offset: int, out: Decision) -> None:
        try:
            await self._committed(shard, end_offset)
        except RequestError as error:
            for number, _ in out.replies:
                waiter = shard.waiting.get(number)
                if waiter is not None:
                    waiter.failure = error.code
                    waiter.event.set()
            return
        self._answer(shard, out)

    def _answer(self, shard: _Shard[M], out: Decision) -> None:
        for number, response in out.replies:
            waiter = shard.waiting.get(number)
            if waiter is not None:
                waiter.response = response
                waiter.event.set()

    # --- timers ---------------------------------------------------------------------------------------------

    def _set_timers(self, shard: _Shard[M], out: Decision) -> None:
        for key, at_ms in out.timers.items():
            if at_ms is None:
                shard.timers.pop(key, None)
                continue
            timer = shard.timers.get(key)
            # One entry per timer is enough: when it comes and the timer was put off, it is pushed again.
            if timer is not None and timer.entry_ms <= at_ms:
                timer.due_ms = at_ms
                continue
            shard.timers[key] = _Timer(at_ms, at_ms)
            self._push(at_ms, shard, key)

    def _push(self, at_ms: int, shard: _Shard[M], key: Hashable) -> None:
        heapq.heappush(self._heap, (at_ms, next(self._numbers), shard, key))
        if self._heap[0][0] == at_ms:
            self._changed.set()

    async def run(self) -> None:
        """Let timers expire and answers go out, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                nursery.start_soon(self.load_all)
                while True:
                    self._changed = trio.Event()
                    self._expire_due()
                    wait_ms = self._heap[0][0] - self._now_ms() if self._heap else None
                    with trio.move_on_after(IDLE_SECONDS if wait_ms is None else max(wait_ms, 1) / 1000):
                        await self._changed.wait()
            finally:
                self._nursery = None

    def _expire_due(self) -> None:
        now_ms = self._now_ms()
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, _, shard, key = heapq.heappop(self._heap)
            timer = shard.timers.get(key)
            if timer is None or timer.entry_ms != at_ms:
                continue  # cancelled, or set again with an entry of its own
            if timer.due_ms > now_ms:
                timer.entry_ms = timer.due_ms
                self._push(timer.due_ms, shard, key)
                continue
            del shard.timers[key]
            out = Decision()
            shard.machine.expire(key, now_ms, out)
            try:
                self._apply(shard, out)
            except RequestError as error:
                log.warning("what the end of %s decided is lost: %s", key, error)


def _client_code(error: RequestError | StorageError) -> int:
    """What a client is told when the internal topic cannot be used, as Kafka translates it."""
    if isinstance(error, StorageError) or error.code in _MOVED:
        return ErrorCode.NOT_COORDINATOR
    if error.code in _TOO_LARGE:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    if error.code in _OF_PRODUCER:
        return error.code
    return ErrorCode.COORDINATOR_NOT_AVAILABLE
