"""Topics: list, create, enlarge, delete; their offsets, and deletion of records at their start."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, NamedTuple

import trio

from barnabas.client.administration.base import Base, Outcome, by_topic, outcome
from barnabas.client.errors import ClientError, ResponseError, UnsupportedVersionError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.ids import uuid_text
from barnabas.wire.topic_partitions import TopicPartition

EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3
"""Times that stand for the ends of a partition, as ListOffsets has them."""
_LIST_OFFSETS, _METADATA, _DELETE_TOPICS, _DESCRIBE_TOPIC_PARTITIONS = 2, 3, 20, 75
_MAX_TIMESTAMP_SINCE, _DELETES_BY_STATE_SINCE = 7, 6
_NO_ID = bytes(16)
PAGE_PARTITIONS = 1_000
"""Partitions that are decoded in one turn of the event loop: some 10 ms."""


class PartitionInfo(NamedTuple):
    """A partition in the metadata; the leader is -1 if the partition has no leader."""

    number: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...]


class TopicInfo(NamedTuple):
    """A topic in the metadata."""

    name: str
    id: str
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]


class NewTopic(NamedTuple):
    """A topic to be created; -1 is the broker's default. `replicas` assigns partitions explicitly."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] | None = None
    replicas: Mapping[int, tuple[int, ...]] | None = None


class OffsetAt(NamedTuple):
    """An offset that was looked up; `timestamp_ms` is -1 if the broker reports none, `offset` if none was found."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class Topics(Base):
    """Calls that concern topics."""

    async def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicInfo | ClientError]:
        """Return topics, all without names, in the order of their names. Creates none."""
        version = await self._version(_METADATA)
        request = MetadataRequest(allow_auto_topic_creation=version < 4)
        if names is None:
            request.topics = None if version else []
        else:
            unique = list(dict.fromkeys(names))
            if not unique:
                return {}
            request.topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in unique]
        response: MetadataResponse = await self.client.ask(request, version_max=12)
        infos: dict[str, TopicInfo | ClientError] = {}
        for topic in sorted(response.topics, key=lambda topic: topic.name or ""):
            name = topic.name or ""
            error = outcome(topic.error_code, f"asking for topic {name!r}")
            infos[name] = error or _info(topic)
        return infos

    async def pages(self) -> AsyncIterator[list[TopicInfo]]:
        """Yield all topics in the order of their names, in pages of 1,000 partitions if the broker has pages (KIP-966).

        So no other task waits for a list of 10,000 topics. Partitions of the last topic of a page may be on the next one.
        Raises ClientError.
        """
        from barnabas.wire.generated.describe_topic_partitions import (
            DescribeTopicPartitionsRequest as Request,
        )

        connection = await self.client.any_connection()
        if _DESCRIBE_TOPIC_PARTITIONS not in connection.versions:
            topics = await self.topics()
            yield [topic for topic in topics.values() if isinstance(topic, TopicInfo)]
            return
        cursor: Any = None
        while True:
            response = await connection.ask(Request([], PAGE_PARTITIONS, cursor))
            yield [
                _info(topic) for topic in response.topics if not topic.error_code and topic.name is not None
            ]
            if response.next_cursor is None:
                return
            cursor = Request.Cursor(response.next_cursor.topic_name, response.next_cursor.partition_index)
            await trio.lowlevel.checkpoint()

    async def create_topics(
        self, topics: Iterable[NewTopic], *, only_check: bool = False
    ) -> dict[str, Outcome]:
        """Make topics, or only have the broker check them."""
        from barnabas.wire.generated.create_topics import CreateTopicsRequest as Request

        request = Request(timeout_ms=self._timeout_ms, validate_only=only_check)
        for topic in topics:
            creation = Request.CreatableTopic(topic.name, topic.partitions, topic.replication_factor)
            if topic.replicas:
                creation.num_partitions = creation.replication_factor = -1
                creation.assignments = [
                    Request.CreatableReplicaAssignment(number, list(brokers))
                    for number, brokers in sorted(topic.replicas.items())
                ]
            creation.configs = [Request.CreatableTopicConfig(*pair) for pair in (topic.configs or {}).items()]
            request.topics.append(creation)
        response = await self.client.ask_controller(request, error_of=lambda answer: _first(answer.topics))
        return {
            topic.name: outcome(topic.error_code, f"creating topic {topic.name!r}", topic.error_message)
            for topic in response.topics
        }

    async def delete_topics(self, names: Iterable[str]) -> dict[str, Outcome]:
        """Delete topics and their records."""
        from barnabas.wire.generated.delete_topics import DeleteTopicsRequest as Request

        request = Request(timeout_ms=self._timeout_ms)
        if await self._version(_DELETE_TOPICS) >= _DELETES_BY_STATE_SINCE:
            request.topics = [Request.DeleteTopicState(name=name) for name in names]
        else:
            request.topic_names = list(names)
        response = await self.client.ask_controller(request, error_of=lambda answer: _first(answer.responses))
        return {
            topic.name or "": outcome(topic.error_code, f"deleting topic {topic.name!r}", topic.error_message)
            for topic in response.responses
        }

    async def create_partitions(
        self, counts: Mapping[str, int], *, only_check: bool = False
    ) -> dict[str, Outcome]:
        """Raise the partition counts of topics to these totals."""
        from barnabas.wire.generated.create_partitions import CreatePartitionsRequest as Request

        topics = [Request.CreatePartitionsTopic(name, count, None) for name, count in counts.items()]
        request = Request(topics, self._timeout_ms, only_check)
        response = await self.client.ask_controller(request, error_of=lambda answer: _first(answer.results))
        return {
            result.name: outcome(
                result.error_code, f"adding partitions to {result.name!r}", result.error_message
            )
            for result in response.results
        }

    async def offsets(
        self, times: Mapping[TopicPartition, int], *, is_committed: bool = False
    ) -> dict[TopicPartition, OffsetAt | ClientError]:
        """Return the offset of the first record at or after a time (ms), or of EARLIEST, LATEST, MAX_TIMESTAMP.

        `is_committed`: LATEST is the last stable offset.
        """
        from barnabas.wire.generated.list_offsets import ListOffsetsRequest as Request

        async def ask(
            broker: int, partitions: list[TopicPartition]
        ) -> dict[TopicPartition, OffsetAt | ClientError]:
            connection = await self.client.broker(broker)
            version = connection.version_of(_LIST_OFFSETS)
            if version < _MAX_TIMESTAMP_SINCE and any(
                times[partition] == MAX_TIMESTAMP for partition in partitions
            ):
                raise UnsupportedVersionError(f"{connection.peer} does not look up the newest timestamp")
            request = Request(replica_id=-1, isolation_level=int(is_committed and version >= 2))
            request.topics = [
                Request.ListOffsetsTopic(
                    topic,
                    [
                        Request.ListOffsetsPartition(number, timestamp=times[topic, number])
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic(partitions).items()
            ]
            response = await connection.ask(request, version=version)
            return {
                (topic.name, partition.partition_index): outcome(
                    partition.error_code, f"looking up an offset of {topic.name}-{partition.partition_index}"
                )
                or OffsetAt(
                    partition.offset if version else next(iter(partition.old_style_offsets), -1),
                    partition.timestamp,
                    partition.leader_epoch,
                )
                for topic in response.topics
                for partition in topic.partitions
            }

        return await self._of_leaders(times, ask)

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | ClientError]:
        """Delete the records before an offset, -1 for all records; return the new log start offsets."""
        from barnabas.wire.generated.delete_records import DeleteRecordsRequest as Request

        async def ask(
            broker: int, partitions: list[TopicPartition]
        ) -> dict[TopicPartition, int | ClientError]:
            topics = [
                Request.DeleteRecordsTopic(
                    topic,
                    [Request.DeleteRecordsPartition(number, before[topic, number]) for number in numbers],
                )
                for topic, numbers in by_topic(partitions).items()
            ]
            response = await (await self.client.broker(broker)).ask(Request(topics, self._timeout_ms))
            results: dict[TopicPartition, int | ClientError] = {}
            for topic in response.topics:
                for partition in topic.partitions:
                    error = outcome(
                        partition.error_code, f"cutting off {topic.name}-{partition.partition_index}"
                    )
                    results[topic.name, partition.partition_index] = error or partition.low_watermark
            return results

        return await self._of_leaders(before, ask)


def _info(topic: Any) -> TopicInfo:
    partitions = tuple(
        PartitionInfo(
            partition.partition_index,
            partition.leader_id,
            partition.leader_epoch,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
            tuple(partition.offline_replicas),
        )
        for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
    )
    topic_id = uuid_text(bytes(topic.topic_id)) if topic.topic_id != _NO_ID else ""
    return TopicInfo(topic.name or "", topic_id, topic.is_internal, partitions)


def _first(results: list[object]) -> int:
    """Return NOT_CONTROLLER if any result has that error, so that the controller is looked up again; else 0."""
    codes = [getattr(result, "error_code", 0) for result in results]
    return ErrorCode.NOT_CONTROLLER if ErrorCode.NOT_CONTROLLER in codes else 0


def partitions_of(topics: Mapping[str, TopicInfo | ClientError]) -> list[TopicPartition]:
    """Return all partitions of the topics that exist."""
    return [
        (name, partition.number)
        for name, topic in topics.items()
        if not isinstance(topic, ClientError)
        for partition in topic.partitions
    ]


__all__ = [
    "EARLIEST", "LATEST", "MAX_TIMESTAMP", "NewTopic", "OffsetAt", "PartitionInfo", "ResponseError", "TopicInfo",
    "Topics", "partitions_of",
]  # fmt: skip
