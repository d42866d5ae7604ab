"""The shards of a coordinator: one for each partition of the internal topic that this broker leads.

The rule: a shard is loaded when it is first needed, and belongs to one leader epoch. A long partition is read in slices,
beside all other work; meanwhile requests are answered COORDINATOR_LOAD_IN_PROGRESS. A shard that no longer agrees with
its log is unloaded, and another one is read in its place.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, Generic

import trio

from barnabas.cluster.metadata.partitioning import partition_for
from barnabas.coordinators.runtime.errors import client_code
from barnabas.coordinators.runtime.journal import Journal, is_led_in, led_partitions
from barnabas.coordinators.runtime.shard import Checkpoint, M, Replay, Shard, ShardState
from barnabas.coordinators.statemachine.decision import Entry
from barnabas.errors import RequestError, StorageError
from barnabas.records.errors import CorruptRecordsError
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.environment import Threads

log = logging.getLogger(__name__)

READ_AGAIN_SECONDS: Final = 1.0
"""Time after which a shard that disagreed with its log is loaded again."""
SLICE_RECORDS: Final = 500
"""Records read before other tasks may run: a few milliseconds."""
BYTES_PER_RECORD: Final = 100
"""A longer record counts as several: it has many partitions, members or names."""
ANSWERS_PER_TURN: Final = 16
"""Replies of one event released in a turn of the event loop."""
MOVED = "another broker leads the partition, or this one in another epoch"


class Shards(Generic[M]):
    """Loads, finds and unloads shards. While `nursery` is None a partition is read without a pause."""

    def __init__(
        self,
        name: str,
        journal: Journal,
        make: Callable[[], M],
        now_ms: Callable[[], int],
        *,
        replay: Replay[M],
        loaded: Callable[[Shard[M]], object],
        prepare: Callable[[], Awaitable[None]],
        checkpoint: Checkpoint,
        threads: Threads | None = None,
    ) -> None:
        """`name` is used in log lines; `loaded` is called directly after a shard has become active.

        `prepare` is awaited once, before the first shard is created: it imports in a thread the modules that `make` needs.
        """
        self._name = name
        self._journal = journal
        self._make = make
        self._now_ms = now_ms
        self._replay = replay
        self._loaded = loaded
        self._prepare = prepare
        self._is_prepared = False
        self._checkpoint = checkpoint
        self._threads = threads
        self._shards: dict[int, Shard[M]] = {}
        self._reading_again: defaultdict[int, bool] = defaultdict(bool)
        self.nursery: trio.Nursery | None = None
        self.partitions = 0
        """Number of partitions of the internal topic; 0 while unknown."""

    def __iter__(self) -> Iterator[Shard[M]]:
        return iter(tuple(self._shards.values()))

    def get(self, partition: int) -> Shard[M] | None:
        """Return the shard of a partition, in any state; None if it is unloaded."""
        return self._shards.get(partition)

    def get_for(self, key: str) -> Shard[M] | None:
        """Return the shard that is responsible for an id; None if it is unloaded, or the topic does not exist."""
        return self._shards.get(partition_for(key, self.partitions)) if self.partitions else None

    async def partition_of(self, key: str) -> int:
        """Return the partition that is responsible for an id; creates the topic if necessary. Raises RequestError."""
        if not self.partitions:
            await self.prepare()
            try:
                self.partitions = await self._journal.ensure()
            except RequestError as error:
                raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error
        return partition_for(key, self.partitions)

    async def prepare(self) -> None:
        """Prepare for the first shard; later calls return immediately."""
        if not self._is_prepared:
            await self._prepare()
            self._is_prepared = True

    # --- loading --------------------------------------------------------------------------------------------

    def active(self, partition: int) -> Shard[M]:
        """Return the shard of a partition; a long one is read in the background.

        Raises COORDINATOR_LOAD_IN_PROGRESS until it is loaded, or the error of reading it.
        """
        shard = self._shards.get(partition)
        if shard is not None and not self.is_current(shard):
            self.unload(shard, MOVED)
            shard = None
        if shard is None or shard.state is ShardState.FAILED:
            shard = self._begin_loading(partition)
        if shard.state is ShardState.LOADING:
            raise RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"partition {partition} is being read")
        if shard.failure is not None:
            raise shard.failure
        return shard

    async def all_active(self) -> list[Shard[M]]:
        """Return the shards of all partitions that this broker leads. Raises RequestError as `active`."""
        if led_partitions(self._journal):
            await self.prepare()
        return [self.active(partition) for partition in led_partitions(self._journal)]

    def is_current(self, shard: Shard[M]) -> bool:
        """Return whether this broker still leads the partition, in the shard's leader epoch."""
        return is_led_in(self._journal, shard.partition, shard.leader_epoch)

    async def when_active(self, partition: int) -> Shard[M]:
        """Return the shard of a partition when it is loaded. Raises RequestError if it cannot be read."""
        await self.prepare()
        while True:
            try:
                return self.active(partition)
            except RequestError as error:
                if error.code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    raise
            shard = self._shards[partition]  # a fresh result: no other task ran since
            await shard.settled.wait()
            if shard.failure is not None:
                raise shard.failure

    async def load_all(self) -> None:
        """Load every partition with records that this broker leads.

        So absent members are detected, and new requests need not wait.
        """
        for partition in led_partitions(self._journal):
            try:
                if not self._journal.is_empty(partition):
                    await self.when_active(partition)
            except RequestError as error:
                shard = self._shards.get(partition)
                if shard is None or shard.state is not ShardState.DAMAGED:  # logged already
                    log.warning("%s: %s", self._name, error)
            await trio.lowlevel.checkpoint()

    def _begin_loading(self, partition: int) -> Shard[M]:
        """Read a partition, or begin to if it is long. Raises RequestError if it cannot be read."""
        try:
            epoch = self._journal.leader_epoch(partition)
            shard = Shard(partition, epoch, self._make(), self._journal.read(partition))
        except CorruptRecordsError as damage:  # another name: in compiled code a name has one type
            shard = self._shards[partition] = Shard(partition, epoch, self._make(), iter(()))
            self._damaged(shard, damage)
            return shard
        except (RequestError, StorageError) as error:
            raise RequestError(client_code(error), f"partition {partition} cannot be read") from error
        self._shards[partition] = shard
        self._load_slice(shard)
        while shard.state is ShardState.LOADING and self.nursery is None:  # no nursery to continue in
            self._load_slice(shard)
        if shard.state is ShardState.LOADING and self.nursery is not None:
            self.nursery.start_soon(self._load_rest, shard)
        return shard

    def _load_slice(self, shard: Shard[M]) -> None:
        """Replay some more records.

        After the last one the shard becomes active in the same step, so that it has seen all appended records. A shard
        that cannot be read has failed.
        """
        records_left = SLICE_RECORDS
        try:
            for entry in shard.entries:
                size = _size(entry)
                if size > SLICE_RECORDS and self._threads is not None and self.nursery is not None:
                    shard.large_entry = entry
                    return
                self._replay(shard.partition, shard.machine, entry, loading=True)
                shard.records_read += len(entry.records)
                records_left -= size
                if records_left <= 0:
                    return
            # the last records may not be committed yet: replies and effects wait for that
            shard.end_offset = self._journal.end_offset(shard.partition)
            shard.enter(ShardState.ACTIVE)
            self._loaded(shard)
        except CorruptRecordsError as damage:  # another name: in compiled code a name has one type
            self._damaged(shard, damage)
        except (RequestError, StorageError) as error:
            log.error("%s: partition %d cannot be read: %s", self._name, shard.partition, error)
            self._fail(shard, client_code(error))
        except Exception:
            log.exception("%s: partition %d cannot be read", self._name, shard.partition)
            self._fail(shard, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _fail(self, shard: Shard[M], code: int) -> None:
        self._end(shard, RequestError(code, f"partition {shard.partition} cannot be read"), ShardState.FAILED)

    def _damaged(self, shard: Shard[M], error: CorruptRecordsError) -> None:
        """Take a shard out of service until an operator decides on its damaged records.

        The groups or ids of these records are unknown. Without them a group could seem to have no commits.
        """
        log.error(
            "%s: partition %d is out of service, and COORDINATOR_NOT_AVAILABLE is answered for all that it keeps: %s",
            self._name, shard.partition, error.message,
        )  # fmt: skip
        failure = RequestError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"partition {shard.partition} cannot be read"
        )
        self._end(shard, failure, ShardState.DAMAGED)

    async def _load_rest(self, shard: Shard[M]) -> None:
        began_ms = self._now_ms()
        while shard.state is ShardState.LOADING:
            entry, shard.large_entry = shard.large_entry, None
            if entry is None:
                await trio.lowlevel.checkpoint()
            elif not await self._load_large(shard, entry):
                return
            if shard.state is ShardState.LOADING:
                self._load_slice(shard)
        if shard.is_active:
            log.info(
                "%s: %d records of partition %d were read in %d ms",
                self._name, shard.records_read, shard.partition, self._now_ms() - began_ms,
            )  # fmt: skip

    async def _load_large(self, shard: Shard[M], entry: Entry) -> bool:
        """Replay a long batch in a thread, before any event uses the machine; returns whether it could be read."""
        assert self._threads is not None
        try:
            await self._threads.run(lambda: self._replay(shard.partition, shard.machine, entry, loading=True))
        except Exception:
            log.exception("%s: partition %d cannot be read", self._name, shard.partition)
            if shard.state is ShardState.LOADING:
                self._fail(shard, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return False
        shard.records_read += len(entry.records)
        return True

    # --- unloading ------------------------------------------------------------------------------------------

    def unload(self, shard: Shard[M], why: str) -> None:
        """Drop a shard; its waiters are answered NOT_COORDINATOR, and find their coordinator again."""
        if self._shards.get(shard.partition) is shard:
            del self._shards[shard.partition]
        self._end(shard, RequestError(ErrorCode.NOT_COORDINATOR, why))

    def _end(self, shard: Shard[M], failure: RequestError, state: ShardState = ShardState.UNLOADING) -> None:
        """Take a shard out of service; its waiting requests fail, some in each turn of the event loop."""
        shard.unload(failure, state)
        failing = shard.fail_waiting(failure.code)
        for _ in islice(failing, ANSWERS_PER_TURN):
            pass
        if self.nursery is not None:
            self.nursery.start_soon(self.fail_in_turns, failing)
        else:
            for _ in failing:
                pass

    async def fail_in_turns(self, failing: Iterator[None]) -> None:
        """Take the steps of `Shard.fail`, some in each turn of the event loop."""
        for number, _ in enumerate(failing, 1):
            if number % ANSWERS_PER_TURN == 0:
                await trio.lowlevel.checkpoint()
                await self._checkpoint()

    def unload_deleted(self) -> None:
        """Unload all shards: the internal topic was deleted. It is created again at its next use."""
        if self._shards:
            log.warning("%s: the internal topic was deleted, and all its state with it", self._name)
        self.partitions = 0
        for shard in self:
            shard.is_forgotten = True
            self.unload(shard, "the internal topic was deleted")

    def unload_moved(self) -> None:
        """Unload the shards of partitions that moved to another leader or epoch."""
        for shard in self:
            if not self.is_current(shard):
                self.unload(shard, MOVED)

    def read_again(self, shard: Shard[M], why: str) -> None:
        """Unload a shard that no longer agrees with its log, and load another one soon, even without requests.

        The new shard resumes the timers and the ends of prepared transactions.
        """
        self.unload(shard, why)
        if self.nursery is not None and not self._reading_again[shard.partition]:
            self._reading_again[shard.partition] = True
            self.nursery.start_soon(self._load_soon, shard.partition)

    async def _load_soon(self, partition: int) -> None:
        await trio.sleep(READ_AGAIN_SECONDS)
        self._reading_again[partition] = False
        if self.partitions and partition not in self._shards:
            try:
                self.active(partition)
            except RequestError as error:
                if error.code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    log.warning("%s: %s", self._name, error)


def _size(entry: Entry) -> int:
    """Return the number of records in a batch; long records count as several, a marker as 1."""
    size = sum([len(value) for _, value in entry.records if value is not None])
    return max(len(entry.records), size // BYTES_PER_RECORD, 1)
