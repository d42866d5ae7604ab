"""Reader of the partitions of `__remote_log_metadata`, each in order from its beginning.

The rule: a record counts once it is committed and was read here, whether this broker or another wrote it. Partitions with a
replica here are read from the local log, others from their leader. A partition is read again from its beginning if the
history of its log has changed (an unclean election).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from barnabas.cluster.replicas.offsets_elsewhere import EARLIEST, LATEST
from barnabas.cluster.tiering.metadata_leaders import Position, live_leader
from barnabas.errors import RequestError, StorageError
from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import iter_batches
from barnabas.records.errors import RecordsError
from barnabas.tiered.metadata import METADATA_TOPIC
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.cluster.replicas.replica import Replica
    from barnabas.cluster.tiering.metadata_leaders import MetadataLeaders
    from barnabas.environment import Environment
    from barnabas.serving.loop_budget import LoopBudget
    from barnabas.wire.generated.fetch import FetchResponse

log = logging.getLogger(__name__)

READ_BYTES: Final = 1 << 20
RETRY_SECONDS: Final = 0.2
CATCH_UP_SECONDS: Final = 30.0


class Follower(Protocol):
    """The state that is built from the records."""

    def replayed(self, index: int, offset: int, value: bytes | None) -> None:
        """Apply a record of a partition."""

    def restarted(self, index: int) -> None:
        """Drop the state from all records of a partition, which is read again."""


@dataclass(eq=False, slots=True)
class _Tail:
    """A followed partition, read up to `position`; `epoch` is that of the record before it."""

    index: int
    position: int = 0
    epoch: int = -1
    committed: int = 0
    """Offset up to which records are committed, according to acknowledged appends of this broker."""
    is_ready: bool = False
    failed_at: int = -1
    """The last position at which the log could not be read."""
    moved: trio.Event = field(default_factory=trio.Event)
    replica: Replica | None = None
    """The local replica: its advances are watched."""

    def wake(self) -> None:
        self.moved.set()
        self.moved = trio.Event()


class MetadataLog:
    """Reader that follows partitions of the metadata topic. Lifecycle: `run` in a task, until cancelled.

    Implements `cluster.replicas.ports.Watcher` for the local replicas of these partitions.
    """

    def __init__(
        self,
        store: MetadataStore,
        replicas: Replicas,
        leaders: MetadataLeaders | None,
        budget: LoopBudget,
        environment: Environment,
        broker_id: int,
        follower: Follower,
    ) -> None:
        """`leaders` is None for a single broker."""
        self._store = store
        self._replicas = replicas
        self._leaders = leaders
        self._budget = budget
        self._environment = environment
        self._broker_id = broker_id
        self._follower = follower
        self._tails: dict[int, _Tail] = {}
        self._fetching: set[int] = set()
        """Ids of the brokers with a fetch in progress."""
        self._wake = trio.Event()
        self._nursery: trio.Nursery | None = None

    # --- the partitions that are followed -----------------------------------------------------------------------

    def follow(self, index: int) -> None:
        """Start to follow a partition."""
        if index not in self._tails:
            tail = self._tails[index] = _Tail(index)
            if self._nursery is not None:
                self._nursery.start_soon(self._make_ready, tail)
            self.look()

    def retain(self, indexes: Collection[int]) -> None:
        """Follow only these partitions; the state from others is dropped."""
        for index in [index for index in self._tails if index not in indexes]:
            tail = self._tails.pop(index)
            self._watch(tail, None)
            tail.wake()
            self._follower.restarted(index)

    def is_ready(self, index: int) -> bool:
        """Return whether a partition was read up to the end that it had when it began to be followed."""
        tail = self._tails.get(index)
        return tail is not None and tail.is_ready

    @property
    def is_all_ready(self) -> bool:
        """True if all followed partitions are ready."""
        return all(tail.is_ready for tail in self._tails.values())

    def look(self) -> None:
        """Check all partitions again: leaders or replicas may have changed."""
        self._wake.set()

    def partition_advanced(self, replica: Replica) -> None:  # noqa: ARG002
        """Continue reading."""
        self._wake.set()

    async def run(self) -> None:
        """Read until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                for tail in self._tails.values():
                    nursery.start_soon(self._make_ready, tail)
                while True:
                    self._wake = trio.Event()
                    for tail in tuple(self._tails.values()):
                        await self._read_local(tail)
                    for leader in {*self._elsewhere()} - self._fetching:
                        self._fetching.add(leader)
                        nursery.start_soon(self._fetch_from, leader)
                    await self._wake.wait()
            finally:
                self._nursery = None

    async def _make_ready(self, tail: _Tail) -> None:
        pause_s = RETRY_SECONDS
        while self._tails.get(tail.index) is tail and not tail.is_ready:
            try:
                await self.catch_up(tail.index)
                tail.is_ready = True
                tail.wake()
            except (RequestError, StorageError) as error:
                log.log(
                    logging.WARNING if pause_s > 1 else logging.DEBUG,
                    "%s-%d cannot be read yet: %s", METADATA_TOPIC, tail.index, error,
                )  # fmt: skip
                await trio.sleep(pause_s)
                pause_s = min(2 * pause_s, CATCH_UP_SECONDS)

    async def catch_up(self, index: int) -> None:
        """Wait until all records committed by now were read. Raises RequestError: the caller tries again."""
        tail = self._tails.get(index)
        if tail is None:
            raise RequestError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{METADATA_TOPIC}-{index} is not followed")
        before = tail.position
        end = await self._end_of(index)
        if end < before:
            self._restart(tail)
        with trio.move_on_after(CATCH_UP_SECONDS):
            while tail.position < end and self._tails.get(index) is tail:
                await tail.moved.wait()
        if tail.position < end:
            raise RequestError(
                ErrorCode.REPLICA_NOT_AVAILABLE,
                f"{METADATA_TOPIC}-{index} was read up to offset {tail.position}, and {end} are committed",
            )

    async def wait_ready(self, index: int) -> None:
        """Wait until a followed partition is ready. Raises REPLICA_NOT_AVAILABLE."""
        tail = self._tails.get(index)
        with trio.move_on_after(CATCH_UP_SECONDS):
            while tail is not None and not tail.is_ready and self._tails.get(index) is tail:
                await tail.moved.wait()
        if not self.is_ready(index):
            raise RequestError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{METADATA_TOPIC}-{index} was not read yet")

    async def _end_of(self, index: int) -> int:
        replica = self._replicas.find(METADATA_TOPIC, index)
        if replica is not None and replica.is_leader and not replica.is_high_watermark_behind:
            return replica.log.high_watermark
        if self._leaders is None or self._leaders.leader_of(index) == self._broker_id:
            raise RequestError(ErrorCode.LEADER_NOT_AVAILABLE, f"{METADATA_TOPIC}-{index} has no leader now")
        return await self._leaders.offset(index, LATEST)

    # --- reading ------------------------------------------------------------------------------------------------

    def _local(self, tail: _Tail) -> Replica | None:
        """Return the local replica from which a partition is read, None if it is read from its leader."""
        replica = self._replicas.find(METADATA_TOPIC, tail.index)
        if replica is None or replica.is_offline:
            return None
        return replica if replica.is_leader or replica.log.log_end_offset >= tail.position else None

    def _elsewhere(self) -> Iterator[int]:
        """Yield the leaders of partitions that are not read locally."""
        for tail in self._tails.values():
            if self._leaders is not None and self._local(tail) is None:
                leader = live_leader(self._store.image, tail.index)
                if leader not in (None, self._broker_id):
                    yield leader

    async def _read_local(self, tail: _Tail) -> None:
        replica = self._local(tail)
        self._watch(tail, self._replicas.find(METADATA_TOPIC, tail.index))
        if replica is None:
            return
        partition_log = replica.log
        epoch = partition_log.epochs.epoch_at(tail.position - 1)
        if tail.position > partition_log.log_end_offset or (
            tail.epoch >= 0 and epoch not in (tail.epoch, -1)
        ):
            self._restart(tail)
        if tail.position < partition_log.log_start_offset:
            tail.position, tail.epoch = partition_log.log_start_offset, -1
            tail.wake()
        try:
            while tail.position < (
                end := min(max(partition_log.high_watermark, tail.committed), partition_log.log_end_offset)
            ):
                result = partition_log.read(tail.position, max_bytes=READ_BYTES, upper_offset=end)
                before = tail.position
                await self._replay(tail, result.to_bytes())
                if tail.position == before or self._local(tail) is not replica:
                    return
        except (RequestError, StorageError) as error:
            self._failed(tail, error)

    def _watch(self, tail: _Tail, replica: Replica | None) -> None:
        if tail.replica is not replica:
            if tail.replica is not None:
                tail.replica.subscribers.unsubscribe(self)
            tail.replica = replica
            if replica is not None:
                replica.subscribers.subscribe(self)

    async def _fetch_from(self, leader: int) -> None:
        """Fetch from a leader as long as followed partitions are read from it."""
        assert self._leaders is not None
        try:
            while True:
                tails = {
                    tail.index: tail
                    for tail in self._tails.values()
                    if self._local(tail) is None and live_leader(self._store.image, tail.index) == leader
                }
                if not tails:
                    return
                try:
                    answers = await self._leaders.fetch(
                        leader,
                        {index: Position(tail.position, tail.epoch) for index, tail in tails.items()},
                    )
                except RequestError as error:
                    log.debug("%s cannot be read from broker %d: %s", METADATA_TOPIC, leader, error)
                    await trio.sleep(RETRY_SECONDS)
                    continue
                failures = [
                    index
                    for index, data in answers.items()
                    if index in tails and not await self._take(tails[index], data)
                ]
                if failures or not answers:
                    await trio.sleep(RETRY_SECONDS)
        finally:
            self._fetching.discard(leader)

    async def _take(self, tail: _Tail, data: FetchResponse.PartitionData) -> bool:
        """Process a leader's response; returns False after a failure."""
        assert self._leaders is not None
        if self._tails.get(tail.index) is not tail:
            return True
        if data.diverging_epoch.end_offset >= 0:
            self._restart(tail)
            return True
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            try:
                start = await self._leaders.offset(tail.index, EARLIEST)
            except RequestError as error:
                log.debug("%s-%d: %s", METADATA_TOPIC, tail.index, error)
                return False
            if start <= tail.position:
                self._restart(tail)
            tail.position, tail.epoch = max(tail.position, start), -1
            tail.wake()
            return True
        if data.error_code:
            return False
        try:
            await self._replay(tail, _bytes_of(data.records))
        except RecordsError as error:
            self._failed(tail, error)
            return False
        return True

    @staticmethod
    def _failed(tail: _Tail, error: Exception) -> None:
        if tail.failed_at != tail.position:
            tail.failed_at = tail.position
            log.error(
                "%s-%d cannot be read at offset %d: %s", METADATA_TOPIC, tail.index, tail.position, error
            )

    async def _replay(self, tail: _Tail, data: bytes) -> None:
        """Apply the records from `position` on. Raises RecordsError."""
        for at, header in iter_batches(data):
            if header.next_offset <= tail.position:
                continue
            if not header.is_control:
                for record in iter_any_records(data, at):
                    if record.offset >= tail.position:
                        self._follower.replayed(tail.index, record.offset, record.value)
            tail.position, tail.epoch = header.next_offset, header.leader_epoch
            await self._budget.checkpoint()
        tail.wake()

    def _restart(self, tail: _Tail) -> None:
        log.warning("%s-%d is read again from its beginning: its log has changed", METADATA_TOPIC, tail.index)
        tail.position, tail.epoch, tail.committed = 0, -1, 0
        self._follower.restarted(tail.index)
        if tail.is_ready:
            tail.is_ready = False
            if self._nursery is not None:
                self._nursery.start_soon(self._make_ready, tail)
        self._wake.set()

    # --- writing ------------------------------------------------------------------------------------------------

    async def append(self, index: int, batch: bytearray, *, is_flushed: bool) -> None:
        """Append a batch at the leader, and wait until it is committed. Raises RequestError, StorageError.

        `is_flushed`: also until it is on the medium, if this broker leads the partition.
        """
        if self._leaders is not None and self._leaders.leader_of(index) != self._broker_id:
            end = await self._leaders.append(index, batch) + 1
        else:
            replica = self._replicas.leader(METADATA_TOPIC, index)
            result = replica.append_own(batch, now_ms=self._environment.wall_clock_ms())
            end = result.last_offset + 1
            await replica.wait_committed(end)
            task = replica.log.begin_flush() if is_flushed else None
            if task is not None:
                await self._environment.threads.run(task.run)
                task.finish(self._environment.wall_clock_ms())
        tail = self._tails.get(index)
        if tail is not None:
            tail.committed = max(tail.committed, end)
            self._wake.set()


def _bytes_of(records: Any) -> bytes:
    return bytes(records) if records is not None else b""
