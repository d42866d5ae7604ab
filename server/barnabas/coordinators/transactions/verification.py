"""Check that partitions are in a producer's transaction, at this broker's coordinator (KIP-890)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.coordinators.transactions.coordinator import TransactionCoordinator
    from barnabas.coordinators.transactions.transaction import Producer
    from barnabas.wire.topic_partitions import TopicPartition


class LocalVerifier:
    """Implements `ports.TransactionVerifier`."""

    def __init__(self, transactions: TransactionCoordinator) -> None:
        self._transactions = transactions

    async def verify(
        self,
        transactional_id: str,
        producer: Producer,
        topic_partitions: frozenset[TopicPartition],
        *,
        implicit: bool,
    ) -> dict[TopicPartition, int]:
        """Verify or add partitions. Raises RequestError."""
        if implicit:
            await self._transactions.add_partitions(
                transactional_id, producer, topic_partitions, client_version=2
            )
            return {}
        verified = await self._transactions.verify_partitions(transactional_id, producer)
        return dict.fromkeys(topic_partitions - verified, ErrorCode.TRANSACTION_ABORTABLE)
