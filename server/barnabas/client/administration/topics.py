"""Topics: which there are, made, enlarged, deleted; their offsets, and what is cut off at their start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from barnabas.client.administration.base import Base, Outcome, by_topic, outcome
from barnabas.client.errors import ClientError, ResponseError, UnsupportedVersionError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.ids import uuid_text
from barnabas.wire.topic_partitions import TopicPartition

EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3
"""Times that stand for the ends of a partition, as ListOffsets has them."""
_LIST_OFFSETS, _METADATA, _DELETE_TOPICS = 2, 3, 20
_MAX_TIMESTAMP_SINCE, _DELETES_BY_STATE_SINCE = 7, 6
_NO_ID = bytes(16)


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition as the metadata has it; a leader of -1 says that there is none."""

    number: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as the metadata has it."""

    name: str
    id: str
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be made; -1 stands for the broker's default. `replicas` assigns partitions by hand."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] | None = None
    replicas: Mapping[int, tuple[int, ...]] | None = None


@dataclass(frozen=True, slots=True)
class OffsetAt:
    """An offset that was looked up; `timestamp_ms` is -1 where the broker tells none, `offset` where there is none."""

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
            wanted = list(dict.fromkeys(names))
            if not wanted:
                return {}
            request.topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in wanted]
        response: MetadataResponse = await self.client.ask(request, version_max=12)
        found: dict[str, TopicInfo | ClientError] = {}
        for topic in sorted(response.topics, key=lambda one: one.name or ""):
            name = topic.name or ""
            error = outcome(topic.error_code, f"asking for topic {name!r}")
            found[name] = error or _info(topic)
        return found

    async def create_topics(
        self, topics: Iterable[NewTopic], *, only_check: bool = False
    ) -> dict[str, Outcome]:
        """Make topics, or only have the broker check them."""
        from barnabas.wire.generated.create_topics import CreateTopicsRequest as Request

        request = Request(timeout_ms=self._timeout_ms, validate_only=only_check)
        for topic in topics:
            made = Request.CreatableTopic(topic.name, topic.partitions, topic.replication_factor)
            if topic.replicas:
                made.num_partitions = made.replication_factor = -1
                made.assignments = [
                    Request.CreatableReplicaAssignment(number, list(brokers))
                    for number, brokers in sorted(topic.replicas.items())
                ]
            made.configs = [Request.CreatableTopicConfig(*one) for one in (topic.configs or {}).items()]
            request.topics.append(made)
        response = await self.client.ask_controller(request, error_of=lambda answer: _first(answer.topics))
        return {
            one.name: outcome(one.error_code, f"creating topic {one.name!r}", one.error_message)
            for one in response.topics
        }

    async def delete_topics(self, names: Iterable[str]) -> dict[str, Outcome]:
        """Delete topics with all that they hold."""
        from barnabas.wire.generated.delete_topics import DeleteTopicsRequest as Request

        request = Request(timeout_ms=self._timeout_ms)
        if await self._version(_DELETE_TOPICS) >= _DELETES_BY_STATE_SINCE:
            request.topics = [Request.DeleteTopicState(name=name) for name in names]
        else:
            request.topic_names = list(names)
        response = await self.client.ask_controller(request, error_of=lambda answer: _first(answer.responses))
        return {
            one.name or "": outcome(one.error_code, f"deleting topic {one.name!r}", one.error_message)
            for one in response.responses
        }

    async def create_partitions(
        self, counts: Mapping[str, int], *, only_check: bool = False
    ) -> dict[str, Outcome]:
        """Have topics have so many partitions in all."""
        from barnabas.wire.generated.create_partitions import CreatePartitionsRequest as Request

        topics = [Request.CreatePartitionsTopic(name, count, None) for name, count in counts.items()]
        request = Request(topics, self._timeout_ms, only_check)
        response = await self.client.ask_controller(request, error_of=lambda answer: _first(answer.results))
        return {
            one.name: outcome(one.error_code, f"adding partitions to {one.name!r}", one.error_message)
            for one in response.results
        }

    async def offsets(
        self, times: Mapping[TopicPartition, int], *, is_committed: bool = False
    ) -> dict[TopicPartition, OffsetAt | ClientError]:
        """Return the offset of the first record at or after a time (ms), or of EARLIEST, LATEST, MAX_TIMESTAMP.

        `is_committed`: LATEST is the end of what transactions have decided.
        """
        from barnabas.wire.generated.list_offsets import ListOffsetsRequest as Request

        async def ask(
            broker: int, partitions: list[TopicPartition]
        ) -> dict[TopicPartition, OffsetAt | ClientError]:
            connection = await self.client.broker(broker)
            version = connection.version_of(_LIST_OFFSETS)
            if version < _MAX_TIMESTAMP_SINCE and any(times[one] == MAX_TIMESTAMP for one in partitions):
                raise UnsupportedVersionError(f"{connection.peer} does not look up the newest timestamp")
            request = Request(replica_id=-1, isolation_level=int(is_committed and version >= 2))
            request.topics = [
                Request.ListOffsetsTopic(
                    topic, [Request.ListOffsetsPartition(one, timestamp=times[topic, one]) for one in numbers]
                )
                for topic, numbers in by_topic(partitions).items()
            ]
            response = await connection.ask(request, version=version)
            return {
                (topic.name, one.partition_index): outcome(
                    one.error_code, f"looking up an offset of {topic.name}-{one.partition_index}"
                )
                or OffsetAt(
                    one.offset if version else next(iter(one.old_style_offsets), -1),
                    one.timestamp,
                    one.leader_epoch,
                )
                for topic in response.topics
                for one in topic.partitions
            }

        return await self._of_leaders(times, ask)

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | ClientError]:
        """Cut partitions off before an offset, -1 for all they hold; returns their first offsets from then on."""
        from barnabas.wire.generated.delete_records import DeleteRecordsRequest as Request

        async def ask(
            broker: int, partitions: list[TopicPartition]
        ) -> dict[TopicPartition, int | ClientError]:
            topics = [
                Request.DeleteRecordsTopic(
                    topic, [Request.DeleteRecordsPartition(one, before[topic, one]) for one in numbers]
                )
                for topic, numbers in by_topic(partitions).items()
            ]
            response = await (await self.client.broker(broker)).ask(Request(topics, self._timeout_ms))
            found: dict[TopicPartition, int | ClientError] = {}
            for topic in response.topics:
                for one in topic.partitions:
                    error = outcome(one.error_code, f"cutting off {topic.name}-{one.partition_index}")
                    found[topic.name, one.partition_index] = error or one.low_watermark
            return found

        return await self._of_leaders(before, ask)


def _info(topic: MetadataResponse.MetadataResponseTopic) -> TopicInfo:
    partitions = tuple(
        PartitionInfo(
            one.partition_index,
            one.leader_id,
            one.leader_epoch,
            tuple(one.replica_nodes),
            tuple(one.isr_nodes),
            tuple(one.offline_replicas),
        )
        for one in sorted(topic.partitions, key=lambda one: one.partition_index)
    )
    topic_id = uuid_text(bytes(topic.topic_id)) if topic.topic_id != _NO_ID else ""
    return TopicInfo(topic.name or "", topic_id, topic.is_internal, partitions)


def _first(results: list[object]) -> int:
    """Return NOT_CONTROLLER if the answer is that, for which the controller is looked for again."""
    codes = [getattr(one, "error_code", 0) for one in results]
    return ErrorCode.NOT_CONTROLLER if ErrorCode.NOT_CONTROLLER in codes else 0


def partitions_of(topics: Mapping[str, TopicInfo | ClientError]) -> list[TopicPartition]:
    """Return all partitions of topics that are there."""
    return [
        (name, one.number)
        for name, topic in topics.items()
        if not isinstance(topic, ClientError)
        for one in topic.partitions
    ]


__all__ = [
    "EARLIEST", "LATEST", "MAX_TIMESTAMP", "NewTopic", "OffsetAt", "PartitionInfo", "ResponseError", "TopicInfo",
    "Topics", "partitions_of",
]  # fmt: skip
