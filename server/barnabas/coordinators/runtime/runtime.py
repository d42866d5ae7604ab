"""Runs state machines over the partitions of an internal topic: lets them decide, and answers.

The rule: whatever an event decides is appended before anybody hears of it, and every answer waits until all that its
shard has appended is committed. An event that raises has decided nothing. Shards are loaded and unloaded by `Shards`, and
appended to by `ShardLog`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import trio

from barnabas.cluster.metadata.partitioning import partition_for
from barnabas.coordinators.runtime.answers import Answers
from barnabas.coordinators.runtime.journal import Journal, led_partitions
from barnabas.coordinators.runtime.refused import refuse
from barnabas.coordinators.runtime.shard import Checkpoint, M, Shard, no_checkpoint
from barnabas.coordinators.runtime.shard_log import ShardLog
from barnabas.coordinators.runtime.shards import READ_AGAIN_SECONDS, Shards
from barnabas.coordinators.runtime.timers import Timers
from barnabas.coordinators.runtime.waiting import FutureReply, Respond, Waiter
from barnabas.coordinators.statemachine.decision import Decision, Entry, Large, Refused
from barnabas.errors import PeerError, RequestError, detached
from barnabas.serving.deferred import Deferred, resolved
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.environment import Threads

log = logging.getLogger(__name__)

COMMIT_TIMEOUT_MS: Final = 5_000
"""Time that an answer waits for replicas (Kafka's offsets.commit.timeout.ms)."""
RETRY_MS: Final = 10
"""Time that a due timer is put off while very many are being set, as it may be among these, or its shard is held."""

R = TypeVar("R")


class Runtime(Generic[M]):
    """Lifecycle: `run` in a task, for the timers and for answers to others; events at any time after."""

    def __init__(
        self,
        journal: Journal,
        make: Callable[[], M],
        now_ms: Callable[[], int],
        *,
        steady_ms: Callable[[], int] | None = None,
        commit_timeout_ms: int = COMMIT_TIMEOUT_MS,
        checkpoint: Checkpoint = no_checkpoint,
        prepare: Callable[[], Awaitable[None]] = no_checkpoint,
        threads: Threads | None = None,
        is_large_timer: Callable[[M, Hashable], bool] | None = None,
    ) -> None:
        """`now_ms` is the wall clock, and `steady_ms` one for timers that nobody sets; None for the same.

        `prepare` is awaited once, before the first shard is made: it imports in a thread what `make` needs.

        Large events decide in `threads`; without these they do as all others. `is_large_timer` says whether what follows
        from a timer is one; without it none is.
        """
        self._journal = journal
        self._threads = threads
        self._is_large_timer = is_large_timer
        self._checkpoint = checkpoint
        self._now_ms = now_ms
        name = type(self).__name__
        self._shards: Shards[M] = Shards(
            name, journal, make, now_ms,
            replay=self._replay, loaded=self._begin_service, prepare=prepare, checkpoint=checkpoint, threads=threads,
        )  # fmt: skip
        self._log: ShardLog[M] = ShardLog(
            name, journal, now_ms, commit_timeout_ms, replay=self._replay, read_again=self._shards.read_again
        )
        self._timers: Timers[M] = Timers(name, checkpoint, wall_ms=now_ms, steady_ms=steady_ms or now_ms)
        self._answers: Answers[M] = Answers(self._shards, self._log, checkpoint)
        self._numbers = count(1)
        self._nursery: trio.Nursery | None = None

    async def partition_of(self, key: str) -> int:
        """Return the partition that is responsible for an id; makes the topic if need be. Raises RequestError."""
        return await self._shards.partition_of(key)

    async def prepare(self) -> None:
        """Have all that shards need; takes no time but for the first time."""
        await self._shards.prepare()

    # --- events ---------------------------------------------------------------------------------------------

    async def write(
        self,
        key: str,
        event: Callable[[M, Decision], R | Refused],
        *,
        is_large: Callable[[M], bool] | None = None,
    ) -> R:
        """Let `event` decide on an id's shard; returns what it returns, once all that it saw is committed.

        Nothing is waited for before the event, unless another one has the shard in a thread. Gives way after it, so that
        a loop of them keeps nobody waiting. Where `is_large` says so it decides in a thread, and its shard waits.

        Raises the RequestError that the event raises, of which nothing is kept, or that of the `Refused` which it
        returns, whose decision is committed all the same; and COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR or
        COORDINATOR_LOAD_IN_PROGRESS.
        """
        shards = self._shards
        failure: Exception | None = None
        try:
            count = shards.partitions
            shard = shards.active(partition_for(key, count) if count else await shards.partition_of(key))
            if shard.is_held:
                shard = await self._when_free(shard)
            if is_large is not None and is_large(shard.machine):
                result = await self._decide_aside(shard, event)
            else:
                result = self._decide(shard, event)
            if not self._log.is_committed(shard, shard.end_offset):
                await self._log.wait_committed(shard, shard.end_offset)
        except Exception as error:
            failure = error
        # Not as a `finally`: what is compiled must not wait while it handles an exception.
        await self._checkpoint()
        if failure is not None:
            try:
                raise failure
            finally:
                failure = None  # which knows this frame: a cycle
        if isinstance(result, Refused):
            raise result.error
        return result

    def write_nowait(
        self,
        key: str,
        event: Callable[[M, Decision], R | Refused],
        *,
        is_large: Callable[[M], bool] | None = None,
    ) -> R | Deferred[R]:
        """As `write`, without waiting where nothing is to be waited for; it gives way to nobody then."""
        shards = self._shards
        count = shards.partitions
        if not count:
            return Deferred(lambda: self.write(key, event, is_large=is_large))
        shard = shards.active(partition_for(key, count))
        if shard.is_held or (is_large is not None and is_large(shard.machine)):
            return Deferred(lambda: self.write(key, event, is_large=is_large))
        result = self._decide(shard, event)
        if not self._log.is_committed(shard, shard.end_offset):
            return Deferred(partial(self._when_committed, shard, shard.end_offset, result))
        if isinstance(result, Refused):
            raise result.error
        return result

    async def _when_committed(self, shard: Shard[M], end_offset: int, result: R | Refused) -> R:
        """Return a result when all that it was decided upon is committed. Raises RequestError as `write`."""
        await self._log.wait_committed(shard, end_offset)
        if isinstance(result, Refused):
            raise result.error
        return result

    def write_for_reply(
        self, key: str, event: Callable[[M, Decision, int], None], respond: Respond[R]
    ) -> R | Deferred[R]:
        """Let `event` decide with the number of a waiter, which this or a later event answers.

        Returns what `respond` makes of that answer, or of the RequestError with which the waiter fails, without waiting
        where it is there. A reply that is cancelled is dropped when it comes. Raises RequestError as `write`.
        """
        shards = self._shards
        count = shards.partitions
        shard = shards.active(partition_for(key, count)) if count else None
        if shard is None or shard.is_held:
            return Deferred(partial(self._write_for_reply_when_free, key, event, respond))
        return self._begin_reply(shard, event, respond)

    async def _write_for_reply_when_free(
        self, key: str, event: Callable[[M, Decision, int], None], respond: Respond[R]
    ) -> R:
        reply: R | Deferred[R] | None = None
        failure: RequestError | None = None
        try:
            shard = self._shards.active(await self._shards.partition_of(key))
            reply = self._begin_reply(await self._when_free(shard), event, respond)
        except RequestError as error:
            failure = detached(error)
        return await resolved(respond(failure) if failure is not None else reply)  # type: ignore[arg-type]

    def _begin_reply(
        self, shard: Shard[M], event: Callable[[M, Decision, int], None], respond: Respond[R]
    ) -> R | Deferred[R]:
        number, waiter = next(self._numbers), Waiter()
        shard.waiting[number] = waiter
        future = FutureReply(shard.waiting, number, waiter, respond)
        try:
            self._decide(shard, lambda machine, out: event(machine, out, number))
        except BaseException:
            future.cancel()
            raise
        return future.result() if waiter.is_answered else future

    async def read(self, key: str, look: Callable[[M], R]) -> R:
        """Return what `look` returns of an id's machine, once all that it saw is committed.

        Raises RequestError as `write`.
        """
        return await self.write(key, lambda machine, _: look(machine))

    async def read_all(self, look: Callable[[M], Iterable[R]]) -> list[R]:
        """Collect what `look` yields of the machine of each shard that this broker leads, once all of that is committed.

        Others may run between two items. Raises RequestError as `write`:
        a part of them is not what was asked for.
        """
        items: list[R] = []
        for shard in await self._shards.all_active():
            await self._when_free(shard)
            for item in look(shard.machine):
                items.append(item)
                await self._checkpoint()
                if shard.is_held:
                    await self._when_free(shard)
            await self._log.wait_committed(shard, shard.end_offset)
        return items

    async def machines(self) -> list[M]:
        """Return the machine of each shard that this broker leads, with all of its state committed.

        Raises RequestError as `write`: a part of them is not what was asked for.
        """
        shards = await self._shards.all_active()
        for shard in shards:
            await self._log.wait_committed(shard, shard.end_offset)
        return [shard.machine for shard in shards]

    async def write_all(
        self, events_of: Callable[[M], Iterable[Callable[[M, Decision], Any] | Large]]
    ) -> None:
        """Let events decide on each shard, once it is loaded; others may run between two of them.

        `events_of` may be a generator: it goes on when the event before is committed, and sees what has changed meanwhile.
        What cannot be done on a shard is logged, and the others go on.
        """
        for partition in led_partitions(self._journal):
            try:
                shard = await self._when_free(await self._shards.when_active(partition))
                for event in events_of(shard.machine):
                    if not shard.is_active:
                        break  # it is read again at its next use, and the next round finds what is left to do
                    if isinstance(event, Large):
                        await self._decide_aside(shard, event.event)
                    else:
                        self._decide(shard, event)
                    await self._log.wait_committed(shard, shard.end_offset)
                    await self._checkpoint()
                    if shard.is_held:
                        await self._when_free(shard)
            except RequestError as error:
                log.warning("%s: partition %d is left out: %s", type(self).__name__, partition, error)
            except Exception:
                log.exception("%s: partition %d is left out", type(self).__name__, partition)

    # --- the life of a shard --------------------------------------------------------------------------------

    async def load_all(self) -> None:
        """Load every partition that this broker leads and in which there is something."""
        await self._shards.load_all()

    def unload(self) -> None:
        """Unload all shards: the internal topic was deleted. It is made again when it is next needed.

        Requests that wait are answered with NOT_COORDINATOR, upon which clients look for their coordinator again.
        """
        self._shards.unload_deleted()

    def leadership_changed(self) -> None:
        """Unload the shards of partitions that are led elsewhere or in another epoch, and load what is led here now."""
        self._shards.unload_moved()
        if self._nursery is not None:
            self._nursery.start_soon(self.load_all)

    def _begin_service(self, shard: Shard[M]) -> None:
        """Let a shard that is loaded decide on what must follow."""
        self._decide(shard, lambda machine, out: machine.loaded(self._now_ms(), out))

    # --- deciding -------------------------------------------------------------------------------------------

    def _decide(self, shard: Shard[M], event: Callable[[M, Decision], R]) -> R:
        """Let an event decide, and append what it decided. An event that raises has decided nothing.

        Raises what the event raises, and RequestError if it cannot be appended.
        """
        out = Decision()
        try:
            result = event(shard.machine, out)
        except Exception as error:
            self._undo_failed(shard, out, error)
            raise
        self._apply(shard, out)
        return result

    def _undo_failed(self, shard: Shard[M], out: Decision, error: Exception) -> None:
        """Have a shard read again where an event has failed, not refused, after it had changed the machine."""
        if out.is_ahead and not isinstance(error, RequestError):
            self._shards.read_again(shard, "an event failed halfway")

    async def _when_free(self, shard: Shard[M]) -> Shard[M]:
        """Return the shard, or the one in its place, when no large event has it. Raises RequestError as `write`."""
        while shard.is_held:
            await shard.when_free()
            shard = self._shards.active(shard.partition)
        return shard

    async def _decide_aside(self, shard: Shard[M], event: Callable[[M, Decision], R]) -> R:
        """As `_decide`, with the machine in a thread; everybody else who wants the shard waits meanwhile."""
        threads = self._threads
        if threads is None:
            return self._decide(shard, event)
        out = Decision()
        # Whoever asks may go away; what is appended must reach the machine all the same.
        with trio.CancelScope(shield=True), shard.hold():
            try:
                result = await threads.run(lambda: event(shard.machine, out))
            except Exception as error:
                self._undo_failed(shard, out, error)
                raise
            self._check_in_service(shard)
            if out.records:
                await self._log.append_large(shard, out, threads)
                self._check_in_service(shard)
            self._follow_up(shard, out)
        return result

    def _check_in_service(self, shard: Shard[M]) -> None:
        """Raise RequestError where a shard may decide no longer."""
        if not shard.is_active or not self._shards.is_current(shard):
            raise shard.failure or RequestError(
                ErrorCode.NOT_COORDINATOR, "leadership of the partition is lost"
            )

    def _apply(self, shard: Shard[M], out: Decision) -> None:
        """Append and replay what was decided; the answers to waiters follow once it is committed."""
        if out.records:
            self._log.append(shard, out)
        self._follow_up(shard, out)

    def _follow_up(self, shard: Shard[M], out: Decision) -> None:
        """Set the timers of a decision that is appended; effects and answers follow once it is committed."""
        if self._timers.set_decided(shard, out.timers, out.many_timers):
            if self._nursery is None:
                self._timers.set_rest(shard)
            else:
                self._nursery.start_soon(self._timers.set_rest_in_slices, shard)
        if out.effects:
            assert self._nursery is not None, "effects are for a runtime that runs"
            self._nursery.start_soon(self._take_effect_when_committed, shard, shard.end_offset, out)
        if out.replies or out.many_replies:
            self._answers.send(shard, out)

    def _replay(self, partition: int, machine: M, entry: Entry, *, loading: bool) -> None:
        """Hand what is in the log to the machine; what it cannot have written is left out."""
        if entry.committed is not None:
            refuse(self._journal.topic, partition, entry, 0, "no transaction writes to this topic")
        for index, (key, value) in enumerate(entry.records):
            try:
                machine.replay(key, value, loading=loading)
            except PeerError as error:
                refuse(self._journal.topic, partition, entry, index, error)

    async def _take_effect_when_committed(self, shard: Shard[M], end_offset: int, out: Decision) -> None:
        try:
            await self._log.wait_committed(shard, end_offset)
        except RequestError as error:
            log.warning("what the coordinator's partition %d decided waits: %s", shard.partition, error)
            # When the shard is read again it finds what is still to be done.
            self._shards.read_again(shard, "what was decided is not committed")
            return
        if self._nursery is not None:
            for effect in out.effects:
                self._nursery.start_soon(self._take_effect, effect, shard)

    async def _take_effect(self, effect: Any, shard: Shard[M]) -> None:
        try:
            await self.take_effect(effect, shard)
        except Exception:
            log.exception("%s: %r", type(self).__name__, type(effect))

    async def take_effect(self, effect: Any, shard: Shard[M]) -> None:
        """Do what a decision of `shard` wants to happen elsewhere; for coordinators whose machines want something."""
        raise NotImplementedError(effect)

    async def write_on(
        self,
        shard: Shard[M],
        event: Callable[[M, Decision], R],
        *,
        is_large: Callable[[M], bool] | None = None,
    ) -> R:
        """Let `event` decide on a shard that is known, unless it is no longer in service; else as `write`."""
        result = await self.append_on(shard, event, is_large=is_large)
        await self._log.wait_committed(shard, shard.end_offset)
        return result

    async def append_on(
        self,
        shard: Shard[M],
        event: Callable[[M, Decision], R],
        *,
        is_large: Callable[[M], bool] | None = None,
    ) -> R:
        """As `write_on`, without waiting until what was decided is committed: what is answered later waits for that."""
        if shard.is_held:
            await shard.when_free()
        self._check_in_service(shard)
        if is_large is not None and is_large(shard.machine):
            return await self._decide_aside(shard, event)
        return self._decide(shard, event)

    # --- timers ---------------------------------------------------------------------------------------------

    def postpone(self, kinds: Collection[str], ms: int) -> None:
        """Have all timers whose keys begin with one of `kinds` end later by `ms`."""
        for shard in self._shards:
            self._timers.postpone(shard, kinds, ms)

    def end_timer(self, key: Hashable) -> bool:
        """Have the time of a timer be over now; false if no shard has set it."""
        for shard in self._shards:
            if shard.is_active and key in shard.timers:
                del shard.timers[key]
                if shard.is_held:
                    self._timers.set(shard, {key: self._now_ms()})
                else:
                    self._expire(shard, key, self._now_ms())
                return True
        return False

    async def run(self) -> None:
        """Let timers expire and answers go out, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = self._shards.nursery = nursery
            try:
                nursery.start_soon(self.load_all)
                while True:
                    for shard, key in self._timers.due():
                        now_ms = self._now_ms()
                        if shard.timers_to_set or shard.is_held:
                            self._timers.set(shard, {key: now_ms + RETRY_MS})
                        elif self._is_large_timer is not None and self._is_large_timer(shard.machine, key):
                            nursery.start_soon(self._expire_aside, shard, key, now_ms)
                        else:
                            self._expire(shard, key, now_ms)
                        await self._checkpoint()
                    if self._timers.is_due():
                        await trio.lowlevel.checkpoint()
                    else:
                        await self._timers.wait_due()
            finally:
                self._nursery = self._shards.nursery = None

    def _expire(self, shard: Shard[M], key: Hashable, now_ms: int) -> None:
        try:
            self._decide(shard, lambda machine, out: machine.expire(key, now_ms, out))
        except Exception as error:
            self._expire_again(shard, key, now_ms, error)

    async def _expire_aside(self, shard: Shard[M], key: Hashable, now_ms: int) -> None:
        try:
            if shard.is_held:
                await shard.when_free()
            if shard.is_active:
                await self._decide_aside(shard, lambda machine, out: machine.expire(key, now_ms, out))
        except Exception as error:
            self._expire_again(shard, key, now_ms, error)

    def _expire_again(self, shard: Shard[M], key: Hashable, now_ms: int, error: Exception) -> None:
        """Log that what follows from a timer fails; set it once more where nothing was decided."""
        if not isinstance(error, RequestError):
            log.error("%s: the end of %s", type(self).__name__, key, exc_info=error)
            return
        log.warning("what the end of %s decided waits: %s", key, error)
        if shard.is_active:
            self._timers.set_decided(shard, {key: now_ms + int(READ_AGAIN_SECONDS * 1000)})
