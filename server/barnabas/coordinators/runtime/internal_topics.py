"""The journal of a coordinator, on a partitioned internal topic of this broker's log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.cluster.metadata.topic_creation import TopicCreation
    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.coordinators.statemachine.decision import Entry


class InternalTopic:
    """Implements `coordination.journal.Journal`."""

    def __init__(
        self, topic: str, *, metadata: MetadataStore, replicas: Replicas, creation: TopicCreation
    ) -> None:
        self.topic = topic
        self._metadata = metadata
        self._replicas = replicas
        self._creation = creation

    async def ensure(self) -> int:
        """Create the topic if necessary; returns the number of its partitions."""
        await self._creation.ensure(self.topic)
        return self.partition_count()

    def leader_epoch(self, partition: int) -> int:
        """The leader epoch of a partition."""
        return self._replicas.leader(self.topic, partition).leader_epoch

    def partition_count(self) -> int:
        """The number of its partitions, 0 if the topic does not exist."""
        info = self._metadata.image.topics.get(self.topic)
        return len(info.partitions) if info else 0

    def is_empty(self, partition: int) -> bool:
        """Return whether a partition has no records to read."""
        log = self._replicas.leader(self.topic, partition).log
        return log.log_start_offset == log.log_end_offset

    def end_offset(self, partition: int) -> int:
        """The offset after the last record of a partition."""
        return self._replicas.leader(self.topic, partition).log.log_end_offset

    def append(
        self,
        partition: int,
        records: Sequence[tuple[bytes, bytes | None]],
        now_ms: int,
        producer: tuple[int, int] | None = None,
    ) -> int:
        """Append records as one batch; returns the offset after them."""
        from barnabas.coordinators.runtime.entries import batch_of  # imported with the first shard

        batch = batch_of(records, now_ms, producer)
        led = self._replicas.leader(self.topic, partition)
        return led.append_own(batch, now_ms=now_ms).last_offset + 1

    def is_committed(self, partition: int, end_offset: int) -> bool:
        """Return whether the high watermark of a partition that is led here has reached `end_offset`."""
        replica = self._replicas.find(self.topic, partition)
        return replica is not None and not replica.closed and replica.log.high_watermark >= end_offset

    async def wait_committed(self, partition: int, end_offset: int) -> None:
        """Wait for the high watermark."""
        replica = self._replicas.leader(self.topic, partition)
        if replica.log.high_watermark < end_offset:
            await replica.wait_committed(end_offset)

    def delete_before(self, partition: int, offset: int) -> None:
        """Delete the records of a partition before `offset`."""
        self._replicas.leader(self.topic, partition).delete_records_before(offset)

    def read(self, partition: int) -> Iterator[Entry]:
        """Yield all batches of a partition, oldest first, up to its end at that time."""
        from barnabas.coordinators.runtime.entries import check_whole, read_entries

        partition_log = self._replicas.leader(self.topic, partition).log
        check_whole(partition_log)
        return read_entries(partition_log)
