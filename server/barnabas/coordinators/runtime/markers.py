"""The end of a transaction in one partition: a control batch, and offsets that count from then on.

The rule: a marker in __consumer_offsets goes through the group coordinator, which must know of it as its log does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cluster.metadata.internal_topics import OFFSETS_TOPIC
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.coordinators.runtime.groups import GroupCoordinator
    from barnabas.coordinators.transactions.transaction import Producer
    from barnabas.wire.topic_partitions import TopicPartition


class LocalMarkers:
    """Writes the markers that end transactions to partitions that this broker leads."""

    def __init__(self, replicas: Replicas, groups: GroupCoordinator, now_ms: Callable[[], int]) -> None:
        self._replicas = replicas
        self._groups = groups
        self._now_ms = now_ms

    async def write(
        self,
        topic_partition: TopicPartition,
        producer: Producer,
        coordinator_epoch: int,
        commit: bool,
        transaction_version: int,
    ) -> None:
        """End a producer's transaction in a partition; returns once the marker is committed.

        In version 2 of transactions the end has a higher epoch than the records (KIP-890). A marker with the epoch of the
        open transaction is that of the one before, written already and sent twice: it ends nothing (KIP-1228).

        Raises RequestError with INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED or what `Replicas.leader`
        raises; StorageError.
        """
        from barnabas.coordinators.transactions.transaction import EPOCH_BUMPED_SINCE
        from barnabas.records.control import encode_end_marker  # comes with the first log

        topic, index = topic_partition
        partition = self._replicas.leader(topic, index)
        known = partition.log.producers.get(producer.id)
        if (
            transaction_version >= EPOCH_BUMPED_SINCE
            and known is not None
            and known.current_txn_first_offset >= 0
            and known.producer_epoch == producer.epoch
        ):
            raise RequestError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"the transaction before that of epoch {producer.epoch} has ended",
            )
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
        await partition.wait_committed(result.last_offset + 1)
