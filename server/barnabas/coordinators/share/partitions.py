"""The share partitions of this broker: loaded at the first fetch, persisted by the share coordinator.

The rule: a share partition lives as long as this broker leads its partition in the same epoch, and no other broker has
initialized its state again. Waiting fetches are woken when records become available or are appended.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import trio

from barnabas.coordinators.share.acknowledgement import Acknowledgement
from barnabas.coordinators.share.counts import ShareCounts, Spread
from barnabas.coordinators.share.dead_letters import DeadLetters, Origin
from barnabas.coordinators.share.partition import SharePartition, Written
from barnabas.coordinators.share.records import UNKNOWN_OFFSET, StateKey
from barnabas.coordinators.share.settings import BY_DURATION, EARLIEST, ShareSettings
from barnabas.coordinators.share.state import StateWrite
from barnabas.errors import RequestError, detached
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.topic_partitions import TopicIdPartition

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.cluster.replicas.replica import Replica
    from barnabas.coordinators.share.dead_letter_queue import DeadLetterQueues
    from barnabas.coordinators.share.ports import ShareStatePort
    from barnabas.serving.step_runner import StepRunner

log = logging.getLogger(__name__)

_FENCED = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH)
_COORDINATOR = (
    ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)  # fmt: skip
IDLE_SECONDS = 3600.0
NEVER_MS = 2**63 - 1


class LoadedPartition:
    """A share partition with its log, and the fetches that wait for its records."""

    __slots__ = (
        "acquired", "burials", "closed", "key", "leader_epoch", "led", "records", "state_epoch", "timed_out", "waiting",
    )  # fmt: skip

    def __init__(
        self, key: StateKey, led: Replica, leader_epoch: int, records: SharePartition, state_epoch: int
    ) -> None:
        """`leader_epoch` is the epoch in which the state was read."""
        self.key = key
        self.led = led
        self.leader_epoch = leader_epoch
        self.records = records
        self.state_epoch = state_epoch
        self.closed = False
        self.waiting: set[trio.Event] = set()
        self.burials: deque[DeadLetters] = deque()
        """Records for the dead letter queue, in order; the first of them are being written."""
        self.acquired = Spread()
        """Sizes of the runs of records that members have acquired."""
        self.timed_out = 0
        """Records with expired locks."""

    @property
    def is_current(self) -> bool:
        """True while this broker leads the partition in the same epoch."""
        return not self.closed and not self.led.closed and self.led.leader_epoch == self.leader_epoch

    def wake(self) -> None:
        """Wake the waiting fetches: records may have become available."""
        for event in self.waiting:
            event.set()


class SharePartitions:
    """All loaded share partitions. Lifecycle: `run` in a task, which expires locks."""

    def __init__(
        self,
        metadata: MetadataStore,
        replicas: Replicas,
        state: ShareStatePort,
        step_runner: StepRunner,
        now_ms: Callable[[], int],
        lock_clock_ms: Callable[[], int],
        defaults: ShareSettings,
        queues: DeadLetterQueues | None = None,
        counts: ShareCounts | None = None,
    ) -> None:
        """`now_ms` is the wall clock; `lock_clock_ms` the monotonic one, which ends locks.

        `queues` are the dead letter queues of groups that have them; None for none.
        """
        self._metadata = metadata
        self._replicas = replicas
        self._state = state
        self._step_runner = step_runner
        self._now_ms = now_ms
        self.lock_clock_ms = lock_clock_ms
        self._defaults = defaults
        self._queues = queues
        self.counts = ShareCounts() if counts is None else counts
        self._loaded: dict[StateKey, LoadedPartition] = {}
        self._loading: dict[StateKey, trio.Event] = {}
        self._times_forgotten = 0
        """Counts the drops of all states: states that are being read meanwhile are read again."""
        self._changed = trio.Event()
        self._wake_ms = NEVER_MS
        self._nursery: trio.Nursery | None = None

    def __iter__(self) -> Iterator[LoadedPartition]:
        """Iterate over the loaded share partitions."""
        return iter(self._loaded.values())

    def settings_of(self, group_id: str) -> ShareSettings:
        """Return a group's present settings."""
        settings = self._defaults.of_group(self._metadata.image, group_id)
        if settings.dead_letter_topic and (self._queues is None or not self._queues.are_on()):
            return replace(settings, dead_letter_topic="")
        return settings

    # --- finding --------------------------------------------------------------------------------------------

    def unload(self) -> None:
        """Drop all states, as the share coordinator has lost its own; they are read again when needed."""
        self._times_forgotten += 1
        for loaded in tuple(self._loaded.values()):
            self._close(loaded)

    def get(self, key: StateKey) -> LoadedPartition | None:
        """Return the share partition if it is loaded and current."""
        loaded = self._loaded.get(key)
        if loaded is not None and not loaded.is_current:
            self._close(loaded)
            return None
        return loaded

    async def load(self, key: StateKey) -> LoadedPartition:
        """Return the share partition, read from the share coordinator if necessary.

        The state is only used if the partition is still led in the same epoch, and no states were dropped meanwhile.
        Raises a RequestError for clients.
        """
        while (loaded := self.get(key)) is None:
            loading = self._loading.get(key)
            if loading is not None:
                await loading.wait()
                continue
            self._loading[key] = trio.Event()
            times_forgotten, began_ms = self._times_forgotten, self.lock_clock_ms()
            try:
                read = await self._read(key)
                self.counts.loads_ms.add(self.lock_clock_ms() - began_ms)
                if times_forgotten == self._times_forgotten:
                    self._loaded[key] = read
                    self._bury_later(read, read.records.unfinished)
            finally:
                self._loading.pop(key).set()
        loaded.records.settings = self.settings_of(key[0])
        return loaded

    async def _read(self, key: StateKey) -> LoadedPartition:
        group_id, topic_id, index = key
        led = self._replicas.leader(self._metadata.image.topic_name(topic_id) or "", index)
        leader_epoch = led.leader_epoch
        try:
            state = await self._state.read_state(key, leader_epoch)
        except RequestError as error:
            raise _as_seen_by_clients(error) from error
        settings = self.settings_of(group_id)
        start = state.start_offset
        if start == UNKNOWN_OFFSET:
            start = await self._reset_offset(led, settings)
        records = SharePartition.restore(settings, start, state.batches)
        return LoadedPartition(key, led, leader_epoch, records, state.state_epoch)

    async def _reset_offset(self, led: Replica, settings: ShareSettings) -> int:
        if settings.reset.kind == EARLIEST:
            return led.log.log_start_offset
        if settings.reset.kind == BY_DURATION:
            timestamp_ms = self._now_ms() - settings.reset.before_ms
            entry = await self._step_runner.run(led.log.timestamp_steps(timestamp_ms))
            if entry is not None and entry.offset < led.log.high_watermark:
                return entry.offset
        return led.log.high_watermark

    def forget_group(self, group_id: str) -> None:
        """Close all partitions of a group; the next use loads them again."""
        self._times_forgotten += 1
        for loaded in [loaded for key, loaded in self._loaded.items() if key[0] == group_id]:
            self._close(loaded)

    def _close(self, loaded: LoadedPartition) -> None:
        loaded.closed = True
        if self._loaded.get(loaded.key) is loaded:
            del self._loaded[loaded.key]
        loaded.wake()

    # --- deciding -------------------------------------------------------------------------------------------

    async def acknowledge(
        self, key: StateKey, member_id: str, acknowledgements: list[Acknowledgement]
    ) -> None:
        """Apply and persist the acknowledgements of a member. Raises a RequestError for clients."""
        loaded = self.get(key)
        if loaded is None:
            raise RequestError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "nothing was fetched from this partition"
            )
        loaded.records.settings = self.settings_of(key[0])
        written = loaded.records.acknowledge(member_id, acknowledgements, self.lock_clock_ms())
        await self._write(loaded, written)
        for each in acknowledgements:
            for first, last, verdict in each.spans():
                self.counts.acknowledged[verdict] += last - first + 1

    async def release(
        self, group_id: str, member_id: str, topic_partitions: Iterable[TopicIdPartition]
    ) -> dict[TopicIdPartition, RequestError | None]:
        """Release the records of a member after its session's end; return the outcome for each partition."""
        results: dict[TopicIdPartition, RequestError | None] = {}
        for topic_id, index in topic_partitions:
            results[topic_id, index] = None
            loaded = self.get((group_id, topic_id, index))
            try:
                if loaded is None:
                    raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                await self._write(loaded, loaded.records.release(member_id))
            except RequestError as error:
                results[topic_id, index] = detached(error)
        return results

    async def _write(self, loaded: LoadedPartition, written: Written) -> None:
        """Persist decided states, which count then. Raises a RequestError for clients."""
        if not written:
            return
        done = False
        try:
            await self._state.write_state(
                loaded.key,
                StateWrite(
                    loaded.state_epoch,
                    loaded.leader_epoch,
                    written.start_offset,
                    written.complete_count,
                    written.batches,
                ),
            )
            done = True
        except RequestError as error:
            seen = _as_seen_by_clients(error)
            if seen.code in (
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                ErrorCode.GROUP_ID_NOT_FOUND,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ):
                self._close(loaded)
            raise seen from error
        finally:
            loaded.records.settle(written, done=done)
            if done or not written.are_decided:
                self._bury_later(loaded, written.dead)
            if not done:  # their locks continue, or have expired meanwhile
                self.lock_ends_at(self.lock_clock_ms())
            loaded.wake()

    def _bury_later(self, loaded: LoadedPartition, dead: Iterable[DeadLetters]) -> None:
        """Start to write records to the dead letter queue and archive them, unless the broker ends."""
        is_idle = not loaded.burials
        loaded.burials.extend(dead)
        if is_idle and loaded.burials and self._nursery is not None:
            self._nursery.start_soon(self._bury, loaded)

    async def _bury(self, loaded: LoadedPartition) -> None:
        """Write archived records to the dead letter queue; if the partition moves, its new leader writes the rest."""
        group_id, topic_id, index = loaded.key
        while loaded.burials and loaded.is_current:
            letters = loaded.burials[0]
            if self._queues is not None:
                name = self._metadata.image.topic_name(topic_id) or loaded.led.topic
                origin = Origin(name, index, group_id)
                await self._queues.write(origin, loaded.led, letters, partial(self.settings_of, group_id))
            if loaded.is_current:
                await self._write_expired(loaded, loaded.records.bury(letters))
            loaded.burials.popleft()

    # --- time -----------------------------------------------------------------------------------------------

    def lock_ends_at(self, due_ms: int) -> None:
        """Note the end of a lock, by `lock_clock_ms`: wake at that time, unless another lock ends earlier."""
        if due_ms < self._wake_ms:
            self._wake_ms = due_ms
            self._changed.set()

    async def run(self) -> None:
        """Expire locks in time, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                while True:
                    self._changed = trio.Event()
                    self._wake_ms = self._expire()
                    wait_seconds = max(self._wake_ms - self.lock_clock_ms(), 1) / 1000
                    with trio.move_on_after(min(wait_seconds, IDLE_SECONDS)):
                        await self._changed.wait()
            finally:
                self._nursery = None

    def _expire(self) -> int:
        """Expire the locks that are due; returns the next due time, NEVER_MS for none."""
        assert self._nursery is not None
        now_ms = self.lock_clock_ms()
        dues = []
        for loaded in tuple(self._loaded.values()):
            if not loaded.is_current:  # deleted, or led elsewhere: its locks end with it
                self._close(loaded)
                continue
            due_ms = loaded.records.lock_due_ms
            if due_ms is not None and due_ms <= now_ms:
                loaded.records.settings = self.settings_of(loaded.key[0])
                written = loaded.records.expire(now_ms)
                loaded.timed_out += sum(batch.last - batch.first + 1 for batch in written.batches)
                self._nursery.start_soon(self._write_expired, loaded, written)
                loaded.wake()
                due_ms = loaded.records.lock_due_ms
            if due_ms is not None:
                dues.append(due_ms)
        return min(dues, default=NEVER_MS)

    async def _write_expired(self, loaded: LoadedPartition, written: Written) -> None:
        try:
            await self._write(loaded, written)
        except RequestError as error:
            if self._metadata.image.topic_name(loaded.key[1]) is None:
                log.info(
                    "locks in %s-%d have ended with the topic, which was deleted",
                    loaded.led.topic,
                    loaded.led.index,
                )
                return
            # the records are available all the same; the next write persists their delivery counts
            log.warning(
                "locks that have ended in %s-%d are not written down: %s",
                loaded.led.topic,
                loaded.led.index,
                error,
            )


def _as_seen_by_clients(error: RequestError) -> RequestError:
    """Return the share coordinator's error in the form that the partition's leader sends to clients."""
    if error.code in _COORDINATOR:
        return RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
    if error.code in _FENCED:
        return RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message)
    if error.code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        return error
    return RequestError(ErrorCode.UNKNOWN_SERVER_ERROR, error.message)
