"""Produce v0-v13. Appends each partition's records and answers when `acks` is satisfied.

acks=0: no response; an error closes the connection, so that the client looks for the leader again. acks=1: answered
after the append, and after the flush that `flush.messages` may ask for. acks=-1: answered when the high watermark has
passed the records. What takes longer than the request's timeout is answered with REQUEST_TIMED_OUT.
v0-v1 carry message format v0, v2 carries v1 (both are stored as v2); v3 is the first with record batches; v7 the first
with zstd; v8 adds per-record errors; v10 the current leader in the error answer; v11 can tell TRANSACTION_ABORTABLE;
v12 makes partitions part of the transaction by itself (KIP-890); v13 names topics by id.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from barnabas.cluster.endpoints import advertised_nodes
from barnabas.errors import RequestError
from barnabas.handlers.transactional import Admission, Part
from barnabas.records.batch import BatchHeader, transactional_producer
from barnabas.replicas.appending import NO_LEADER, NO_RECORD_ERRORS, Appends, PartitionResponse
from barnabas.replicas.replica import ACKS_ALL, Replica
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.topic_partitions import TopicPartition
from barnabas.transactions.transaction import Producer
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.produce import ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from barnabas.cluster.store import MetadataStore
    from barnabas.config.loading import BrokerConfig
    from barnabas.coordination.ports import TransactionVerifier
    from barnabas.loop_budget import LoopBudget
    from barnabas.replicas.manager import Replicas
    from barnabas.requests.context import RequestContext
    from barnabas.requests.piecework import Piecework

log = logging.getLogger(__name__)

ABORTABLE_KNOWN_SINCE = 11
CURRENT_LEADER_SINCE = 10
IMPLICIT_SINCE = 12
TOPIC_IDS_SINCE = 13

_KNOWN_ACKS = (ACKS_ALL, 0, 1)

LOOKS_PER_CHECKPOINT = 500
"""So many batches are looked at for transactions in between."""

Pending = list[tuple[Replica, int, PartitionResponse]]  # with the offset after the records


async def handle(
    context: RequestContext,
    request: ProduceRequest,
    *,
    metadata: MetadataStore,
    replicas: Replicas,
    transaction_verifier: TransactionVerifier,
    config: BrokerConfig,
    budget: LoopBudget,
    piecework: Piecework,
) -> ProduceResponse | None:
    """Append and answer; None for acks=0."""
    appender = _Appender(
        context,
        request,
        metadata=metadata,
        replicas=replicas,
        transaction_verifier=transaction_verifier,
        config=config,
        budget=budget,
        piecework=piecework,
    )
    try:
        await appender.admit()
    except RequestError:
        if request.acks == 0:
            context.close_after_response = True
            return None
        raise
    topics = []
    for topic in request.topic_data:
        topics.append(await appender.append_topic(topic))  # noqa: PERF401 (a comprehension that waits is slower)
    if request.acks == 0:
        _end_without_response(context, topics)
        return None
    if appender.pending:
        await _wait(appender.pending, request)
    response = ProduceResponse(responses=topics)
    if context.api_version >= CURRENT_LEADER_SINCE:
        _name_leaders(context, response, metadata=metadata, replicas=replicas)
    return response


class _Appender:
    """Appends what a request brings; `pending` are the partitions whose records cannot be acknowledged at once."""

    def __init__(
        self,
        context: RequestContext,
        request: ProduceRequest,
        *,
        metadata: MetadataStore,
        replicas: Replicas,
        transaction_verifier: TransactionVerifier,
        config: BrokerConfig,
        budget: LoopBudget,
        piecework: Piecework,
    ) -> None:
        self._appends = Appends(
            replicas, self._failed, acks=request.acks, api_version=context.api_version, now_ms=context.now_ms
        )
        self.pending: Pending = self._appends.pending
        self._context = context
        self._request = request
        self._metadata = metadata
        self._replicas = replicas
        self._verifier = transaction_verifier
        self._admission: Admission | None = None
        self._config = config
        self._checkpoint = budget.checkpoint
        self._piecework = piecework
        self._refused: dict[TopicPartition, RequestError] = {}

    async def admit(self) -> None:
        """See that transactional records are in a transaction, and remember the partitions where they are not.

        Topics that the requester may not write to are left out: they are refused when their turn to be appended comes.
        Raises TRANSACTIONAL_ID_AUTHORIZATION_FAILED when the records come without a transactional id or with one that
        the requester may not write with, and INVALID_PRODUCER_ID_MAPPING when they are of several producers.
        """
        context, transactional_id = self._context, self._request.transactional_id
        parts: list[Part] = []
        is_transactional = False
        count = 0
        for topic in self._request.topic_data:
            found = []
            for data in topic.partition_data:
                known = transactional_producer(data.records)
                if known is not None:
                    found.append((data.index, Producer(*known)))
                count += 1
                if not count % LOOKS_PER_CHECKPOINT:
                    await self._checkpoint()
            if found:
                is_transactional = True
                name = self._name(topic)
                if context.authorizes(Operation.WRITE, ResourceType.TOPIC, name):
                    parts += [Part((name, index), producer) for index, producer in found]
        if not is_transactional:
            return
        if transactional_id is None:
            raise RequestError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "transactional records without a transactional id",
            )
        context.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        if not parts:
            return
        if any(part.producer != parts[0].producer for part in parts):
            raise RequestError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING, "transactional records of more than one producer"
            )
        version = context.api_version
        self._admission = Admission(
            transactional_id=transactional_id,
            implicit=version >= IMPLICIT_SINCE,
            abortable_known=version >= ABORTABLE_KNOWN_SINCE,
            replicas=self._replicas,
            verifier=self._verifier,
            config=self._config,
        )
        self._refused = await self._admission.admit(parts)

    def _name(self, topic: ProduceRequest.TopicProduceData) -> str:
        if self._context.api_version >= TOPIC_IDS_SINCE:
            return self._metadata.image.topic_name(topic.topic_id) or ""
        return topic.name

    async def append_topic(
        self, topic: ProduceRequest.TopicProduceData
    ) -> ProduceResponse.TopicProduceResponse:
        """Append the records of all partitions, and answer each of them on its own."""
        name = self._name(topic)
        responses: list[PartitionResponse] = []
        may_write = self._context.authorizes(Operation.WRITE, ResourceType.TOPIC, name)
        may_append = bool(name) and may_write and not self._refused and self._request.acks in _KNOWN_ACKS
        appends, partitions = self._appends, topic.partition_data
        while len(responses) < len(partitions):
            if appends.is_checkpoint_due():
                await self._checkpoint()
            if may_append and not appends.append_usual(name, partitions, responses):
                continue
            try:
                response = await self._append_alone(name, partitions[len(responses)], may_write=may_write)
            except RequestError as error:
                response = self._failed(name, partitions[len(responses)].index, error)
            responses.append(response)
        return ProduceResponse.TopicProduceResponse(
            name=name, topic_id=topic.topic_id, partition_responses=responses
        )

    def _failed(self, topic: str, index: int, error: RequestError) -> PartitionResponse:
        """Return the answer of a partition to which nothing was appended."""
        self._context.log(
            log, logging.INFO, "refused produce requests", "produce to %s-%d refused: %s", topic, index, error
        )
        response = PartitionResponse(
            index, error.code, -1, -1, -1, NO_RECORD_ERRORS, error.message or None, NO_LEADER
        )
        response.record_errors = [
            ProduceResponse.BatchIndexAndErrorMessage(batch_index=record, batch_index_error_message=message)
            for record, message in getattr(error, "record_errors", ())
        ]
        partition = self._replicas.find(topic, index)
        if partition is not None and error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            response.log_start_offset = partition.log.log_start_offset
        return response

    async def _append_alone(
        self, topic: str, data: ProduceRequest.PartitionProduceData, *, may_write: bool
    ) -> PartitionResponse:
        """Append what takes several steps, or may not be appended. Raises RequestError."""
        self._appends.count(len(data.records) if isinstance(data.records, memoryview) else 0)
        self._check(topic, data.index, may_write=may_write)
        return await self._append_in_steps(self._replicas.leader(topic, data.index), data.records)

    def _check(self, topic: str, index: int, *, may_write: bool) -> None:
        """Raise what speaks against appending to a partition, if anything does."""
        if not topic:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_ID)
        if not may_write:
            raise RequestError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if (topic, index) in self._refused:
            raise self._refused[topic, index]
        if self._request.acks not in _KNOWN_ACKS:
            raise RequestError(
                ErrorCode.INVALID_REQUIRED_ACKS, f"acks={self._request.acks}; -1, 0 and 1 are known"
            )

    async def _append_in_steps(self, partition: Replica, records: object) -> PartitionResponse:
        """Validate records by steps; append them without letting anybody run in between. Raises RequestError."""
        if not isinstance(records, memoryview):
            raise RequestError(ErrorCode.INVALID_RECORD, "a produce request without records")
        acks, version, now_ms = self._request.acks, self._context.api_version, self._context.now_ms
        steps = partition.validation(records, acks=acks, api_version=version, now_ms=now_ms)
        valid = await self._piecework.do(steps)
        if valid.batches and valid.batches[0].is_transactional:
            self._check_still_open(partition.topic, partition.index, valid.batches[0])
        result = partition.append(valid, acks=acks, api_version=version, now_ms=now_ms)
        return self._appends.answer(partition, result)

    def _check_still_open(self, topic: str, index: int, header: BatchHeader) -> None:
        """Raise if the transaction that the records were admitted to has ended while they were validated."""
        producer = Producer(header.producer_id, header.producer_epoch)
        why_not = self._admission.refusal(Part((topic, index), producer)) if self._admission else None
        if why_not is not None:
            raise why_not


def _name_leaders(
    context: RequestContext, response: ProduceResponse, *, metadata: MetadataStore, replicas: Replicas
) -> None:
    """Say who leads the partitions that were refused since another broker leads them (KIP-951)."""
    leaders: set[int] = set()
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                leader_id, leader_epoch = replicas.current_leader(topic.name, answer.index)
                answer.current_leader = ProduceResponse.LeaderIdAndEpoch(leader_id, leader_epoch)
                leaders.add(leader_id)
    for node in advertised_nodes(metadata.image, context.connection, leaders) if leaders else ():
        response.node_endpoints.append(
            ProduceResponse.NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
        )


async def _wait(pending: Pending, request: ProduceRequest) -> None:
    """Wait until the records of each partition may be acknowledged; what is late gets REQUEST_TIMED_OUT."""
    deadline = trio.current_time() + max(request.timeout_ms, 0) / 1000
    for partition, end_offset, response in pending:
        with trio.move_on_at(deadline) as scope:
            try:
                if request.acks == ACKS_ALL:
                    await partition.wait_committed(end_offset)
                else:
                    await partition.wait_flushed(end_offset)
            except RequestError as error:
                response.error_code = error.code
                response.base_offset = -1
        if scope.cancelled_caught:
            response.error_code = ErrorCode.REQUEST_TIMED_OUT


def _end_without_response(
    context: RequestContext, topics: list[ProduceResponse.TopicProduceResponse]
) -> None:
    for topic in topics:
        for response in topic.partition_responses:
            if response.error_code:
                context.close_after_response = True
                return
