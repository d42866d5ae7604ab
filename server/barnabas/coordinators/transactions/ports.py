"""Ports of transactions: producer ids, end markers, and whether a partition is in a transaction.

The rule: a handler or a coordinator asks through these. Their local implementations answer from this broker; in a cluster,
others send the same calls to the broker that leads the partition, coordinates the id, or is the controller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from barnabas.coordinators.transactions.transaction import Producer
    from barnabas.wire.topic_partitions import TopicPartition


class MarkerWriter(Protocol):
    """Ends transactions in partitions."""

    def is_at_hand(self, topic_partition: TopicPartition) -> bool:
        """Say whether a marker is committed as soon as it is written: here, without replicas on other brokers."""

    async def write(
        self,
        topic_partition: TopicPartition,
        producer: Producer,
        coordinator_epoch: int,
        commit: bool,
        transaction_version: int,
    ) -> None:
        """End a producer's transaction in a partition; returns once the marker is committed.

        From `transaction_version` 2 on the next transaction of the producer is not ended by a marker that comes late.

        Raises RequestError with INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, UNKNOWN_TOPIC_OR_PARTITION or what
        else the partition's leader answers; StorageError.
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

        TRANSACTION_ABORTABLE where one is missing. Raises RequestError for all of them: as the transaction coordinator
        does, or NETWORK_EXCEPTION if it cannot be asked.
        """


class ProducerIds(Protocol):
    """Hands out producer ids."""

    async def next(self) -> int:
        """Return a producer id that was never allocated before.

        Raises StorageError, or COORDINATOR_LOAD_IN_PROGRESS if the controller gives none now.
        """
