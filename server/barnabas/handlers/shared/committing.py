"""Common part of the two APIs that commit offsets: OffsetCommit and TxnOffsetCommit.

The rule: each partition has its own result; metadata that is too long is checked last, and does not affect other
partitions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from encodings import utf_16_le
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from barnabas.cluster.metadata.internal_topics import OFFSETS_TOPIC
from barnabas.coordinators.groups.group import FIRST_WITH_MEMBER_EPOCHS, LAST_WITHOUT_MEMBER_EPOCHS, Committer
from barnabas.coordinators.groups.shard import GroupShard
from barnabas.coordinators.statemachine.decision import Decision
from barnabas.coordinators.transactions.transaction import Producer
from barnabas.errors import RequestError
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.serving.deferred import Deferred
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.records.offset_commit import OffsetCommitValue
from barnabas.wire.topic_partitions import TopicPartition

if TYPE_CHECKING:
    from barnabas.cluster.metadata.ports import ConsumerOffsets
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.coordinators.groups.coordinator import GroupCoordinator
    from barnabas.coordinators.runtime.shard import Checkpoint
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

BROKER_RETENTION = -1
"""The retention time of a request that leaves it to the broker."""
TIMESTAMP_MAX = 2**63 - 1
COMMITS_PER_BATCH = 250
"""Offsets committed in one event: a few milliseconds."""
FEW = PARTITIONS_PER_CHECKPOINT = 16
TOPICS_PER_CHECKPOINT = 1_000
TOO_LARGE = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
"""Error code of the answer where writing fails with UNKNOWN_SERVER_ERROR: the offsets are more than a batch can hold."""
RECORD_BYTES_MIN = 41
"""Least bytes that an offset takes in a batch, besides the names of its group and topic."""

Commit = tuple[TopicPartition, OffsetCommitValue]


class RequestedCommit(NamedTuple):
    """An offset to be committed."""

    commit: Commit
    topic_id: bytes
    is_too_long: bool


class Partition(Protocol):
    """A partition in a request."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


class Request(Protocol):
    """A request of either API; its topics have a name or, in OffsetCommit v10 and TxnOffsetCommit v6, a `topic_id`."""

    group_id: str
    member_id: str
    generation_id_or_member_epoch: int
    group_instance_id: str | None
    topics: list[Any]


class Answer(Protocol):
    """A partition in a response."""

    partition_index: int
    error_code: int


A = TypeVar("A", bound=Answer)
T = TypeVar("T")
R = TypeVar("R")


class Commits:
    """The offsets of one request that can be committed, and the answers of their partitions."""

    def __init__(
        self,
        context: RequestContext,
        request: Request,
        *,
        retention_ms: int = BROKER_RETENTION,
        metadata: MetadataStore,
        replicas: Replicas,
        group_coordinator: GroupCoordinator,
        budget: LoopBudget,
    ) -> None:
        self._context = context
        self._request = request
        self._retention_ms = retention_ms
        self._metadata = metadata
        self._replicas = replicas
        self._group_coordinator = group_coordinator
        self._checkpoint: Checkpoint = budget.checkpoint
        self._requested: list[RequestedCommit] = []
        self._accepted: list[Answer] = []
        self._taken = 0
        self._image = metadata.image
        """The metadata in which all topics were known."""
        self._replaced: set[str] = set()
        """Topics that were deleted since the request was read, even if others have their names now."""
        self._unknown_topic: int = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def take(
        self,
        new_topic: Callable[[Any, list[A]], T],
        new_partition: Callable[[], A],
        *,
        by_id: bool = False,
        in_zookeeper: bool = False,
    ) -> list[T]:
        """Accept the offsets that can be committed; returns the topics' responses.

        `new_topic` builds a response from a topic and its partitions' responses. `by_id`: whether topics are named by their
        ids. `in_zookeeper`: whether the offsets are stored there, where they need not fit into a batch.

        Raises INVALID_COMMIT_OFFSET_SIZE, COORDINATOR_NOT_AVAILABLE and NOT_COORDINATOR.
        """
        if not in_zookeeper:
            await self._check_size()
        answers: list[T] = []
        for _ in self._take_in_steps(answers, new_topic, new_partition, by_id=by_id):
            await self._checkpoint()
        return answers

    @property
    def are_few(self) -> bool:
        """True if the offsets are accepted and committed without yielding."""
        topics = self._request.topics
        return len(topics) < FEW and sum([len(topic.partitions) for topic in topics]) < FEW

    def take_few(
        self,
        new_topic: Callable[[Any, list[A]], T],
        new_partition: Callable[[], A],
        *,
        by_id: bool = False,
    ) -> list[T]:
        """As `take`, without yielding, for offsets that `are_few`."""
        answers: list[T] = []
        for _ in self._take_in_steps(answers, new_topic, new_partition, by_id=by_id):
            pass
        return answers

    def _take_in_steps(
        self,
        answers: list[T],
        new_topic: Callable[[Any, list[A]], T],
        new_partition: Callable[[], A],
        *,
        by_id: bool,
    ) -> Iterator[None]:
        """Add the topics' answers; yields now and then."""
        if by_id:
            self._unknown_topic = ErrorCode.UNKNOWN_TOPIC_ID
        unknown: dict[bytes, list[A]] = {}  # as in Kafka, an id of no topic is answered once
        for topic in self._request.topics:
            name = self._metadata.image.topic_name(topic.topic_id) if by_id else topic.name
            of_topic: list[A] = unknown.setdefault(topic.topic_id, []) if name is None else []
            is_answered = bool(of_topic)
            yield None
            yield from self._take(name, topic.partitions, new_partition, of_topic)
            if of_topic and not is_answered:  # nor is a topic answered of which no partition is named
                answers.append(new_topic(topic, of_topic))

    async def _check_size(self) -> None:
        """See that the offsets fit into a batch of their topic, before anything is done with them.

        Raises INVALID_COMMIT_OFFSET_SIZE, as Kafka does for such a batch, COORDINATOR_NOT_AVAILABLE and NOT_COORDINATOR.
        """
        count = names_size = 0
        for number, topic in enumerate(self._request.topics, 1):
            of_topic = len(topic.partitions)
            count += of_topic
            names_size += of_topic * len(topic.name)
            if number % TOPICS_PER_CHECKPOINT == 0:
                await self._checkpoint()
        if count <= COMMITS_PER_BATCH:
            return
        group_id = self._request.group_id
        topic_partition = (OFFSETS_TOPIC, await self._group_coordinator.partition_of(group_id))
        try:
            bytes_max = self._replicas.leader(*topic_partition).log.config.max_message_bytes
        except RequestError as error:
            raise RequestError(ErrorCode.NOT_COORDINATOR, error.message) from error
        size = count * (RECORD_BYTES_MIN + len(group_id)) + names_size
        if size > bytes_max:
            raise RequestError(
                ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
                f"{count} offsets make a batch of more than {size} bytes; {bytes_max} are possible",
            )

    def _take(
        self,
        topic: str | None,
        partitions: Sequence[Partition],
        new_answer: Callable[[], A],
        answers: list[A],
    ) -> Iterator[None]:
        """Accept the offsets of a topic, None for an unknown id; adds its partitions' responses."""
        may_read = topic is not None and self._context.authorizes(Operation.READ, ResourceType.TOPIC, topic)
        for partition in partitions:
            self._taken += 1
            if not self._taken % PARTITIONS_PER_CHECKPOINT:
                yield
            answer = new_answer()
            answer.partition_index = partition.partition_index
            answers.append(answer)
            try:
                self._requested.append(self._checked(topic, partition, may_read=may_read))
                self._accepted.append(answer)
            except RequestError as error:
                answer.error_code = error.code

    def _checked(self, topic: str | None, partition: Partition, *, may_read: bool) -> RequestedCommit:
        """Return an offset as it is stored, and whether its metadata is too long.

        Raises UNKNOWN_TOPIC_ID without a name, TOPIC_AUTHORIZATION_FAILED unless the requester `may_read` the topic, and
        UNKNOWN_TOPIC_OR_PARTITION.
        """
        if topic is None:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_ID)
        if not may_read:
            raise RequestError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        index = partition.partition_index
        info = self._metadata.image.topics.get(topic)
        if info is None or not 0 <= index < len(info.partitions):
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        offset_metadata = partition.committed_metadata or ""
        # Kafka calls them bytes, but counts UTF-16 code units: as many as characters, or up to twice as many.
        length_max = self._group_coordinator.settings.offset_metadata_bytes_max
        is_too_long = (
            2 * len(offset_metadata) > length_max
            and len(utf_16_le.encode(offset_metadata)[0]) // 2 > length_max
        )
        now_ms = self._context.now_ms
        timestamp_ms: int = getattr(partition, "commit_timestamp", -1)  # in OffsetCommit v1
        value = OffsetCommitValue(
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=offset_metadata,
            commit_timestamp=timestamp_ms if timestamp_ms >= 0 else now_ms,
            expire_timestamp=_expiry_ms(now_ms, self._retention_ms),
        )
        return RequestedCommit(((topic, index), value), info.id, is_too_long)

    async def commit(self, commit: Callable[[Sequence[RequestedCommit]], Awaitable[None]]) -> None:
        """Call `commit` with some offsets at a time, and set the result of each partition."""
        for first in range(0, len(self._requested), COMMITS_PER_BATCH):
            some = self._requested[first : first + COMMITS_PER_BATCH]
            answers = self._accepted[first : first + COMMITS_PER_BATCH]
            try:
                await commit(some)
            except RequestError as error:
                for answer in answers:
                    answer.error_code = error.code
            else:
                self._answer_each(some, answers)

    def _answer_each(self, some: Sequence[RequestedCommit], answers: Sequence[Answer]) -> None:
        """Set the errors of single offsets in a batch."""
        replaced = self._replaced
        for requested, answer in zip(some, answers, strict=True):
            if replaced and requested.commit[0][0] in replaced:
                answer.error_code = self._unknown_topic
            elif requested.is_too_long:
                answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE

    def commit_few(self, response: R) -> R | Deferred[R]:
        """Write few offsets (`are_few`) directly; returns the `response` when each partition has its result."""
        if not self._requested:
            return response
        decide = self._decision(self._requested, self._context.api_version)
        try:
            written = self._group_coordinator.write_nowait(self._request.group_id, decide)
        except RequestError as error:
            self._refuse(error)
            return response
        if isinstance(written, Deferred):
            return Deferred(partial(self._written, written, response))
        self._answer_each(self._requested, self._accepted)
        return response

    async def _written(self, written: Deferred[None], response: R) -> R:
        try:
            await written.wait()
        except RequestError as error:
            self._refuse(error)
        else:
            self._answer_each(self._requested, self._accepted)
        return response

    def _refuse(self, error: RequestError) -> None:
        code = TOO_LARGE if error.code == ErrorCode.UNKNOWN_SERVER_ERROR else error.code
        for answer in self._accepted:
            answer.error_code = code

    async def commit_in_zookeeper(self, offsets: ConsumerOffsets) -> None:
        """Store offsets in ZooKeeper, except those with too long metadata, and set the result of each partition."""
        offsets_by_partition = {
            requested.commit[0]: requested.commit[1].offset
            for requested in self._requested
            if not requested.is_too_long
        }
        failure: int = ErrorCode.NONE
        refused: dict[TopicPartition, RequestError] = {}
        try:
            refused = await offsets.commit(self._request.group_id, offsets_by_partition)
        except RequestError as error:
            failure = error.code
        for requested, answer in zip(self._requested, self._accepted, strict=True):
            if requested.is_too_long:
                answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            elif failure or requested.commit[0] in refused:
                answer.error_code = failure or refused[requested.commit[0]].code

    async def write(
        self,
        some: Sequence[RequestedCommit],
        *,
        check: Callable[[], None] = lambda: None,
        producer: Producer | None = None,
        says_epochs: bool = True,
    ) -> None:
        """Write some of the offsets for the member that commits, in the transaction of `producer` if it is set.

        `says_epochs`: whether the version of TxnOffsetCommit has the errors that OffsetCommit has for member epochs.
        Raises the errors of `check`, which is called at the time of the decision, and of the group, and
        INVALID_COMMIT_OFFSET_SIZE if the offsets exceed a batch.
        """
        version = self._context.api_version
        if producer is not None:
            version = FIRST_WITH_MEMBER_EPOCHS if says_epochs else LAST_WITHOUT_MEMBER_EPOCHS
        decide = self._decision(some, version, check, producer)
        try:
            await self._group_coordinator.write(self._request.group_id, decide)
        except RequestError as error:
            if error.code == ErrorCode.UNKNOWN_SERVER_ERROR:
                raise RequestError(TOO_LARGE) from error
            raise

    def _decision(
        self,
        some: Sequence[RequestedCommit],
        version: int,
        check: Callable[[], None] = lambda: None,
        producer: Producer | None = None,
    ) -> Callable[[GroupShard, Decision], None]:
        """Return the event that commits some of the offsets, which may do so in this version of OffsetCommit."""
        request, context = self._request, self._context
        committer = Committer(
            request.member_id,
            request.generation_id_or_member_epoch,
            request.group_instance_id,
            [pending.commit[0] for pending in some],
            version,
            transactional=producer is not None,
        )

        def decide(shard: GroupShard, out: Decision) -> None:
            check()
            shard.check_commit(request.group_id, committer, context.now_ms, out)
            remaining = some if self._metadata.image is self._image else self._still_there(some)
            shard.commit(
                request.group_id, [pending.commit for pending in remaining if not pending.is_too_long], out
            )
            out.producer = producer

        return decide

    def _still_there(self, some: Sequence[RequestedCommit]) -> Sequence[RequestedCommit]:
        """Return the offsets of topics that still have the same id, and note the topics that were replaced."""
        topics = self._metadata.image.topics
        for requested in some:
            name = requested.commit[0][0]
            info = topics.get(name)
            if info is None or info.id != requested.topic_id:
                self._replaced.add(name)
        return [pending for pending in some if pending.commit[0][0] not in self._replaced]


def _expiry_ms(now_ms: int, retention_ms: int) -> int:
    """Return the expiry of an offset, in ms of the epoch; -1 for the broker's retention.

    A time beyond the range of a record is the maximum, where Kafka's sum overflows to a time long ago; with a negative
    retention the offset is expired already, as in Kafka.
    """
    if retention_ms == BROKER_RETENTION:
        return -1
    return min(max(now_ms + retention_ms, 0), TIMESTAMP_MAX)
