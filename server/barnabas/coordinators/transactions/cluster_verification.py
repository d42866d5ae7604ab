"""Check that partitions are in a producer's transaction, at its coordinator on any broker (KIP-890).

The rules: if the coordinator cannot be reached nothing is written. If it is too old for the request, the client adds
partitions itself. And while the previous transaction is being ended this module repeats the request, so that one waiting
transaction does not delay others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from barnabas.cluster.metadata.internal_topics import TRANSACTION_TOPIC
from barnabas.cluster.metadata.partitioning import partition_for
from barnabas.cluster.metadata.peers import PeerUnavailableError, VersionedRequest, api_key
from barnabas.coordinators.transactions.broker_batches import BrokerBatches
from barnabas.errors import RequestError
from barnabas.wire.generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.metadata.peers import Peers
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.coordinators.transactions.ports import TransactionVerifier
    from barnabas.coordinators.transactions.transaction import Producer
    from barnabas.wire.topic_partitions import TopicPartition

CHANNEL = "transactions"
VERSION_MIN = 4
"""The first version that brokers send, for many transactions."""
PATIENCE_SECONDS: Final = 1.0
"""Longest wait of a producer for the end of its last transaction; then the answer is CONCURRENT_TRANSACTIONS."""
RETRY_SECONDS: Final = 0.005
RETRY_SECONDS_MAX: Final = 0.1

Codes = dict["TopicPartition", int]
"""Error codes of the refused partitions."""


class _Question(NamedTuple):
    """The partitions of one request in one transaction."""

    transactional_id: str
    producer: Producer
    topic_partitions: frozenset[TopicPartition]
    implicit: bool


class ClusterVerifier:
    """Implements `ports.TransactionVerifier` with the coordinators of all brokers.

    Lifecycle: `run` in a task, until cancelled.
    """

    def __init__(
        self,
        metadata: MetadataStore,
        broker_id: int,
        *,
        local: TransactionVerifier,
        peers: Peers,
        timeout_ms: int,
    ) -> None:
        """`timeout_ms` is the timeout of requests to other brokers."""
        self._metadata = metadata
        self._broker_id = broker_id
        self._local = local
        self._peers = peers
        self._timeout_s = timeout_ms / 1000
        self._batches: BrokerBatches[_Question, Codes] = BrokerBatches(
            self._send, lambda question: question.transactional_id
        )

    async def run(self) -> None:
        """Ask other coordinators, until cancelled."""
        await self._batches.run()

    async def verify(
        self,
        transactional_id: str,
        producer: Producer,
        topic_partitions: frozenset[TopicPartition],
        *,
        implicit: bool,
    ) -> Codes:
        """Verify or add partitions. Raises RequestError."""
        coordinator = self._coordinator(transactional_id)
        if coordinator == self._broker_id:
            return await self._local.verify(transactional_id, producer, topic_partitions, implicit=implicit)
        question = _Question(transactional_id, producer, topic_partitions, implicit)
        deadline = trio.current_time() + PATIENCE_SECONDS
        seconds = RETRY_SECONDS
        while True:
            try:
                codes = await self._batches.ask(coordinator, question)
            except PeerUnavailableError as error:
                if error.lacks_version and not implicit:
                    return {}  # as in Kafka: an old coordinator leaves the check to the client
                raise RequestError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error
            is_pending = ErrorCode.CONCURRENT_TRANSACTIONS in codes.values()
            if not is_pending or trio.current_time() + seconds > deadline:
                return codes
            await trio.sleep(seconds)
            seconds = min(seconds * 2, RETRY_SECONDS_MAX)

    def _coordinator(self, transactional_id: str) -> int:
        """Return the broker that coordinates an id. Raises COORDINATOR_NOT_AVAILABLE."""
        image = self._metadata.image
        topic = image.topics.get(TRANSACTION_TOPIC)
        if topic is not None:
            partition = partition_for(transactional_id, len(topic.partitions))
            leader = topic.partitions[partition].leader
            if leader in image.brokers:
                return leader
        raise RequestError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{transactional_id!r} has no coordinator now"
        )

    async def _send(self, broker_id: int, questions: Sequence[_Question]) -> list[Codes]:
        """Ask a coordinator about transactions; returns their error codes. Raises PeerUnavailableError."""
        request = AddPartitionsToTxnRequest(transactions=[_transaction(question) for question in questions])

        def make(version: int) -> AddPartitionsToTxnRequest:
            if version < VERSION_MIN:
                raise PeerUnavailableError(
                    f"broker {broker_id} cannot be asked about transactions", lacks_version=True
                )
            return request

        response: AddPartitionsToTxnResponse = await self._peers.ask(
            broker_id,
            VersionedRequest(api_key(AddPartitionsToTxnRequest), make),
            timeout_s=self._timeout_s,
            channel=CHANNEL,
        )
        if response.error_code:
            return [
                dict.fromkeys(question.topic_partitions, _whole(response.error_code))
                for question in questions
            ]
        results = {
            result.transactional_id: {
                (topic.name, question.partition_index): question.partition_error_code
                for topic in result.topic_results
                for question in topic.results_by_partition
                if question.partition_error_code
            }
            for result in response.results_by_transaction
        }
        unanswered = ErrorCode.NETWORK_EXCEPTION
        return [
            results.get(question.transactional_id, dict.fromkeys(question.topic_partitions, unanswered))
            for question in questions
        ]


def _whole(code: int) -> int:
    """Return each partition's error for an error of the whole answer; clients see no authorization error of a broker."""
    return ErrorCode.INVALID_TXN_STATE if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED else code


def _transaction(question: _Question) -> AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction:
    indexes: dict[str, list[int]] = {}
    for name, index in sorted(question.topic_partitions):
        indexes.setdefault(name, []).append(index)
    return AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        transactional_id=question.transactional_id,
        producer_id=question.producer.id,
        producer_epoch=question.producer.epoch,
        verify_only=not question.implicit,
        topics=[
            AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=partitions)
            for name, partitions in indexes.items()
        ],
    )
