"""OffsetCommit v0-v10. Commits offsets for a group, by its members or, while it has none, by anybody.

v0 and v1 name no generation or one that is checked like the later ones; v1 carries a timestamp; v2-v4 a retention time; v6
leader epochs; v7 static members; v10 names topics by id.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from barnabas.cluster.internal_topics import OFFSETS_TOPIC
from barnabas.errors import RequestError
from barnabas.groups.shard import GroupShard
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.statemachine.decision import Decision
from barnabas.topic_partitions import TopicPartition
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas.wire.generated.records.offset_commit import OffsetCommitValue

if TYPE_CHECKING:
    from barnabas.cluster.store import MetadataStore
    from barnabas.coordination.groups import GroupCoordinator
    from barnabas.loop_budget import LoopBudget
    from barnabas.replicas.partitions import Partitions
    from barnabas.requests.context import RequestContext

TOPIC_IDS_SINCE = 10
BROKER_RETENTION = -1
"""The retention time of a request that leaves it to the broker."""
TIMESTAMP_MAX = 2**63 - 1
COMMITS_AT_ONCE = 250
"""So many offsets are committed in one event: a few milliseconds' worth."""
RECORD_BYTES_MIN = 41
"""What an offset takes in a batch besides the names of its group and topic, at least."""

PartitionAnswer = OffsetCommitResponse.OffsetCommitResponsePartition
Commit = tuple[TopicPartition, OffsetCommitValue]


class RequestedCommit(NamedTuple):
    """One offset that is to be committed."""

    commit: Commit
    is_too_long: bool


class Topic(Protocol):
    """A topic in a request of either API that commits."""

    name: str

    @property
    def partitions(self) -> Sequence[object]:
        """What is to be committed."""


class Answer(Protocol):
    """One partition's answer, of either API that commits."""

    error_code: int


async def handle(
    context: RequestContext,
    request: OffsetCommitRequest,
    *,
    metadata: MetadataStore,
    replicas: Partitions,
    group_coordinator: GroupCoordinator,
    budget: LoopBudget,
) -> OffsetCommitResponse:
    """Commit what can be committed; each partition has its own answer."""
    await check_size(request.group_id, request.topics, replicas=replicas, group_coordinator=group_coordinator)
    response = OffsetCommitResponse()
    requested: list[RequestedCommit] = []
    accepted: list[PartitionAnswer] = []
    for topic in request.topics:
        name = topic.name
        answers = OffsetCommitResponse.OffsetCommitResponseTopic(name=name, topic_id=topic.topic_id)
        response.topics.append(answers)
        if context.api_version >= TOPIC_IDS_SINCE:
            name = metadata.image.topic_name(topic.topic_id) or ""
        may_read = context.authorizes(Operation.READ, ResourceType.TOPIC, name)
        for partition in topic.partitions:
            await budget.checkpoint()
            answer = PartitionAnswer(partition_index=partition.partition_index)
            answers.partitions.append(answer)
            try:
                requested.append(
                    checked_commit(
                        context,
                        name,
                        partition.partition_index,
                        partition.committed_offset,
                        partition.committed_leader_epoch,
                        partition.committed_metadata,
                        commit_timestamp_ms=partition.commit_timestamp,
                        retention_ms=request.retention_time_ms,
                        metadata=metadata,
                        group_coordinator=group_coordinator,
                        may_read=may_read,
                    )
                )
                accepted.append(answer)
            except RequestError as error:
                answer.error_code = error.code
    await commit_in_slices(
        requested, accepted, partial(_commit, context, request, group_coordinator=group_coordinator)
    )
    return response


async def check_size(
    group_id: str, topics: Sequence[Topic], *, replicas: Partitions, group_coordinator: GroupCoordinator
) -> None:
    """See that the offsets fit into a batch of their topic, before anything is done with them.

    Raises INVALID_COMMIT_OFFSET_SIZE, as Kafka does for such a batch, and COORDINATOR_NOT_AVAILABLE.
    """
    count = sum(len(topic.partitions) for topic in topics)
    if count <= COMMITS_AT_ONCE:
        return
    topic_partition = (OFFSETS_TOPIC, await group_coordinator.partition_of(group_id))
    bytes_max = replicas.leader(*topic_partition).log.config.max_message_bytes
    size = count * (RECORD_BYTES_MIN + len(group_id)) + sum(
        len(topic.partitions) * len(topic.name) for topic in topics
    )
    if size > bytes_max:
        raise RequestError(
            ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
            f"{count} offsets make a batch of more than {size} bytes; {bytes_max} are possible",
        )


async def commit_in_slices(
    requested: Sequence[RequestedCommit],
    answers: Sequence[Answer],
    commit: Callable[[Sequence[RequestedCommit]], Awaitable[None]],
) -> None:
    """Let `commit` commit some offsets at a time; each partition's answer says how it went with its own."""
    for first in range(0, len(requested), COMMITS_AT_ONCE):
        some, answered = requested[first : first + COMMITS_AT_ONCE], answers[first : first + COMMITS_AT_ONCE]
        try:
            await commit(some)
        except RequestError as error:
            for answer in answered:
                answer.error_code = error.code
        else:
            refuse_long(some, answered)


def checked_commit(
    context: RequestContext,
    topic: str,
    partition: int,
    offset: int,
    leader_epoch: int,
    offset_metadata: str | None,
    *,
    commit_timestamp_ms: int = -1,
    retention_ms: int = -1,
    may_read: bool,
    metadata: MetadataStore,
    group_coordinator: GroupCoordinator,
) -> RequestedCommit:
    """An offset as it is kept, and whether its metadata is too long; that is the last thing that is wrong with a commit.

    Raises UNKNOWN_TOPIC_ID without a name, TOPIC_AUTHORIZATION_FAILED unless the requester `may_read` the topic, and
    UNKNOWN_TOPIC_OR_PARTITION.
    """
    if not topic:
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_ID)
    if not may_read:
        raise RequestError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    info = metadata.image.topics.get(topic)
    if info is None or not 0 <= partition < len(info.partitions):
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    offset_metadata = offset_metadata or ""
    # Kafka calls them bytes, but counts UTF-16 code units.
    is_too_long = (
        len(offset_metadata.encode("utf-16-le")) // 2 > group_coordinator.settings.offset_metadata_bytes_max
    )
    value = OffsetCommitValue(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=offset_metadata,
        commit_timestamp=commit_timestamp_ms if commit_timestamp_ms >= 0 else context.now_ms,
        expire_timestamp=_expiry_ms(context.now_ms, retention_ms),
    )
    return RequestedCommit(((topic, partition), value), is_too_long)


def _expiry_ms(now_ms: int, retention_ms: int) -> int:
    """When an offset expires, in ms of the epoch; -1 leaves that to the broker's retention.

    A time that a record cannot hold is the last one that it can, where the sum of Kafka overflows to one long ago;
    a negative retention is over already, as in Kafka.
    """
    if retention_ms == BROKER_RETENTION:
        return -1
    return min(max(now_ms + retention_ms, 0), TIMESTAMP_MAX)


def refuse_long(requested: Sequence[RequestedCommit], answers: Sequence[Answer]) -> None:
    """Tell those whose metadata is too long, once the others are committed."""
    for one, answer in zip(requested, answers, strict=True):
        if one.is_too_long:
            answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE


async def _commit(
    context: RequestContext,
    request: OffsetCommitRequest,
    requested: Sequence[RequestedCommit],
    *,
    group_coordinator: GroupCoordinator,
) -> None:
    def decide(shard: GroupShard, out: Decision) -> None:
        shard.check_commit(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            context.now_ms,
            out,
            topic_partitions=[one.commit[0] for one in requested],
            api_version=context.api_version,
        )
        shard.commit(request.group_id, [one.commit for one in requested if not one.is_too_long], out)

    try:
        await group_coordinator.perform(request.group_id, decide)
    except RequestError as error:
        if error.code == ErrorCode.UNKNOWN_SERVER_ERROR:  # more than a batch can hold
            raise RequestError(ErrorCode.INVALID_COMMIT_OFFSET_SIZE) from error
        raise
