"""Steps of a produce request before its response: admission to a transaction, and the append of each partition.

The rule: small plain batches are appended without waiting, partition after partition; from the first larger one, or the
first due checkpoint of the loop's budget, on, the rest is awaited. Nothing is appended twice, and everything in the
request's order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.cluster.metadata.internal_topics import ADMIN_CLIENT_ID
from barnabas.cluster.replicas.replica import ACKS_ALL, Replica
from barnabas.coordinators.transactions.transaction import Producer
from barnabas.errors import RequestError
from barnabas.handlers.produce.naming import LOOKS_PER_CHECKPOINT, last_of_each
from barnabas.handlers.produce.refusals import NO_LEADER, NO_RECORD_ERRORS, PartitionResponse, Refusals
from barnabas.handlers.shared.transactional import Admission, Part
from barnabas.log.background_write import BACKGROUND_BYTES
from barnabas.log.format.names import INTERNAL_TOPICS
from barnabas.records.batch import transactional_producer
from barnabas.records.steps import run
from barnabas.records.validated import ValidatedBatches
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.serving.context import RequestContext
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.produce import ProduceRequest, ProduceResponse
from barnabas.wire.topic_partitions import TopicPartition

if TYPE_CHECKING:
    from barnabas.handlers.produce.services import ProduceServices

ABORTABLE_KNOWN_SINCE: Final = 11
IMPLICIT_SINCE: Final = 12
TOPIC_IDS_SINCE: Final = 13

PARTITIONS_PER_CHECKPOINT: Final = 16
BYTES_PER_PARTITION: Final = 16 * 1024
"""Records between two checks of the loop's budget: this many small partitions, or bytes."""
BYTES_PER_CHECKPOINT: Final = PARTITIONS_PER_CHECKPOINT * BYTES_PER_PARTITION

_KNOWN_ACKS: Final = (ACKS_ALL, 0, 1)


class Appender:
    """Appends the records of a request.

    `topics` are the results, `pending` the partitions with records that cannot be acknowledged yet, with the offset
    after the records. Lifecycle: `append_nowait`, and if records remain, `admit` and `append_rest`.
    """

    __slots__ = (
        "_admission",
        "_context",
        "_is_admitted",
        "_is_closed",
        "_may_write",
        "_name",
        "_refused",
        "_replicas",
        "_request",
        "_responses",
        "_room",
        "_services",
        "_topics",
        "pending",
        "refusals",
        "topics",
    )

    def __init__(self, services: ProduceServices, context: RequestContext, request: ProduceRequest) -> None:
        self.refusals = Refusals(context, services.replicas)
        self._services = services
        self.topics: list[ProduceResponse.TopicProduceResponse] = []
        self.pending: list[tuple[Replica, int, PartitionResponse]] = []
        self._context = context
        self._request = request
        # the partitions of the request, each once; None until computed
        self._topics: list[ProduceRequest.TopicProduceData] | None = None
        self._replicas = services.replicas
        self._admission: Admission | None = None
        self._is_admitted = False
        self._refused: dict[TopicPartition, RequestError] = {}
        self._room = BYTES_PER_CHECKPOINT  # until the loop's budget is looked at
        # Of the topic that is appended to: its answers so far, None where it has not begun; its name; whether the requester
        # may write to it, and whether no client may.
        self._responses: list[PartitionResponse] | None = None
        self._name = ""
        self._may_write = False
        self._is_closed = False

    def append_nowait(self) -> bool:
        """Append small plain batches, of a request without transactions; return whether that was all."""
        topics = self._request.topic_data
        by_id = self._context.api_version >= TOPIC_IDS_SINCE
        if len(topics) != 1 or len(topics[0].partition_data) != 1:
            count = 0
            for topic in topics:
                count += 1 + len(topic.partition_data)
                if count > LOOKS_PER_CHECKPOINT:
                    return False
            topics = run(last_of_each(topics, by_id=by_id))
        self._topics = topics
        for topic in topics:
            for data in topic.partition_data:
                if transactional_producer(data.records) is not None:
                    return False
        self._is_admitted = True
        while len(self.topics) < len(topics):
            if not self._append_topic(topics[len(self.topics)]):
                return False
        return True

    async def admit(self) -> None:
        """Check that transactional records are in a transaction, and remember the partitions for which they are not.

        Topics that the requester, or no client, may write to are excluded: they are refused when they are appended.
        Raises TRANSACTIONAL_ID_AUTHORIZATION_FAILED for records without a transactional id or with one that
        the requester may not use, and INVALID_PRODUCER_ID_MAPPING for records of several producers.
        """
        if self._is_admitted:
            return
        context, transactional_id = self._context, self._request.transactional_id
        if self._topics is None:
            steps = last_of_each(self._request.topic_data, by_id=context.api_version >= TOPIC_IDS_SINCE)
            self._topics = await self._services.step_runner.run(steps)
        parts: list[Part] = []
        sequences: dict[TopicPartition, int] = {}
        is_transactional = False
        count = 0
        for topic in self._topics:
            await self._services.budget.checkpoint()
            batches = []
            for data in topic.partition_data:
                producer = transactional_producer(data.records)
                if producer is not None:
                    batches.append((data.index, *producer))
                count += 1
                if not count % LOOKS_PER_CHECKPOINT:
                    await self._services.budget.checkpoint()
            if batches:
                is_transactional = True
                name = self._name_of(topic)
                if not self._is_closed_to_clients(name) and context.authorizes(
                    Operation.WRITE, ResourceType.TOPIC, name
                ):
                    for index, producer_id, epoch, sequence in batches:
                        parts.append(Part((name, index), Producer(producer_id, epoch)))
                        sequences[name, index] = sequence
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
            verifier=self._services.transaction_verifier,
            config=self._services.config,
        )
        self._refused = await self._admission.admit(parts, sequences, now_ms=context.now_ms)

    async def append_rest(self) -> None:
        """Append the remaining records, and answer each partition on its own."""
        topics = self._topics
        assert topics is not None, "admitted first"
        while len(self.topics) < len(topics):
            await self._services.budget.checkpoint()
            topic = topics[len(self.topics)]
            while not self._append_topic(topic):
                if self._room <= 0:
                    self._room = BYTES_PER_CHECKPOINT
                    await self._services.budget.checkpoint()
                else:
                    await self._append_next(topic)

    def _append_topic(self, topic: ProduceRequest.TopicProduceData) -> bool:
        """Append small plain batches to a topic's partitions, from the first one without a result on.

        Returns whether all have a result: false at a partition with a larger batch, or if a checkpoint is due.
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
            while len(responses) < len(partitions):
                if self._room <= 0 or not self._append_some(partitions, responses):
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

    def _append_some(
        self, partitions: list[ProduceRequest.PartitionProduceData], responses: list[PartitionResponse]
    ) -> bool:
        """Append small plain batches to some partitions; false at a partition with a larger batch.

        All are validated, and then all are appended: either code stays in the processor's cache from partition to
        partition, which both together exceed. A refused batch ends the group.
        """
        valid: list[tuple[Replica, ValidatedBatches]] = []
        refused: PartitionResponse | None = None
        is_plain = True
        for number in range(len(responses), len(partitions)):
            if self._room <= 0:
                break
            data = partitions[number]
            records = data.records
            if not isinstance(records, memoryview) or self._is_written_in_thread(len(records)):
                is_plain = False
                break
            try:
                replica = self._replicas.leader(self._name, data.index)
                batches = replica.validate_at_once(
                    records, self._request.acks, self._context.api_version, self._context.now_ms
                )
            except RequestError as error:
                refused = self.refusals.response(self._name, data.index, error)
                self._count(0)
                break
            if batches is None:
                is_plain = False
                break
            valid.append((replica, batches))
            self._count(len(batches.records))
        for replica, batches in valid:
            try:
                response = self._append_valid(replica, batches)
            except RequestError as error:  # others are validated, too
                response = self.refusals.response(self._name, replica.index, error)
            responses.append(response)
        if refused is not None:
            responses.append(refused)
        return is_plain

    async def _append_next(self, topic: ProduceRequest.TopicProduceData) -> None:
        """Append any records to the first partition of a topic that has no answer yet, or refuse that."""
        responses = self._responses
        assert responses is not None
        data = topic.partition_data[len(responses)]
        self._count(len(data.records) if isinstance(data.records, memoryview) else 0)
        try:
            self._check(data.index)
            response = await self._append_in_steps(
                self._replicas.leader(self._name, data.index), data.records
            )
        except RequestError as error:
            by_coordinator = error is self._refused.get((self._name, data.index))
            response = self.refusals.response(self._name, data.index, error, by_coordinator=by_coordinator)
        responses.append(response)

    def _name_of(self, topic: ProduceRequest.TopicProduceData) -> str:
        if self._context.api_version >= TOPIC_IDS_SINCE:
            return self._services.metadata.image.topic_name(topic.topic_id) or ""
        return topic.name

    def _is_closed_to_clients(self, topic: str) -> bool:
        """Return whether the broker alone writes to a topic, so that this client may not."""
        return topic in INTERNAL_TOPICS and self._context.client_id != ADMIN_CLIENT_ID

    def _is_written_in_thread(self, size: int) -> bool:
        """Return whether writing this many bytes of records would delay other tasks too long."""
        return size >= BACKGROUND_BYTES and self._context.connection.is_among_others

    def _count(self, size: int) -> None:
        """Count a partition with this many bytes."""
        self._room -= size if size > BYTES_PER_PARTITION else BYTES_PER_PARTITION

    def _check(self, index: int) -> None:
        """Raise RequestError if a partition of the topic may not be appended to."""
        topic = self._name
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
        if self._is_closed and self._services.metadata.image.partition(topic, index) is not None:
            raise RequestError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"the broker alone writes to {topic}, and a client with the id {ADMIN_CLIENT_ID}",
            )

    async def _append_in_steps(self, partition: Replica, records: object) -> PartitionResponse:
        """Validate records in steps and append them. Raises RequestError.

        If other connections have requests, too, large records are first written in a thread.
        """
        if not isinstance(records, memoryview):
            raise RequestError(ErrorCode.INVALID_RECORD, "a produce request without records")
        acks, version, now_ms = self._request.acks, self._context.api_version, self._context.now_ms
        steps = partition.validation(records, acks=acks, api_version=version, now_ms=now_ms)
        valid = await self._services.step_runner.run(steps)
        if not self._is_written_in_thread(len(valid.records)):
            return self._append_valid(partition, valid)
        async with partition.large_appends:  # one after the other, in the order in which they were validated
            log = partition.log
            write = partition.begin_background_write(valid, now_ms=now_ms)
            if write is None:
                return self._append_valid(partition, valid)
            try:
                await self._services.threads.run(write.run)
                return self._append_valid(partition, valid)
            finally:
                partition.end_background_write(log, write)

    def _append_valid(self, replica: Replica, valid: ValidatedBatches) -> PartitionResponse:
        """Append validated records. Raises RequestError."""
        if self._admission is not None and valid.batches and valid.batches[0].is_transactional:
            header = valid.batches[0]
            producer = Producer(header.producer_id, header.producer_epoch)
            # The transaction may have ended while the records were validated.
            why_not = self._admission.refusal(Part((replica.topic, replica.index), producer))
            if why_not is not None:
                raise why_not
        result = replica.append(valid, acks=self._request.acks, now_ms=self._context.now_ms)
        response = PartitionResponse(
            replica.index, 0, result.base_offset, result.log_append_time_ms, result.log_start_offset,
            NO_RECORD_ERRORS, None, NO_LEADER,
        )  # fmt: skip
        end_offset = result.last_offset + 1
        if replica.log.high_watermark < end_offset:
            self.pending.append((replica, end_offset, response))
        return response
