"""Requests for offsets: of the log by time, of a group, of leader epochs.

The rule: each function sends one request to each broker; retries are the caller's decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from barnabas.client.client import Client
from barnabas.client.errors import CommitFailedError, FencedInstanceError, ResponseError, check, describe
from barnabas.client.topics import TopicWatch
from barnabas.client.values import GroupMetadata, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from barnabas.wire.generated.errors import ErrorCode

T = TypeVar("T")

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
BY_RESET = {"latest": LATEST, "earliest": EARLIEST}
LANE = "group"
_LIST_OFFSETS, _OFFSET_COMMIT, _OFFSET_FETCH, _EPOCHS = 2, 8, 9, 23
LIST_OFFSETS_VERSION_MAX, BY_NAME_VERSION_MAX = 7, 9
_NOT_A_MEMBER = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


@dataclass(slots=True)
class Found(Generic[T]):
    """Results by partition, and the errors of the others."""

    values: dict[TopicPartition, T] = field(default_factory=dict)
    errors: dict[TopicPartition, ResponseError] = field(default_factory=dict)

    def all(self) -> dict[TopicPartition, T]:
        """Return the results. Raises ResponseError if a partition has none."""
        for error in self.errors.values():
            raise error
        return self.values

    def note(self, topics: TopicWatch, place: TopicPartition, code: int, doing: str) -> bool:
        """Note an error, if `code` is one, which may be caused by old metadata; returns whether it is not."""
        if code:
            self.errors[place] = ResponseError(code, f"{doing} {place}")
            topics.need()
        return not code


async def list_offsets(
    client: Client, topics: TopicWatch, times: Mapping[TopicPartition, int], *, committed_only: bool
) -> Found[OffsetAndTimestamp | None]:
    """Look for an offset for each partition and time; None where no record is so new. Raises ClientError."""
    from barnabas.wire.generated.list_offsets import ListOffsetsRequest

    results = Found[OffsetAndTimestamp | None]()
    doing = "asking for an offset of"
    for leader, places in _by_leader(topics, times, results, doing).items():
        connection = await client.broker(leader)
        version = connection.version_of(_LIST_OFFSETS, LIST_OFFSETS_VERSION_MAX)
        request = ListOffsetsRequest(replica_id=-1)
        if version >= 2:
            request.isolation_level = int(committed_only)
        by_topic: dict[str, ListOffsetsRequest.ListOffsetsTopic] = {}
        for place in places:
            topic = by_topic.setdefault(place.topic, ListOffsetsRequest.ListOffsetsTopic(place.topic))
            topic.partitions.append(
                ListOffsetsRequest.ListOffsetsPartition(place.partition, timestamp=times[place])
            )
        request.topics = list(by_topic.values())
        response = await connection.ask(request, version=version)
        for topic_answer in response.topics:
            for answer in topic_answer.partitions:
                place = TopicPartition(topic_answer.name, answer.partition_index)
                if results.note(topics, place, answer.error_code, doing):
                    offset = answer.offset if version else (answer.old_style_offsets or [-1])[0]
                    there = OffsetAndTimestamp(offset, answer.timestamp, answer.leader_epoch)
                    results.values[place] = there if offset >= 0 else None
    return results


async def epoch_ends(
    client: Client, topics: TopicWatch, epochs: Mapping[TopicPartition, int]
) -> Found[tuple[int, int]]:
    """Look up the ends of leader epochs: the largest epoch up to a given one, and its end; (-1, -1) if unknown.

    Omits partitions of brokers before 2.1, which refuse consumers. Raises ClientError.
    """
    from barnabas.wire.generated.offset_for_leader_epoch import OffsetForLeaderEpochRequest

    results = Found[tuple[int, int]]()
    doing = "asking where an epoch ends in"
    for leader, places in _by_leader(topics, epochs, results, doing).items():
        connection = await client.broker(leader)
        if connection.versions.get(_EPOCHS, (0, -1))[1] < 3:
            continue  # before version 3 only brokers may ask
        by_topic: dict[str, OffsetForLeaderEpochRequest.OffsetForLeaderTopic] = {}
        for place in places:
            topic = by_topic.setdefault(
                place.topic, OffsetForLeaderEpochRequest.OffsetForLeaderTopic(place.topic)
            )
            newest = topics.infos[place.topic].partitions[place.partition].epoch
            topic.partitions.append(
                OffsetForLeaderEpochRequest.OffsetForLeaderPartition(place.partition, newest, epochs[place])
            )
        request = OffsetForLeaderEpochRequest(replica_id=-1, topics=list(by_topic.values()))
        response = await connection.ask(request, version_max=4)
        for topic_answer in response.topics:
            for answer in topic_answer.partitions:
                place = TopicPartition(topic_answer.topic, answer.partition)
                if results.note(topics, place, answer.error_code, doing):
                    results.values[place] = answer.leader_epoch, answer.end_offset
    return results


def _by_leader(
    topics: TopicWatch, places: Iterable[TopicPartition], results: Found[Any], doing: str
) -> dict[int, list[TopicPartition]]:
    """Group partitions by their leaders; partitions without a leader become errors of `results`."""
    grouped: dict[int, list[TopicPartition]] = {}
    for place in places:
        info = topics.infos.get(place.topic)
        leader = topics.leader(*place)
        if leader >= 0:
            grouped.setdefault(leader, []).append(place)
        else:
            is_known = info is not None and place.partition in info.partitions
            code = topics.errors.get(place.topic, 0) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            results.note(topics, place, ErrorCode.LEADER_NOT_AVAILABLE if is_known else code, doing)
    return grouped


async def committed(
    client: Client, group: GroupMetadata, places: Iterable[TopicPartition], *, stable: bool
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the committed offsets of a group; partitions without an offset are excluded. Raises ClientError.

    `stable`: refuse offsets that an open transaction may still change (UNSTABLE_OFFSET_COMMIT, a transient error).
    """
    from barnabas.wire.generated.offset_fetch import OffsetFetchRequest

    by_topic: dict[str, list[int]] = {}
    for place in places:
        by_topic.setdefault(place.topic, []).append(place.partition)
    connection = await client.broker(await client.coordinator(group.group_id), lane=LANE)
    version = connection.version_of(_OFFSET_FETCH, BY_NAME_VERSION_MAX)
    request = OffsetFetchRequest(require_stable=stable and version >= 7)
    if version >= 8:
        entry = OffsetFetchRequest.OffsetFetchRequestTopics
        asked = OffsetFetchRequest.OffsetFetchRequestGroup(
            group.group_id, topics=[entry(name, partition_indexes=parts) for name, parts in by_topic.items()]
        )
        if version >= 9 and group.member_id:
            asked.member_id, asked.member_epoch = group.member_id, group.generation_id
        request.groups = [asked]
    else:
        request.group_id = group.group_id
        request.topics = [
            OffsetFetchRequest.OffsetFetchRequestTopic(name, parts) for name, parts in by_topic.items()
        ]
    response = await connection.ask(request, version=version)
    answer: Any = response.groups[0] if version >= 8 else response
    doing = f"asking for offsets of group {group.group_id!r}"
    _check_group(client, group, answer.error_code, doing)
    offsets = {}
    for topic in answer.topics:
        for part in topic.partitions:
            _check_group(client, group, part.error_code, doing)
            if part.committed_offset >= 0:
                offsets[TopicPartition(topic.name, part.partition_index)] = OffsetAndMetadata(
                    part.committed_offset, part.committed_leader_epoch, part.metadata or ""
                )
    return offsets


async def commit(
    client: Client, group: GroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> None:
    """Commit offsets of a group. Raises CommitFailedError, FencedInstanceError, other ClientErrors."""
    from barnabas.wire.generated.offset_commit import OffsetCommitRequest

    connection = await client.broker(await client.coordinator(group.group_id), lane=LANE)
    version = connection.version_of(_OFFSET_COMMIT, BY_NAME_VERSION_MAX)
    by_topic: dict[str, OffsetCommitRequest.OffsetCommitRequestTopic] = {}
    for place, offset in offsets.items():
        topic = by_topic.setdefault(place.topic, OffsetCommitRequest.OffsetCommitRequestTopic(place.topic))
        topic.partitions.append(
            OffsetCommitRequest.OffsetCommitRequestPartition(
                place.partition,
                offset.offset,
                committed_leader_epoch=offset.leader_epoch if version >= 6 else -1,
                committed_metadata=offset.metadata,
            )
        )
    request = OffsetCommitRequest(group.group_id, group.generation_id, group.member_id)
    if version >= 7:
        request.group_instance_id = group.instance_id
    request.topics = list(by_topic.values())
    response = await connection.ask(request, version=version)
    doing = f"committing offsets of group {group.group_id!r}"
    for topic_answer in response.topics:
        for part in topic_answer.partitions:
            _check_group(client, group, part.error_code, doing)


def _check_group(client: Client, group: GroupMetadata, code: int, doing: str) -> None:
    if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
        client.forget_coordinator(group.group_id)
    if code in _NOT_A_MEMBER:
        raise CommitFailedError(f"{doing}: {describe(code)}")
    if code == ErrorCode.FENCED_INSTANCE_ID:
        raise FencedInstanceError(doing)
    check(code, doing)
