"""The end of a transaction in one partition: a control batch, and offsets that count from then on.

The rule: a marker in __consumer_offsets goes through the group coordinator, so that its state agrees with its log. All
markers of a request are appended before the first wait: slow replicas of one partition do not delay others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.cluster.metadata.internal_topics import OFFSETS_TOPIC
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.cluster.replicas.replica import Replica
    from barnabas.coordinators.groups.coordinator import GroupCoordinator
    from barnabas.coordinators.transactions.transaction import Producer
    from barnabas.wire.topic_partitions import TopicPartition


class AppendedMarker(NamedTuple):
    """A marker in the log of a partition, up to `end_offset`."""

    replica: Replica
    end_offset: int

    @property
    def is_committed(self) -> bool:
        """True if no wait is necessary."""
        return self.replica.log.high_watermark >= self.end_offset

    async def wait_committed(self) -> None:
        """Wait until all in-sync replicas have the marker. Raises RequestError as `Replica.wait_committed`."""
        await self.replica.wait_committed(self.end_offset)


class LocalMarkers:
    """Writes the markers that end transactions to partitions that this broker leads."""

    def __init__(self, replicas: Replicas, groups: GroupCoordinator, now_ms: Callable[[], int]) -> None:
        self._replicas = replicas
        self._groups = groups
        self._now_ms = now_ms

    def is_at_hand(self, topic_partition: TopicPartition) -> bool:  # noqa: ARG002 (all are)
        """Return True: all partitions are led here."""
        return True

    async def write(
        self,
        topic_partition: TopicPartition,
        producer: Producer,
        coordinator_epoch: int,
        commit: bool,
        transaction_version: int,
    ) -> None:
        """End a producer's transaction in a partition; returns once the marker is committed. Raises as `append`."""
        appended = self.append(topic_partition, producer, coordinator_epoch, commit, transaction_version)
        await appended.wait_committed()

    def append(
        self,
        topic_partition: TopicPartition,
        producer: Producer,
        coordinator_epoch: int,
        commit: bool,
        transaction_version: int,
    ) -> AppendedMarker:
        """End a producer's transaction in a partition; returns the appended marker, which may not be committed yet.

        In version 2 of transactions the end has a higher epoch than the records (KIP-890). A marker with the epoch of
        the open transaction is a repeated one of the previous transaction: it ends nothing (KIP-1228). A marker repeated
        before the first is committed is not written again. In version 1 the ends of two transactions cannot be
        distinguished, and each marker is written.

        Raises RequestError with INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED or the errors of
        `Replicas.leader`; StorageError.
        """
        from barnabas.coordinators.transactions.transaction import EPOCH_BUMPED_SINCE
        from barnabas.records.control import encode_end_marker  # imported with the first log

        topic, index = topic_partition
        partition = self._replicas.leader(topic, index)
        state = partition.log.producers.get(producer.id)
        if (
            transaction_version >= EPOCH_BUMPED_SINCE
            and state is not None
            and state.producer_epoch == producer.epoch
        ):
            if state.current_txn_first_offset >= 0:
                raise RequestError(
                    ErrorCode.INVALID_PRODUCER_EPOCH,
                    f"the transaction before that of epoch {producer.epoch} has ended",
                )
            is_uncommitted = state.marker_offset >= partition.log.high_watermark
            if is_uncommitted and state.coordinator_epoch == coordinator_epoch:
                return AppendedMarker(partition, state.marker_offset + 1)
        now_ms = self._now_ms()
        marker = encode_end_marker(
            commit=commit,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp_ms=now_ms,
        )
        result = partition.append_own(bytearray(marker), now_ms=now_ms)
        if topic == OFFSETS_TOPIC:
            self._groups.transaction_ended(index, producer.id, committed=commit)
        return AppendedMarker(partition, result.last_offset + 1)
