"""Steps of a produce request before its answer: admission to a transaction, and the append of each partition.

The rule: what is usual is appended at once, partition after partition; the first one that is not, or a look at the loop's
budget that is due, leaves the rest to be awaited. Nothing is appended twice, and everything in the request's order.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from barnabas.cluster.metadata.internal_topics import ADMIN_CLIENT_ID
from barnabas.cluster.replicas.appending import NO_LEADER, NO_RECORD_ERRORS, Appends, PartitionResponse
from barnabas.cluster.replicas.replica import ACKS_ALL, Replica
from barnabas.coordinators.transactions.transaction import Producer
from barnabas.errors import RequestError
from barnabas.handlers.shared.transactional import Admission, Part
from barnabas.log.format.names import INTERNAL_TOPICS
from barnabas.records.batch import BatchHeader, transactional_producer
from barnabas.records.errors import NotOneBatchError
from barnabas.records.steps import Steps, run
from barnabas.records.validated import ValidatedBatches
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.serving.context import RequestContext
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.produce import ProduceRequest, ProduceResponse
from barnabas.wire.topic_partitions import TopicPartition

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.config.loading import BrokerConfig
    from barnabas.coordinators.runtime.ports import TransactionVerifier
    from barnabas.environment import Threads
    from barnabas.serving.loop_budget import LoopBudget
    from barnabas.serving.step_runner import StepRunner

log = logging.getLogger(__name__)

ABORTABLE_KNOWN_SINCE: Final = 11
IMPLICIT_SINCE: Final = 12
TOPIC_IDS_SINCE: Final = 13

_KNOWN_ACKS: Final = (ACKS_ALL, 0, 1)

_TELLS_LOG_START: Final = frozenset(
    (
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.INVALID_RECORD,
    )
)
"""Codes of what a leader refuses after it has looked into the records: beside these Kafka says where its log begins."""

LOOKS_PER_CHECKPOINT: Final = 500
"""So many batches are looked at for transactions in between."""


class Refusals:
    """Makes the answers of partitions to which nothing was appended.

    `has_moved`: whether one of them is led by another broker.
    """

    __slots__ = ("_context", "_replicas", "has_moved")

    def __init__(self, context: RequestContext, replicas: Replicas) -> None:
        self._context = context
        self._replicas = replicas
        self.has_moved = False

    def note(self, error: RequestError) -> None:
        """Remember why a partition is refused."""
        if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self.has_moved = True

    def response(
        self, topic: str, index: int, error: RequestError, *, by_coordinator: bool = False
    ) -> ProduceResponse.PartitionProduceResponse:
        """Return the answer of a partition, with what the client may look at, and log why.

        `by_coordinator`: it was not let into its transaction, so that nobody has looked into the records.
        """
        self.note(error)
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
        is_looked_into = error.code in _TELLS_LOG_START and not by_coordinator
        if is_looked_into and not isinstance(error, NotOneBatchError):
            partition = self._replicas.find(topic, index)
            if partition is not None:
                response.log_start_offset = partition.log.log_start_offset
        return response


def last_of_each(
    topics: list[ProduceRequest.TopicProduceData], *, by_id: bool
) -> Steps[list[ProduceRequest.TopicProduceData]]:
    """Return topics with each partition once, with the records that are named last, as Kafka takes them; in steps.

    Topics without a partition are left out.
    """
    last: dict[str | bytes, dict[int, ProduceRequest.PartitionProduceData]] = {}
    count = entries = 0
    for topic in topics:
        count += len(topic.partition_data)
        entries += 1
        if not entries % LOOKS_PER_CHECKPOINT:
            yield None
        if topic.partition_data:
            of_topic = last.setdefault(topic.topic_id if by_id else topic.name, {})
            for data in topic.partition_data:
                of_topic[data.index] = data
                entries += 1
                if not entries % LOOKS_PER_CHECKPOINT:
                    yield None
    if len(last) == len(topics) and sum(map(len, last.values())) == count:
        return topics
    once: list[ProduceRequest.TopicProduceData] = []
    for key, of_topic in last.items():
        topic = ProduceRequest.TopicProduceData(partition_data=[*of_topic.values()])
        if isinstance(key, bytes):
            topic.topic_id = key
        else:
            topic.name = key
        once.append(topic)
        if not len(once) % LOOKS_PER_CHECKPOINT:
            yield None
    return once


class Appender:
    """Appends what a request brings.

    `topics` are the answers, `pending` the partitions whose records cannot be acknowledged at once, with the offset after
    the records. Lifecycle: `append_at_once`, and if that has not appended all, `admit` and `append_rest`.
    """

    __slots__ = (
        "_admission",
        "_appends",
        "_budget",
        "_config",
        "_context",
        "_is_admitted",
        "_is_closed",
        "_may_write",
        "_metadata",
        "_name",
        "_refused",
        "_replicas",
        "_request",
        "_responses",
        "_step_runner",
        "_threads",
        "_topics",
        "_verifier",
        "pending",
        "refusals",
        "topics",
    )

    def __init__(
        self,
        context: RequestContext,
        request: ProduceRequest,
        metadata: MetadataStore,
        replicas: Replicas,
        verifier: TransactionVerifier,
        config: BrokerConfig,
        budget: LoopBudget,
        step_runner: StepRunner,
        threads: Threads,
    ) -> None:
        self.refusals = Refusals(context, replicas)
        self._appends = Appends(
            replicas,
            self.refusals.response,
            acks=request.acks,
            api_version=context.api_version,
            now_ms=context.now_ms,
            is_among_others=context.connection.is_among_others,
        )
        self.topics: list[ProduceResponse.TopicProduceResponse] = []
        self.pending = self._appends.pending
        self._context = context
        self._request = request
        # What the request names, each partition once; None until that is found out.
        self._topics: list[ProduceRequest.TopicProduceData] | None = None
        self._metadata = metadata
        self._replicas = replicas
        self._verifier = verifier
        self._admission: Admission | None = None
        self._is_admitted = False
        self._config = config
        self._budget = budget
        self._step_runner = step_runner
        self._threads = threads
        self._refused: dict[TopicPartition, RequestError] = {}
        # Of the topic that is appended to: its answers so far, None where it has not begun; its name; whether the requester
        # may write to it, and whether no client may.
        self._responses: list[PartitionResponse] | None = None
        self._name = ""
        self._may_write = False
        self._is_closed = False

    @property
    def _is_by_id(self) -> bool:
        return self._context.api_version >= TOPIC_IDS_SINCE

    def append_at_once(self) -> bool:
        """Append what is usual and in no transaction; return whether that was all."""
        topics = self._request.topic_data
        if len(topics) != 1 or len(topics[0].partition_data) != 1:
            count = 0
            for topic in topics:
                count += 1 + len(topic.partition_data)
                if count > LOOKS_PER_CHECKPOINT:
                    return False
            topics = run(last_of_each(topics, by_id=self._is_by_id))
        self._topics = topics
        for topic in topics:
            for data in topic.partition_data:
                if transactional_producer(data.records) is not None:
                    return False
        self._is_admitted = True
        while len(self.topics) < len(topics):
            if not self._append_usual(topics[len(self.topics)]):
                return False
        return True

    async def admit(self) -> None:
        """See that transactional records are in a transaction, and remember the partitions where they are not.

        Topics that the requester, or no client, may write to are left out: they are refused when their turn comes.
        Raises TRANSACTIONAL_ID_AUTHORIZATION_FAILED when the records come without a transactional id or with one that
        the requester may not write with, and INVALID_PRODUCER_ID_MAPPING when they are of several producers.
        """
        if self._is_admitted:
            return
        context, transactional_id = self._context, self._request.transactional_id
        if self._topics is None:
            steps = last_of_each(self._request.topic_data, by_id=self._is_by_id)
            self._topics = await self._step_runner.run(steps)
        parts: list[Part] = []
        is_transactional = False
        count = 0
        for topic in self._topics:
            await self._budget.checkpoint()
            found = []
            for data in topic.partition_data:
                known = transactional_producer(data.records)
                if known is not None:
                    found.append((data.index, Producer(*known)))
                count += 1
                if not count % LOOKS_PER_CHECKPOINT:
                    await self._budget.checkpoint()
            if found:
                is_transactional = True
                name = self._name_of(topic)
                if not self._is_closed_to_clients(name) and context.authorizes(
                    Operation.WRITE, ResourceType.TOPIC, name
                ):
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

    async def append_rest(self) -> None:
        """Append what is left, and answer each partition on its own."""
        topics = self._topics
        assert topics is not None, "admitted first"
        while len(self.topics) < len(topics):
            await self._budget.checkpoint()
            topic = topics[len(self.topics)]
            while not self._append_usual(topic):
                if self._appends.is_checkpoint_due():
                    await self._budget.checkpoint()
                else:
                    await self._append_next(topic)

    def _append_usual(self, topic: ProduceRequest.TopicProduceData) -> bool:
        """Append to the partitions of a topic from the first one that has no answer yet.

        Returns whether each has one: not where one is not usual, or a checkpoint is due.
        """
        responses = self._responses
        if responses is None:
            responses = self._responses = []
            self._name = self._name_of(topic)
            self._may_write = self._context.authorizes(Operation.WRITE, ResourceType.TOPIC, self._name)
            self._is_closed = self._is_closed_to_clients(self._name)
        partitions = topic.partition_data
        if (
            self._may_write
            and self._name
            and not self._is_closed
            and not self._refused
            and self._request.acks in _KNOWN_ACKS
        ):
            appends = self._appends
            while len(responses) < len(partitions):
                if appends.is_used_up or appends.append_usual(self._name, partitions, responses):
                    return False
        elif len(responses) < len(partitions):
            return False
        self.topics.append(
            ProduceResponse.TopicProduceResponse(
                name=self._name, topic_id=topic.topic_id, partition_responses=responses
            )
        )
        self._responses = None
        return True

    async def _append_next(self, topic: ProduceRequest.TopicProduceData) -> None:
        """Append to the first partition of a topic that has no answer yet, or refuse that."""
        responses = self._responses
        assert responses is not None
        data = topic.partition_data[len(responses)]
        try:
            response = await self._append_alone(self._name, data)
        except RequestError as error:
            by_coordinator = error is self._refused.get((self._name, data.index))
            response = self.refusals.response(self._name, data.index, error, by_coordinator=by_coordinator)
        responses.append(response)

    def _name_of(self, topic: ProduceRequest.TopicProduceData) -> str:
        if self._context.api_version >= TOPIC_IDS_SINCE:
            return self._metadata.image.topic_name(topic.topic_id) or ""
        return topic.name

    async def _append_alone(
        self, topic: str, data: ProduceRequest.PartitionProduceData
    ) -> ProduceResponse.PartitionProduceResponse:
        """Append what takes several steps, or may not be appended. Raises RequestError."""
        self._appends.count(len(data.records) if isinstance(data.records, memoryview) else 0)
        self._check(topic, data.index)
        return await self._append_in_steps(self._replicas.leader(topic, data.index), data.records)

    def _is_closed_to_clients(self, topic: str) -> bool:
        """Say whether the broker alone writes to a topic, so that this client may not."""
        return topic in INTERNAL_TOPICS and self._context.client_id != ADMIN_CLIENT_ID

    def _check(self, topic: str, index: int) -> None:
        """Raise what speaks against appending to a partition, if anything does."""
        if not topic and self._context.api_version >= TOPIC_IDS_SINCE:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_ID)
        if not self._may_write:
            raise RequestError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if (topic, index) in self._refused:
            raise self._refused[topic, index]
        if self._request.acks not in _KNOWN_ACKS:
            raise RequestError(
                ErrorCode.INVALID_REQUIRED_ACKS, f"acks={self._request.acks}; -1, 0 and 1 are known"
            )
        if self._is_closed and self._metadata.image.partition(topic, index) is not None:
            raise RequestError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"the broker alone writes to {topic}, and a client with the id {ADMIN_CLIENT_ID}",
            )

    async def _append_in_steps(
        self, partition: Replica, records: object
    ) -> ProduceResponse.PartitionProduceResponse:
        """Validate records by steps and append them. Raises RequestError.

        What is large is written in a thread before that where other connections have requests, too.
        """
        if not isinstance(records, memoryview):
            raise RequestError(ErrorCode.INVALID_RECORD, "a produce request without records")
        acks, version, now_ms = self._request.acks, self._context.api_version, self._context.now_ms
        steps = partition.validation(records, acks=acks, api_version=version, now_ms=now_ms)
        valid = await self._step_runner.run(steps)
        if not self._appends.are_in_background(len(valid.records)):
            return self._append_valid(partition, valid)
        async with partition.large_appends:  # one after the other, in the order in which they were validated
            log = partition.log
            write = partition.begin_background_write(valid, api_version=version, now_ms=now_ms)
            if write is None:
                return self._append_valid(partition, valid)
            try:
                await self._threads.run(write.run)
                return self._append_valid(partition, valid)
            finally:
                partition.end_background_write(log, write)

    def _append_valid(self, partition: Replica, valid: ValidatedBatches) -> PartitionResponse:
        """Append validated records. Raises RequestError."""
        if valid.batches and valid.batches[0].is_transactional:
            self._check_still_open(partition.topic, partition.index, valid.batches[0])
        result = partition.append(
            valid,
            acks=self._request.acks,
            api_version=self._context.api_version,
            now_ms=self._context.now_ms,
        )
        return self._appends.answer(partition, result)

    def _check_still_open(self, topic: str, index: int, header: BatchHeader) -> None:
        """Raise if the transaction that the records were admitted to has ended while they were validated."""
        producer = Producer(header.producer_id, header.producer_epoch)
        why_not = self._admission.refusal(Part((topic, index), producer)) if self._admission else None
        if why_not is not None:
            raise why_not
