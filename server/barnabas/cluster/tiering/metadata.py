"""Remote segments of all partitions, from the records of `__remote_log_metadata` by all brokers.

The rule: a state counts once its record was read here. Until all records of a partition are read, its segments are unknown,
which differs from no segments.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final
from uuid import UUID

import trio

from barnabas.cluster.replicas.appends_elsewhere import TRANSIENT
from barnabas.cluster.tiering.metadata_leaders import MetadataLeaders
from barnabas.cluster.tiering.metadata_log import MetadataLog
from barnabas.errors import RequestError
from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from barnabas.tiered.lineage import LineageError, PartitionSegments, UnknownSegmentError
from barnabas.tiered.metadata import (
    METADATA_TOPIC,
    MetadataRecord,
    MetadataRecordError,
    PartitionDelete,
    PartitionDeleteState,
    decode,
    encode,
    metadata_partition,
)
from barnabas.tiered.segment import RemoteSegment, SegmentState, SegmentUpdate, TopicIdPartition
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.ids import new_uuid

if TYPE_CHECKING:
    from barnabas.cluster.metadata.peers import Peers
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.cluster.metadata.topic_creation import TopicCreation
    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.environment import Environment
    from barnabas.serving.loop_budget import LoopBudget

log = logging.getLogger(__name__)

WRITE_SECONDS: Final = 120.0
"""Most seconds of attempts to write and read back a record: Kafka's remote.log.metadata.consume.wait.ms."""
RETRY_SECONDS: Final = 0.1
RETRY_SECONDS_MAX: Final = 5.0


@dataclass(eq=False, slots=True)
class _Write:
    """A record that this broker writes; `refusal` is set if it has no effect when it is read here."""

    done: trio.Event = field(default_factory=trio.Event)
    refusal: LineageError | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """An unfinished deletion of a partition: its last record, and when that was read (monotonic, s)."""

    record: PartitionDelete
    read_at: float


class RemoteMetadata:
    """Segments of the followed partitions. Lifecycle: `ensure_topic`, then `run` in a task.

    A metadata partition is followed as a whole, with its records of all partitions.
    """

    def __init__(
        self,
        store: MetadataStore,
        creation: TopicCreation,
        replicas: Replicas,
        peers: Peers | None,
        budget: LoopBudget,
        environment: Environment,
        broker_id: int,
    ) -> None:
        """`peers` is None for a single broker."""
        self._store = store
        self._creation = creation
        self._replicas = replicas
        self._environment = environment
        self._broker_id = broker_id
        self._log = MetadataLog(
            store,
            replicas,
            MetadataLeaders(store, peers) if peers is not None else None,
            budget,
            environment,
            broker_id,
            self,
        )
        self._partitions: dict[TopicIdPartition, PartitionSegments] = {}
        self._writes: dict[bytes, _Write] = {}
        self.deleting: dict[TopicIdPartition, Mark] = {}
        """Partitions for which all segments are being deleted."""
        self.on_mark: Callable[[], None] = lambda: None
        """Called when an entry is added to `deleting`."""
        self.on_restart: Callable[[TopicIdPartition], None] = lambda _: None
        """Called for each partition with dropped records, which are read again."""

    @property
    def partitions(self) -> Mapping[TopicIdPartition, PartitionSegments]:
        """The partitions that have, or had, remote segments."""
        return self._partitions

    def of(self, partition: TopicIdPartition) -> PartitionSegments:
        """Return the segments of a partition, which are complete once it is ready."""
        segments = self._partitions.get(partition)
        if segments is None:
            segments = self._partitions[partition] = PartitionSegments()
        return segments

    # --- following ----------------------------------------------------------------------------------------------

    async def ensure_topic(self) -> None:
        """Create the metadata topic if it is missing. Raises RequestError, StorageError: the caller tries again."""
        await self._creation.ensure(METADATA_TOPIC)

    async def run(self) -> None:
        """Read records until cancelled."""
        await self._log.run()

    def follow(self, partition: TopicIdPartition) -> None:
        """Start to read the records of a partition."""
        count = self._count
        if count:
            self._log.follow(metadata_partition(partition, count))

    def retain(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Read only records of these partitions, and of metadata partitions with a replica here."""
        count = self._count
        if not count:
            return
        indexes = {metadata_partition(partition, count) for partition in partitions}
        indexes.update(
            index for index in range(count) if self._replicas.find(METADATA_TOPIC, index) is not None
        )
        self._log.retain(indexes)
        for index in indexes:
            self._log.follow(index)

    def look(self) -> None:
        """Check the leaders and replicas of the metadata topic again."""
        self._log.look()

    @property
    def is_ready(self) -> bool:
        """True once all records of all followed partitions were read."""
        return bool(self._count) and self._log.is_all_ready

    def is_ready_for(self, partition: TopicIdPartition) -> bool:
        """Return whether all records of a partition were read, up to its end when it began to be followed."""
        count = self._count
        return bool(count) and self._log.is_ready(metadata_partition(partition, count))

    def check_ready(self, partition: TopicIdPartition) -> None:
        """Raise REPLICA_NOT_AVAILABLE, as Kafka, unless the records of a partition were read."""
        if not self.is_ready_for(partition):
            raise RequestError(
                ErrorCode.REPLICA_NOT_AVAILABLE,
                f"what is stored of {partition.topic}-{partition.partition} is not known yet",
            )

    async def catch_up(self, partition: TopicIdPartition) -> None:
        """Wait until all records written by now, by any broker, were read. Raises RequestError: the caller tries again."""
        self.follow(partition)
        index = self._index_of(partition)
        await self._log.wait_ready(index)
        await self._log.catch_up(index)

    @property
    def _count(self) -> int:
        topic = self._store.image.topics.get(METADATA_TOPIC)
        return len(topic.partitions) if topic is not None else 0

    def _index_of(self, partition: TopicIdPartition) -> int:
        count = self._count
        if not count:
            raise RequestError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {METADATA_TOPIC} yet"
            )
        return metadata_partition(partition, count)

    # --- records ------------------------------------------------------------------------------------------------

    def replayed(self, index: int, offset: int, value: bytes | None) -> None:
        """Apply a record of a metadata partition."""
        value = bytes(value or b"")
        write = self._writes.pop(value, None)
        try:
            self._apply(decode(value))
        except MetadataRecordError as error:
            log.error("%s-%d: the record at offset %d is left out: %s", METADATA_TOPIC, index, offset, error)
        except LineageError as error:
            # A lost response had a record written again; or two brokers considered themselves the leader.
            log.info("%s-%d: the record at offset %d has no effect: %s", METADATA_TOPIC, index, offset, error)
            if write is not None:
                write.refusal = error
        if write is not None:
            write.done.set()

    def restarted(self, index: int) -> None:
        """Drop the state from all records of a metadata partition."""
        count = self._count
        for key, segments in tuple(self._partitions.items()):
            if count and metadata_partition(key, count) == index:
                segments.clear()
                self.on_restart(key)
        for key in tuple(self.deleting):
            if count and metadata_partition(key, count) == index:
                del self.deleting[key]

    def _apply(self, record: MetadataRecord) -> None:
        partition = record.partition
        if not isinstance(record, PartitionDelete):
            self.of(partition).apply(record)
            if partition in self.deleting:
                self.forget(partition)
        elif record.state is PartitionDeleteState.FINISHED:
            self.forget(partition)
        elif partition in self._partitions:
            self.deleting[partition] = Mark(record, self._environment.monotonic())
            self.on_mark()

    def forget(self, partition: TopicIdPartition) -> None:
        """Drop a partition of a deleted topic, unless it still has remote segments."""
        segments = self._partitions.get(partition)
        if segments is None or not len(segments):
            self._partitions.pop(partition, None)
            self.deleting.pop(partition, None)

    # --- writing ----------------------------------------------------------------------------------------------

    async def add(self, segment: RemoteSegment) -> None:
        """Record that the copy of a segment begins. Raises RequestError, StorageError."""
        await self._write(segment)

    async def advance(
        self, segment: RemoteSegment, state: SegmentState, custom_metadata: bytes | None = None
    ) -> RemoteSegment:
        """Record the next state of a segment, and return the segment; a finished copy is recorded on the medium.

        Raises RequestError, StorageError.
        """
        update = SegmentUpdate(
            partition=segment.partition,
            segment_id=segment.segment_id,
            broker_id=self._broker_id,
            event_timestamp=self._environment.wall_clock_ms(),
            state=state,
            custom_metadata=custom_metadata if custom_metadata is not None else segment.custom_metadata,
        )
        await self._write(update, is_flushed=state is SegmentState.COPY_FINISHED)
        return replace(
            segment,
            broker_id=update.broker_id,
            event_timestamp=update.event_timestamp,
            state=state,
            custom_metadata=update.custom_metadata,
        )

    async def mark_deletion(self, partition: TopicIdPartition) -> None:
        """Record that all segments of a partition are to be deleted. Raises RequestError, StorageError.

        No record reports the end: after DELETE_PARTITION_FINISHED Kafka's brokers stop reading metadata, of all partitions,
        at the next record of the same partition. A mark without segments has no effect.
        """
        now_ms = self._environment.wall_clock_ms()
        await self._write(PartitionDelete(partition, self._broker_id, now_ms, PartitionDeleteState.MARKED))

    async def _write(self, record: MetadataRecord, *, is_flushed: bool = False) -> None:
        """Write a record, repeatedly if that fails or the response is lost, until it was read here.

        Raises RequestError, also for a record without effect after the earlier records; StorageError.
        """
        index = self._index_of(record.partition)
        self._log.follow(index)
        value = encode(record)
        write = self._writes.setdefault(value, _Write())
        try:
            with trio.move_on_after(WRITE_SECONDS):
                await self._append(index, value, write, is_flushed=is_flushed)
                await write.done.wait()
        finally:
            if self._writes.get(value) is write:
                del self._writes[value]
        if not write.done.is_set():
            raise RequestError(
                ErrorCode.REQUEST_TIMED_OUT, f"a record of {METADATA_TOPIC}-{index} was not written in time"
            )
        if write.refusal is not None:
            raise RefusedRecordError(write.refusal)

    async def _append(self, index: int, value: bytes, write: _Write, *, is_flushed: bool) -> None:
        pause_s = RETRY_SECONDS
        while not write.done.is_set():
            now_ms = self._environment.wall_clock_ms()
            batch = bytearray(encode_batch([Record(0, now_ms, None, value, [])]))
            try:
                await self._log.append(index, batch, is_flushed=is_flushed)
                return
            except RequestError as error:
                if error.code not in TRANSIENT:  # the record may be written twice; the second has no effect
                    raise
                log.debug("%s-%d: written again after: %s", METADATA_TOPIC, index, error)
            with trio.move_on_after(pause_s):
                await write.done.wait()
            pause_s = min(2 * pause_s, RETRY_SECONDS_MAX)


class RefusedRecordError(RequestError):
    """A record was written without effect: the segment has another state by now."""

    def __init__(self, refusal: LineageError) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, str(refusal))
        self.is_gone = isinstance(refusal, UnknownSegmentError)
        """True if the segment no longer exists."""


def new_segment_id(environment: Environment) -> UUID:
    """Return a random id for a segment."""
    return UUID(bytes=new_uuid(environment.entropy))
