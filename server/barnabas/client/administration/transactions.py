"""Transactions: list, describe; producers of partitions, and hanging transactions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from barnabas.client.administration.base import Base, by_topic, outcome
from barnabas.client.base_client import TRANSACTION
from barnabas.client.errors import ClientError, UnsupportedVersionError, check
from barnabas.wire.topic_partitions import TopicPartition

_LIST_TRANSACTIONS = 66
_DURATIONS_SINCE, _PATTERNS_SINCE = 1, 2


class ListedTransaction(NamedTuple):
    """A transactional id in a list."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


class TransactionInfo(NamedTuple):
    """A transactional id with its transaction; `started_at_ms` is -1 where none is under way."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    started_at_ms: int
    coordinator: int
    partitions: tuple[TopicPartition, ...]


class ProducerState(NamedTuple):
    """A producer that a partition knows; `transaction_offset` is where its open transaction begins, -1 for none."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_at_ms: int
    coordinator_epoch: int
    transaction_offset: int


class Transactions(Base):
    """Calls that concern transactions."""

    async def list_transactions(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        running_for_ms: int = -1,
        pattern: str | None = None,
    ) -> tuple[list[ListedTransaction], dict[int, ClientError]]:
        """Return transactional ids, and the errors of brokers that could not list theirs.

        `running_for_ms`: only those with an older transaction; `pattern`: only ids that match an RE2 expression.
        """
        from barnabas.wire.generated.list_transactions import ListTransactionsRequest as Request

        async def ask(broker: int) -> list[ListedTransaction]:
            connection = await self.client.broker(broker)
            newest = max(
                _DURATIONS_SINCE if running_for_ms >= 0 else 0, _PATTERNS_SINCE if pattern is not None else 0
            )
            version = connection.version_of(_LIST_TRANSACTIONS)
            request = Request(list(states), list(producer_ids), running_for_ms, pattern)
            if version < newest:
                raise UnsupportedVersionError(f"{connection.peer} has no such filter of transactions")
            response = await self.client.ask_broker(broker, request, version=version)
            check(response.error_code, f"listing the transactions of broker {broker}")
            return [
                ListedTransaction(state.transactional_id, state.producer_id, state.transaction_state, broker)
                for state in response.transaction_states
            ]

        transactions: list[ListedTransaction] = []
        failures = {}
        for broker, answer in (await self.client.each(await self._brokers(), ask)).items():
            if isinstance(answer, ClientError):
                failures[broker] = answer
            else:
                transactions += answer
        return sorted(transactions, key=lambda transaction: transaction.transactional_id), failures

    async def describe_transactions(self, ids: Iterable[str]) -> dict[str, TransactionInfo | ClientError]:
        """Describe the transactions of transactional ids."""
        from barnabas.wire.generated.describe_transactions import DescribeTransactionsRequest

        async def ask(transactional_id: str) -> TransactionInfo:
            response = await self.client.ask_coordinator(
                transactional_id,
                DescribeTransactionsRequest([transactional_id]),
                key_type=TRANSACTION,
                error_of=lambda response: response.transaction_states[0].error_code,
            )
            (state,) = response.transaction_states
            check(state.error_code, f"describing transactional id {transactional_id!r}")
            return TransactionInfo(
                transactional_id,
                state.producer_id,
                state.producer_epoch,
                state.transaction_state,
                state.transaction_timeout_ms,
                state.transaction_start_time_ms,
                await self.client.coordinator(transactional_id, TRANSACTION),
                tuple((topic.topic, number) for topic in state.topics for number in sorted(topic.partitions)),
            )

        return await self.client.each(ids, ask)

    async def producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, list[ProducerState] | ClientError]:
        """Return the producers that partitions know."""
        from barnabas.wire.generated.describe_producers import DescribeProducersRequest as Request

        async def ask(
            broker: int, partitions: list[TopicPartition]
        ) -> dict[TopicPartition, list[ProducerState] | ClientError]:
            topics = [Request.TopicRequest(topic, numbers) for topic, numbers in by_topic(partitions).items()]
            response = await (await self.client.broker(broker)).ask(Request(topics))
            results: dict[TopicPartition, list[ProducerState] | ClientError] = {}
            for topic in response.topics:
                for partition in topic.partitions:
                    doing = f"describing the producers of {topic.name}-{partition.partition_index}"
                    error = outcome(partition.error_code, doing, partition.error_message)
                    results[topic.name, partition.partition_index] = error or [
                        ProducerState(
                            state.producer_id,
                            state.producer_epoch,
                            state.last_sequence,
                            state.last_timestamp,
                            state.coordinator_epoch,
                            state.current_txn_start_offset,
                        )
                        for state in sorted(partition.active_producers, key=lambda state: state.producer_id)
                    ]
            return results

        return await self._of_leaders(partitions, ask)

    async def abort_transaction(self, partition: TopicPartition, producer: ProducerState) -> None:
        """Write an abort marker into a partition for a producer with a hanging transaction. Raises ClientError."""
        from barnabas.wire.generated.write_txn_markers import WriteTxnMarkersRequest as Request

        topic, number = partition
        marker = Request.WritableTxnMarker(
            producer.producer_id,
            producer.producer_epoch,
            False,
            [Request.WritableTxnMarkerTopic(topic, [number])],
            max(producer.coordinator_epoch, 0),
        )
        response = await self.client.ask_leader(
            topic,
            number,
            Request([marker]),
            error_of=lambda response: response.markers[0].topics[0].partitions[0].error_code,
        )
        assert response is not None
