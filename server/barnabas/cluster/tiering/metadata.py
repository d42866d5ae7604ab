"""The topic `__remote_log_metadata`: what is stored remotely, written by this broker and replayed at its start.

The rule: a state counts once its record is in the log. Before everything was replayed nothing is known, which is another
thing than that there is nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from uuid import UUID

from barnabas.cluster.metadata.creation import NewTopic, create_topics
from barnabas.errors import RequestError
from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import iter_batches
from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from barnabas.tiered.lineage import LineageError, PartitionSegments
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
    from barnabas.cluster.metadata.image import Change, ClusterImage
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.cluster.replicas.replica import Replica
    from barnabas.config.loading import BrokerConfig
    from barnabas.environment import Environment
    from barnabas.serving.loop_budget import LoopBudget

log = logging.getLogger(__name__)

READ_BYTES: Final = 1 << 20


class RemoteMetadata:
    """Segments of all partitions. Lifecycle: `open`, until it succeeds; then `add` and `advance`."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MetadataStore,
        replicas: Replicas,
        budget: LoopBudget,
        environment: Environment,
        broker_id: int,
    ) -> None:
        self._config = config
        self._store = store
        self._replicas = replicas
        self._budget = budget
        self._environment = environment
        self._broker_id = broker_id
        self._partitions: dict[TopicIdPartition, PartitionSegments] = {}
        self.deleting: set[TopicIdPartition] = set()
        """Partitions of which all segments are to be deleted."""
        self.is_ready = False
        """True once all records were replayed."""

    def is_ready_for(self, key: TopicIdPartition) -> bool:  # noqa: ARG002
        """Say whether the records of a partition were replayed."""
        return self.is_ready

    @property
    def partitions(self) -> Mapping[TopicIdPartition, PartitionSegments]:
        """The partitions that have, or had, remote segments."""
        return self._partitions

    def of(self, partition: TopicIdPartition) -> PartitionSegments:
        """Return the segments of a partition."""
        segments = self._partitions.get(partition)
        if segments is None:
            segments = self._partitions[partition] = PartitionSegments()
        return segments

    def _forget(self, partition: TopicIdPartition) -> None:
        segments = self._partitions.get(partition)
        if segments is not None and not len(segments):
            del self._partitions[partition]

    # --- opening ----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Make the topic, if need be, and replay it. Raises RequestError, StorageError: to be tried again."""
        await self._ensure_topic()
        self._partitions.clear()
        self.deleting.clear()
        for index in range(self._partition_count):
            await self._replay(self._replicas.leader(METADATA_TOPIC, index))
        self.is_ready = True

    async def _ensure_topic(self) -> None:
        from barnabas.config.tiered import metadata_topic

        shape = metadata_topic(self._config)
        topic_settings = {
            "cleanup.policy": "delete",
            "min.insync.replicas": str(min(shape.min_isr, len(self._store.image.brokers))),
            "remote.storage.enable": "false",
            "retention.ms": str(shape.retention_ms),
        }
        refused: dict[str, RequestError] = {}

        def decide(image: ClusterImage) -> Iterator[Change | None]:
            refused.clear()
            if METADATA_TOPIC in image.topics:
                return
            topic = NewTopic(
                METADATA_TOPIC,
                new_uuid(self._environment.entropy),
                shape.partitions,
                min(shape.replication_factor, len(image.brokers)),
                settings=topic_settings,
            )
            yield from create_topics(image, self._config, [topic], refused)

        if METADATA_TOPIC not in self._store.image.topics:
            await self._store.change(decide)
        for error in refused.values():
            raise error

    @property
    def _partition_count(self) -> int:
        topic = self._store.image.topics.get(METADATA_TOPIC)
        if topic is None:
            raise RequestError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {METADATA_TOPIC} yet"
            )
        return len(topic.partitions)

    async def _replay(self, replica: Replica) -> None:
        partition_log = replica.log
        offset = partition_log.log_start_offset
        while offset < (end := partition_log.high_watermark):
            data = partition_log.read(offset, max_bytes=READ_BYTES, upper_offset=end).to_bytes()
            start = offset
            for position, header in iter_batches(data):
                if header.next_offset <= offset:
                    continue
                if not header.is_control:
                    for record in iter_any_records(data, position):
                        self._follow(partition_log.name, record.offset, record.value)
                offset = header.next_offset
                await self._budget.checkpoint()
            if offset == start:
                return
            await self._budget.checkpoint()

    def _follow(self, name: str, offset: int, value: bytes | None) -> None:
        try:
            record = decode(value or b"")
            self._apply(record)
        except (MetadataRecordError, LineageError) as error:
            log.error("%s: the record at offset %d is left out: %s", name, offset, error)

    def _apply(self, record: MetadataRecord) -> None:
        if not isinstance(record, PartitionDelete):
            self.of(record.partition).apply(record)
        elif record.state is PartitionDeleteState.FINISHED:
            self.deleting.discard(record.partition)
            self._forget(record.partition)
        else:
            self.deleting.add(record.partition)

    # --- writing ----------------------------------------------------------------------------------------------

    async def add(self, segment: RemoteSegment) -> None:
        """Note that the copy of a segment begins. Raises RequestError, StorageError."""
        await self._append(segment)

    async def advance(
        self, segment: RemoteSegment, state: SegmentState, custom_metadata: bytes | None = None
    ) -> RemoteSegment:
        """Note the next state of a segment, and return it; that of a finished copy is on the medium then.

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
        await self._append(update, is_flushed=state is SegmentState.COPY_FINISHED)
        return replace(
            segment,
            broker_id=update.broker_id,
            event_timestamp=update.event_timestamp,
            state=state,
            custom_metadata=update.custom_metadata,
        )

    async def note_deletion(self, partition: TopicIdPartition, state: PartitionDeleteState) -> None:
        """Note that all segments of a partition are to be deleted, or that they are. Raises RequestError, StorageError."""
        now_ms = self._environment.wall_clock_ms()
        await self._append(PartitionDelete(partition, self._broker_id, now_ms, state))

    async def _append(self, record: MetadataRecord, *, is_flushed: bool = False) -> None:
        index = metadata_partition(record.partition, self._partition_count)
        replica = self._replicas.leader(METADATA_TOPIC, index)
        now_ms = self._environment.wall_clock_ms()
        batch = encode_batch([Record(0, now_ms, None, encode(record), [])])
        result = replica.append_own(bytearray(batch), now_ms=now_ms)
        self._apply(record)
        await replica.wait_committed(result.last_offset + 1)
        if is_flushed:
            # Local segments go when they are stored remotely: a power cut must not take back that they are.
            task = replica.log.begin_flush()
            if task is not None:
                await self._environment.threads.run(task.run)
                task.finish(self._environment.wall_clock_ms())


def new_segment_id(environment: Environment) -> UUID:
    """Return a random id for a segment."""
    return UUID(bytes=new_uuid(environment.entropy))
