"""The engine of the coordinators: writes and reads on state machines that are kept in the partitions of an internal topic.

A coordinator keeps its state in a log. Its machine, one for each partition (a shard), is a replay of that partition, so a
broker that takes over a partition continues from the log alone. All work on a machine is a write or a read.

A write runs an event. The event reads the machine, and fills a decision: records, replies, timers, effects. The runtime
appends the records as one batch and replays them into the machine immediately, so that the next event sees them; it returns
the result when the high watermark has passed them. An event that raises has decided nothing. A read decides nothing. Its
answer waits for the high watermark like that of a write: no answer contains state that a failure of the leader could undo.

Events of a shard run one after the other and never wait inside, so machines need no locks. An event that is too large for a
turn of the event loop decides in a thread, and the next events of its shard queue up. A timer that is due is an event, too.
Replies and effects follow the commit; where they are many, in slices with checkpoints between them.

A shard belongs to one leader epoch, which is compared before each event: a former leader answers NOT_COORDINATOR. `Shards`
loads and unloads them, `ShardLog` appends to their log, `Answers` and `Timers` do what their names say.
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
"""Longest wait of an answer for replicas (Kafka's offsets.commit.timeout.ms)."""
RETRY_MS: Final = 10
"""Time until a due timer is tried again while its shard is held, or very many timers are being set."""

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
        """`now_ms` is the wall clock, and `steady_ms` the monotonic one, for timers; None for the same.

        `prepare` is awaited once, before the first shard is created: it imports in a thread the modules that `make` needs.

        Large events decide in `threads`; None: in the event loop like all others. `is_large_timer` says whether a timer's
        event is large; None: never.
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
        """Return the partition that is responsible for an id; creates the topic if necessary. Raises RequestError."""
        return await self._shards.partition_of(key)

    async def prepare(self) -> None:
        """Prepare for the first shard; later calls return immediately."""
        await self._shards.prepare()

    # --- events ---------------------------------------------------------------------------------------------

    async def write(
        self,
        key: str,
        event: Callable[[M, Decision], R | Refused],
        *,
        is_large: Callable[[M], bool] | None = None,
    ) -> R:
        """Run `event` on the shard of an id; returns its result once all state that it saw is committed.

        The event runs without a wait before it, unless another event has the shard in a thread. Yields afterwards, so
        that a loop of writes does not starve other tasks. If `is_large` is true of the machine, the event decides in a
        thread, and later events of the shard wait for it.

        Raises the RequestError that the event raises, and then drops its decision, or that of the `Refused` that it
        returns, and then commits its decision all the same; and COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR or
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
        # not in a `finally`: compiled code must not wait while it handles an exception
        await self._checkpoint()
        if failure is not None:
            try:
                raise failure
            finally:
                failure = None  # it refers to this frame: a cycle
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
        """Run `event` like `write`; returns the result itself, without a yield, if no wait is needed."""
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
        """Return a result when all that it depends on is committed. Raises RequestError like `write`."""
        await self._log.wait_committed(shard, end_offset)
        if isinstance(result, Refused):
            raise result.error
        return result

    def write_for_reply(
        self, key: str, event: Callable[[M, Decision, int], None], respond: Respond[R]
    ) -> R | Deferred[R]:
        """Run `event` with the number of a waiter, which this or a later event answers.

        Returns the result of `respond` for that answer, or for the RequestError with which the waiter fails; without a
        wait if it is available. The answer to a cancelled request is dropped. Raises RequestError as `write`.
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

    async def read(
        self, key: str, look: Callable[[M], R], *, is_large: Callable[[M], bool] | None = None
    ) -> R:
        """Return the result of `look` at the machine of an id, once all state that it saw is committed.

        If `is_large` is true, `look` runs in a thread. Raises RequestError as `write`.
        """
        return await self.write(key, lambda machine, _: look(machine), is_large=is_large)

    async def read_all(self, look: Callable[[M], Iterable[R]]) -> list[R]:
        """Collect the items that `look` yields for each shard that this broker leads, once all of them are committed.

        Yields to other tasks between two items. Raises RequestError like `write` if one of the shards fails.
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

        Raises RequestError like `write` if one of the shards fails.
        """
        shards = await self._shards.all_active()
        for shard in shards:
            await self._log.wait_committed(shard, shard.end_offset)
        return [shard.machine for shard in shards]

    async def write_all(
        self, events_of: Callable[[M], Iterable[Callable[[M, Decision], Any] | Large]]
    ) -> None:
        """Run events on each shard, once it is loaded; yields between two of them.

        `events_of` may be a generator: it resumes when the event before is committed, and sees the changes meanwhile.
        A failure on a shard is logged, and does not stop the events of others.
        """
        for partition in led_partitions(self._journal):
            try:
                shard = await self._when_free(await self._shards.when_active(partition))
                for event in events_of(shard.machine):
                    if not shard.is_active:
                        break  # it is read again at its next use, and the next round finds the remaining work
                    if isinstance(event, Large):
                        await self._decide_aside(shard, event.event)
                    else:
                        self._decide(shard, event)
                    await self._log.wait_committed(shard, shard.end_offset)
                    await self._checkpoint()
                    if shard.is_held:
                        await self._when_free(shard)
            except RequestError as error:
                log.warning("%s: skipping partition %d: %s", type(self).__name__, partition, error)
            except Exception:
                log.exception("%s: skipping partition %d", type(self).__name__, partition)

    # --- the life of a shard --------------------------------------------------------------------------------

    async def load_all(self) -> None:
        """Load every partition with records that this broker leads."""
        await self._shards.load_all()

    def unload(self) -> None:
        """Unload all shards, as the internal topic was deleted: waiting requests are answered NOT_COORDINATOR."""
        self._shards.unload_deleted()

    def leadership_changed(self) -> None:
        """Unload the shards of partitions that moved to another leader or epoch, and load those led here now."""
        self._shards.unload_moved()
        if self._nursery is not None:
            self._nursery.start_soon(self.load_all)

    def _begin_service(self, shard: Shard[M]) -> None:
        self._decide(shard, lambda machine, out: machine.loaded(self._now_ms(), out))

    # --- deciding -------------------------------------------------------------------------------------------

    def _decide(self, shard: Shard[M], event: Callable[[M, Decision], R]) -> R:
        """Run an event, and append its decision. An event that raises has decided nothing.

        Raises the errors of the event, and RequestError if the decision cannot be appended.
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
        """Read a shard again if an event has failed, rather than been refused, after it had changed the machine."""
        if out.is_ahead and not isinstance(error, RequestError):
            self._shards.read_again(shard, "an event failed halfway")

    async def _when_free(self, shard: Shard[M]) -> Shard[M]:
        """Return the shard, or its replacement, when no large event holds it. Raises RequestError."""
        while shard.is_held:
            await shard.when_free()
            shard = self._shards.active(shard.partition)
        return shard

    async def _decide_aside(self, shard: Shard[M], event: Callable[[M, Decision], R]) -> R:
        """Decide like `_decide`, with the machine in a thread; later events of the shard wait meanwhile."""
        threads = self._threads
        if threads is None:
            return self._decide(shard, event)
        out = Decision()
        # the caller may be cancelled; appended records must reach the machine all the same
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
        """Raise RequestError if a shard may not decide any longer."""
        if not shard.is_active or not self._shards.is_current(shard):
            raise shard.failure or RequestError(
                ErrorCode.NOT_COORDINATOR, "leadership of the partition is lost"
            )

    def _apply(self, shard: Shard[M], out: Decision) -> None:
        """Append and replay a decision; the replies to waiters follow once it is committed."""
        if out.records:
            self._log.append(shard, out)
        self._follow_up(shard, out)

    def _follow_up(self, shard: Shard[M], out: Decision) -> None:
        """Set the timers of an appended decision; effects and replies follow once it is committed."""
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
        """Replay a batch into the machine; skips records that no coordinator can have written."""
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
            log.warning(
                "effects in partition %d are delayed until it is read again: %s", shard.partition, error
            )
            # when the shard is read again it finds the remaining work
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
        """Carry out an effect of a decision of `shard`; overridden by coordinators with such effects."""
        raise NotImplementedError(effect)

    async def write_on(
        self,
        shard: Shard[M],
        event: Callable[[M, Decision], R],
        *,
        is_large: Callable[[M], bool] | None = None,
    ) -> R:
        """Run `event` on this shard like `write`. Raises RequestError if it is no longer in service."""
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
        """Run an event like `write_on`, without a wait for the commit: later answers of the shard wait for it."""
        if shard.is_held:
            await shard.when_free()
        self._check_in_service(shard)
        if is_large is not None and is_large(shard.machine):
            return await self._decide_aside(shard, event)
        return self._decide(shard, event)

    # --- timers ---------------------------------------------------------------------------------------------

    def postpone(self, kinds: Collection[str], ms: int) -> None:
        """Postpone all timers by `ms` that have keys beginning with one of `kinds`."""
        for shard in self._shards:
            self._timers.postpone(shard, kinds, ms)

    def end_timer(self, key: Hashable) -> bool:
        """End a timer now; false if no shard has set it."""
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
        """Expire timers and send replies, until cancelled."""
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
        """Log that a timer's event has failed; set the timer again if the event could not be appended."""
        if not isinstance(error, RequestError):
            log.error("%s: timer %s failed", type(self).__name__, key, exc_info=error)
            return
        log.warning("timer %s is retried: %s", key, error)
        if shard.is_active:
            self._timers.set_decided(shard, {key: now_ms + int(READ_AGAIN_SECONDS * 1000)})
