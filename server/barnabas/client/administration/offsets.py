"""Offsets of groups: committed ones, altered or deleted; of share groups their start offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from barnabas.client.administration.base import Base, Outcome, by_topic, outcome
from barnabas.client.errors import ClientError, UnsupportedVersionError, check
from barnabas.wire.topic_partitions import TopicPartition

_OFFSET_FETCH = 9
_OFFSET_FETCH_MAX = _OFFSET_COMMIT_MAX = 9
"""Later versions name topics by their ids."""
_MANY_GROUPS_SINCE, _ALL_TOPICS_SINCE = 8, 2


class CommittedOffset(NamedTuple):
    """An offset that a group has committed; `lag` in records is that of a share group's coordinator, else -1."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    lag: int = -1


Committed = dict[TopicPartition, CommittedOffset | ClientError]


class Offsets(Base):
    """Calls that concern the offsets of groups."""

    async def committed(self, group_ids: Iterable[str]) -> dict[str, Committed | ClientError]:
        """Return all that groups have committed."""
        return await self._of_coordinators(group_ids, self._committed_of, self._committed)

    async def _committed_of(
        self, coordinator: int, group_ids: list[str]
    ) -> dict[str, Committed | ClientError]:
        """Return the committed offsets of groups of one coordinator. Raises UnsupportedVersionError."""
        from barnabas.wire.generated.offset_fetch import OffsetFetchRequest as Request

        connection = await self.client.broker(coordinator)
        version = connection.version_of(_OFFSET_FETCH, _OFFSET_FETCH_MAX)
        if version < _MANY_GROUPS_SINCE:
            raise UnsupportedVersionError(f"{connection.peer} tells the offsets of one group at a time")
        request = Request(groups=[Request.OffsetFetchRequestGroup(name, topics=None) for name in group_ids])
        offsets: dict[str, Committed | ClientError] = {}
        for group in (await connection.ask(request, version=version)).groups:
            try:
                offsets[group.group_id] = _committed_in(group, group.group_id)
            except ClientError as error:
                offsets[group.group_id] = error
        return offsets

    async def _committed(self, group_id: str) -> Committed:
        from barnabas.wire.generated.offset_fetch import OffsetFetchRequest as Request

        connection = await self.client.broker(await self.client.coordinator(group_id))
        version = connection.version_of(_OFFSET_FETCH, _OFFSET_FETCH_MAX)
        if version >= _MANY_GROUPS_SINCE:
            many = Request(groups=[Request.OffsetFetchRequestGroup(group_id, topics=None)])
            response = await self.client.ask_coordinator(
                group_id, many, error_of=lambda response: response.groups[0].error_code, version=version
            )
            return _committed_in(response.groups[0], group_id)
        if version < _ALL_TOPICS_SINCE:
            raise UnsupportedVersionError(f"{connection.peer} cannot list the offsets of a group")
        response = await self.client.ask_coordinator(group_id, Request(group_id, None), version=version)
        return _committed_in(response, group_id)

    async def commit_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int | CommittedOffset]
    ) -> dict[TopicPartition, Outcome]:
        """Commit offsets, with the epochs and metadata that they may have, for a group without members, or none yet."""
        from barnabas.wire.generated.offset_commit import OffsetCommitRequest as Request

        request = Request(group_id)
        for topic, numbers in by_topic(offsets).items():
            partitions = []
            for number in numbers:
                value = offsets[topic, number]
                committed = CommittedOffset(value) if isinstance(value, int) else value
                partitions.append(
                    Request.OffsetCommitRequestPartition(
                        number,
                        committed.offset,
                        committed.leader_epoch,
                        committed_metadata=committed.metadata,
                    )
                )
            request.topics.append(Request.OffsetCommitRequestTopic(topic, partitions=partitions))
        response = await self.client.ask_coordinator(
            group_id, request, error_of=_first_partition, version_max=_OFFSET_COMMIT_MAX
        )
        return _outcomes(response.topics, f"committing for {group_id!r}")

    async def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Outcome]:
        """Delete the committed offsets of a group for these partitions."""
        from barnabas.wire.generated.offset_delete import OffsetDeleteRequest as Request

        request = Request(group_id)
        for topic, numbers in by_topic(partitions).items():
            deleted = [Request.OffsetDeleteRequestPartition(number) for number in numbers]
            request.topics.append(Request.OffsetDeleteRequestTopic(topic, deleted))
        response = await self.client.ask_coordinator(group_id, request)
        check(response.error_code, f"deleting offsets of {group_id!r}")
        return _outcomes(response.topics, f"deleting offsets of {group_id!r}")

    # --- share groups ---------------------------------------------------------------------------------------

    async def share_offsets(self, group_ids: Iterable[str]) -> dict[str, Committed | ClientError]:
        """Return the first offsets of share groups, of all their partitions."""
        from barnabas.wire.generated.describe_share_group_offsets import (
            DescribeShareGroupOffsetsRequest as Request,
        )

        async def ask(group_id: str) -> Committed:
            group = Request.DescribeShareGroupOffsetsRequestGroup(group_id, None)
            response = await self.client.ask_coordinator(
                group_id, Request([group]), error_of=lambda response: response.groups[0].error_code
            )
            (result,) = response.groups
            doing = f"asking for the offsets of {group_id!r}"
            check(result.error_code, doing, result.error_message)
            offsets: Committed = {}
            for topic in result.topics:
                for partition in topic.partitions:
                    error = outcome(partition.error_code, doing, partition.error_message)
                    if error is None and partition.start_offset < 0:
                        continue
                    offsets[topic.topic_name, partition.partition_index] = error or CommittedOffset(
                        partition.start_offset, partition.leader_epoch, lag=partition.lag
                    )
            return dict(sorted(offsets.items()))

        return await self.client.each(group_ids, ask)

    async def set_share_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Outcome]:
        """Set the start offsets of a share group that has no members."""
        from barnabas.wire.generated.alter_share_group_offsets import AlterShareGroupOffsetsRequest as Request

        request = Request(group_id)
        for topic, numbers in by_topic(offsets).items():
            partitions = [
                Request.AlterShareGroupOffsetsRequestPartition(number, offsets[topic, number])
                for number in numbers
            ]
            request.topics.append(Request.AlterShareGroupOffsetsRequestTopic(topic, partitions))
        response = await self.client.ask_coordinator(group_id, request)
        doing = f"setting the offsets of {group_id!r}"
        check(response.error_code, doing, response.error_message)
        return {
            (topic.topic_name, partition.partition_index): outcome(
                partition.error_code, doing, partition.error_message
            )
            for topic in response.responses
            for partition in topic.partitions
        }

    async def delete_share_offsets(self, group_id: str, topics: Iterable[str]) -> dict[str, Outcome]:
        """Delete the offsets of topics in a share group that has no members."""
        from barnabas.wire.generated.delete_share_group_offsets import (
            DeleteShareGroupOffsetsRequest as Request,
        )

        request = Request(group_id, [Request.DeleteShareGroupOffsetsRequestTopic(topic) for topic in topics])
        response = await self.client.ask_coordinator(group_id, request)
        doing = f"deleting the offsets of {group_id!r}"
        check(response.error_code, doing, response.error_message)
        return {
            result.topic_name: outcome(result.error_code, doing, result.error_message)
            for result in response.responses
        }


def _first_partition(response: Any) -> int:
    return next((partition.error_code for topic in response.topics for partition in topic.partitions), 0)


def _outcomes(topics: Iterable[Any], doing: str) -> dict[TopicPartition, Outcome]:
    return {
        (topic.name, partition.partition_index): outcome(
            partition.error_code, f"{doing}: {topic.name}-{partition.partition_index}"
        )
        for topic in topics
        for partition in topic.partitions
    }


def _committed_in(group: Any, group_id: str) -> Committed:
    """Return the committed offsets of a group in a response. Raises ResponseError."""
    doing = f"asking for the offsets of {group_id!r}"
    check(group.error_code, doing)
    offsets: Committed = {}
    for topic in group.topics:
        for partition in topic.partitions:
            error = outcome(partition.error_code, f"{doing} of {topic.name}-{partition.partition_index}")
            if error is None and partition.committed_offset < 0:
                continue
            offsets[topic.name, partition.partition_index] = error or CommittedOffset(
                partition.committed_offset, partition.committed_leader_epoch, partition.metadata or ""
            )
    return dict(sorted(offsets.items()))
