"""Ports of transactions: producer ids, end markers, and the check whether a partition is in a transaction.

The rule: handlers and coordinators use these. Their local implementations answer from this broker; in a cluster, others
send the same calls to the broker that leads the partition, coordinates the id, or is the controller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from barnabas.coordinators.transactions.transaction import Producer
    from barnabas.wire.topic_partitions import TopicPartition


class MarkerWriter(Protocol):
    """Ends transactions in partitions."""

    def is_at_hand(self, topic_partition: TopicPartition) -> bool:
        """Return whether a marker is committed as soon as it is written: here, without replicas on other brokers."""

    async def write(
        self,
        topic_partition: TopicPartition,
        producer: Producer,
        coordinator_epoch: int,
        commit: bool,
        transaction_version: int,
    ) -> None:
        """End a producer's transaction in a partition; returns once the marker is committed.

        From `transaction_version` 2 on a late marker does not end the producer's next transaction.

        Raises RequestError with INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, UNKNOWN_TOPIC_OR_PARTITION or
        another error of the partition's leader; StorageError.
        """


class TransactionVerifier(Protocol):
    """Says whether partitions are in a transaction (KIP-890)."""

    async def verify(
        self,
        transactional_id: str,
        producer: Producer,
        topic_partitions: frozenset[TopicPartition],
        *,
        implicit: bool,
    ) -> dict[TopicPartition, int]:
        """Return the error codes of the partitions that are not in the producer's open transaction; `implicit` adds them.

        TRANSACTION_ABORTABLE for a missing one. Raises RequestError for all of them: that of the transaction
        coordinator, or NETWORK_EXCEPTION if it cannot be reached.
        """


class ProducerIds(Protocol):
    """Hands out producer ids."""

    async def next(self) -> int:
        """Return a producer id that was never allocated before.

        Raises StorageError, or COORDINATOR_LOAD_IN_PROGRESS if the controller has none now.
        """
