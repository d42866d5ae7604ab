"""AddPartitionsToTxn v0-v5. Partitions become part of a transaction, all of them or none.

v0-v3 are sent by producers, for one transaction; from v2 on PRODUCER_FENCED may be returned. v4 and v5 are sent by brokers,
for many transactions, and may only verify that the partitions are in them: TRANSACTION_ABORTABLE if not (KIP-890).

The rule: transactions of a request do not wait for each other. Those of brokers are decided in parallel; if the previous
transaction is not complete, a broker gets CONCURRENT_TRANSACTIONS immediately, while a producer waits a little.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from barnabas.cluster.metadata.internal_topics import SHAPES
from barnabas.coordinators.statemachine.decision import slices
from barnabas.coordinators.transactions.transaction import Producer
from barnabas.errors import RequestError
from barnabas.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from barnabas.wire.generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.topic_partitions import TopicPartition

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.coordinators.transactions.coordinator import TransactionCoordinator
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

PARTITIONS_PER_TURN = 500
TRANSACTIONS_CONCURRENT = 100
"""Transactions of a request that are decided on side by side, at most."""
FENCED_KNOWN_SINCE = 2
MANY_TRANSACTIONS_SINCE = 4

Asked = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
TopicResult = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
PartitionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult


@dataclass(eq=False)
class AddPartitionsToTxn:
    """Handler of AddPartitionsToTxn."""

    metadata: MetadataStore
    transaction_coordinator: TransactionCoordinator
    budget: LoopBudget

    async def handle(
        self, context: RequestContext, request: AddPartitionsToTxnRequest
    ) -> AddPartitionsToTxnResponse:
        """Answer each transaction on its own."""
        if context.api_version >= MANY_TRANSACTIONS_SINCE:
            context.require(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
            return AddPartitionsToTxnResponse(
                results_by_transaction=await self._answer_each(context, request.transactions)
            )
        asked = Asked(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=await self._answer(
                context,
                asked,
            )
        )

    async def _answer_each(
        self, context: RequestContext, transactions: list[Asked]
    ) -> list[AddPartitionsToTxnResponse.AddPartitionsToTxnResult]:
        """Answer transactions concurrently, those of the same id one after the other; returns results in their order."""
        by_id: dict[str, list[int]] = {}
        for number, asked in enumerate(transactions):
            by_id.setdefault(asked.transactional_id, []).append(number)
            await self.budget.checkpoint()
        results = [AddPartitionsToTxnResponse.AddPartitionsToTxnResult()] * len(transactions)
        waiting = iter(by_id.values())

        async def answer_some() -> None:
            for numbers in waiting:
                for number in numbers:
                    topic_results = await self._answer(
                        context,
                        transactions[number],
                    )
                    results[number] = AddPartitionsToTxnResponse.AddPartitionsToTxnResult(
                        transactional_id=transactions[number].transactional_id, topic_results=topic_results
                    )
                    await self.budget.checkpoint()

        if len(by_id) == 1:
            await answer_some()
        else:
            async with trio.open_nursery() as nursery:
                for _ in range(min(len(by_id), TRANSACTIONS_CONCURRENT)):
                    nursery.start_soon(answer_some)
        return results

    async def _merged(self, topics: list[Topic]) -> list[Topic]:
        """Return topics with each partition once; topics without partitions are excluded."""
        named: dict[str, dict[int, None]] = {}
        for topic in topics:
            await self.budget.checkpoint()
            for some in slices(topic.partitions, PARTITIONS_PER_TURN):
                named.setdefault(topic.name, {}).update(dict.fromkeys(some))
                await self.budget.checkpoint()
        merged: list[Topic] = []
        for name, partitions in named.items():
            await self.budget.checkpoint()
            merged.append(Topic(name=name, partitions=[*partitions]))
        return merged

    async def _answer(self, context: RequestContext, asked: Asked) -> list[TopicResult]:
        """Return a result for each partition: each once if results differ, repeated as requested if all are equal."""
        codes: dict[TopicPartition, int] | None = None
        code_of_all = 0
        topic_partitions: list[TopicPartition] = []
        for topic in asked.topics:
            await self.budget.checkpoint()
            for some in slices(topic.partitions, PARTITIONS_PER_TURN):
                topic_partitions += [(topic.name, partition) for partition in some]
                await self.budget.checkpoint()
        try:
            codes = await self._join(
                context,
                asked,
                topic_partitions,
            )
        except RequestError as error:
            code_of_all = error.code
            if code_of_all == ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_KNOWN_SINCE:
                code_of_all = ErrorCode.INVALID_PRODUCER_EPOCH
        is_of_each = codes is not None or asked.verify_only
        topics = await self._merged(asked.topics) if is_of_each else asked.topics
        codes = codes or {}
        results = []
        for topic in topics:
            await self.budget.checkpoint()
            of_topic: list[PartitionResult] = []
            for some in slices(topic.partitions, PARTITIONS_PER_TURN):
                of_topic += [
                    PartitionResult(
                        partition_index=partition,
                        partition_error_code=codes.get((topic.name, partition), code_of_all),
                    )
                    for partition in some
                ]
                await self.budget.checkpoint()
            results.append(TopicResult(name=topic.name, results_by_partition=of_topic))
        return results

    async def _join(
        self, context: RequestContext, asked: Asked, topic_partitions: list[TopicPartition]
    ) -> dict[TopicPartition, int] | None:
        """Add or verify; returns error codes of single partitions, None once all are added. Raises RequestError for all."""
        from_producer = context.api_version < MANY_TRANSACTIONS_SINCE
        if from_producer:
            context.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, asked.transactional_id)
        transactions = self.transaction_coordinator
        producer = Producer(asked.producer_id, asked.producer_epoch)
        impossible = await self._impossible(context, topic_partitions)
        if impossible:
            for topic_partition in topic_partitions:
                impossible.setdefault(topic_partition, ErrorCode.OPERATION_NOT_ATTEMPTED)
                await self.budget.checkpoint()
            return impossible
        if not asked.transactional_id:
            raise RequestError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        if asked.verify_only:
            verified = await transactions.verify_partitions(
                asked.transactional_id, producer, is_patient=from_producer
            )
            codes: dict[TopicPartition, int] = {}
            for topic_partition in topic_partitions:
                if topic_partition not in verified:
                    codes[topic_partition] = ErrorCode.TRANSACTION_ABORTABLE
                await self.budget.checkpoint()
            return codes
        await transactions.add_partitions(
            asked.transactional_id,
            producer,
            frozenset(topic_partitions),
            0 if from_producer else 2,
            is_patient=from_producer,
        )
        return None

    async def _impossible(
        self, context: RequestContext, topic_partitions: list[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the error codes of partitions that are not there, or that the requester may not write to.

        To the broker's own topics no producer may write.
        """
        topics = self.metadata.image.topics
        from_producer = context.api_version < MANY_TRANSACTIONS_SINCE
        codes: dict[TopicPartition, int] = {}
        for name, partition in topic_partitions:
            await self.budget.checkpoint()
            if from_producer and (
                name in SHAPES or not context.authorizes(Operation.WRITE, ResourceType.TOPIC, name)
            ):
                codes[name, partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif name not in topics or not 0 <= partition < len(topics[name].partitions):
                codes[name, partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return codes
