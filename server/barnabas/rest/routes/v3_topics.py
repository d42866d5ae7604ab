"""Routes of v3: topics, partitions, replicas, reassignments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from barnabas.client.admin import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    NewTopic,
    OffsetAt,
    PartitionInfo,
    Reassignment,
    TopicInfo,
)
from barnabas.client.administration.words import OPERATIONS
from barnabas.rest.base import INT32_MAX, V3, Answer, Call, Fields, Parameter, Route
from barnabas.rest.errors import RestError
from barnabas.rest.resources import at, cluster_of, collection, partition_of, related, resource, topic_of
from barnabas.wire.generated.metadata import MetadataRequest

CONFIGS_MAX = 1_000
ASSIGNMENTS_MAX = 10_000
_OFFSET_TYPES = {
    "earliest_and_latest": (EARLIEST, LATEST),
    "earliest": (EARLIEST, None),
    "latest": (None, LATEST),
    "max_timestamp": (None, MAX_TIMESTAMP),
}


def topic_row(
    call: Call, cluster_id: str, name: str, *, is_internal: bool, replication: int, partitions: int,
    operations: Iterable[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """Return a topic as a resource."""
    segments = at(cluster_id, "topics", name)
    fields = {
        "cluster_id": cluster_id,
        "topic_name": name,
        "is_internal": is_internal,
        "replication_factor": replication,
        "partitions_count": partitions,
        "partitions": related(call, *segments, "partitions"),
        "configs": related(call, *segments, "configs"),
        "partition_reassignments": related(call, *segments, "partitions", "-", "reassignment"),
        "authorized_operations": sorted(operations),
    }
    return resource(call, "KafkaTopic", segments, [("kafka", cluster_id), ("topic", name)], fields)


def _replication(topic: TopicInfo) -> int:
    return max((len(partition.replicas) for partition in topic.partitions), default=0)


async def _operations(call: Call, names: list[str]) -> dict[str, list[str]]:
    """Return the user's permitted operations on topics."""
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    response = await call.backend.client.ask(request, version_max=12)
    return {
        topic.name or "": [
            name.upper().replace("-", "_")
            for bit, name in enumerate(OPERATIONS)
            if topic.topic_authorized_operations > 0 and topic.topic_authorized_operations >> bit & 1
        ]
        for topic in response.topics
    }


async def list_topics(call: Call) -> object:
    """Return all topics."""
    cluster_id = await cluster_of(call)
    topics: dict[str, tuple[bool, int, int]] = {}
    async for page in call.backend.admin.pages():
        for topic in page:
            before = topics.get(topic.name, (False, 0, 0))
            topics[topic.name] = (
                topic.is_internal, max(before[1], _replication(topic)), before[2] + len(topic.partitions),
            )  # fmt: skip
    operations: dict[str, list[str]] = {}
    if call.flag("includeAuthorizedOperations"):
        names = [*topics]
        for begin in range(0, len(names), 500):
            operations |= await _operations(call, names[begin : begin + 500])
    data = [
        topic_row(
            call, cluster_id, name, is_internal=is_internal, replication=replication, partitions=partitions,
            operations=operations.get(name, ()),
        )
        for name, (is_internal, replication, partitions) in topics.items()
    ]  # fmt: skip
    return collection(call, "KafkaTopic", at(cluster_id, "topics"), data)


async def show_topic(call: Call) -> object:
    """Return a topic."""
    cluster_id = await cluster_of(call)
    topic = await topic_of(call)
    operations: dict[str, list[str]] = {}
    if call.flag("include_authorized_operations"):
        operations = await _operations(call, [topic.name])
    return topic_row(
        call, cluster_id, topic.name, is_internal=topic.is_internal, replication=_replication(topic),
        partitions=len(topic.partitions), operations=operations.get(topic.name, ()),
    )  # fmt: skip


async def create_topic(call: Call) -> object:
    """Create a topic."""
    cluster_id = await cluster_of(call)
    fields = await call.fields(
        "topic_name",
        "partitions_count",
        "replication_factor",
        "replicas_assignments",
        "configs",
        "validate_only",
    )
    name = fields.name("topic_name")
    if not name.strip():
        raise RestError(422, 42206, "topic_name is not empty")
    partitions = fields.whole("partitions_count", -1, least=-1)
    replication = fields.whole("replication_factor", -1, least=-1, most=2**15 - 1)
    replicas = _assignments(fields.get("replicas_assignments", list, []))
    configs: dict[str, str] = {}
    for value in fields.get("configs", list, [])[: CONFIGS_MAX + 1]:
        setting = Fields(value, "name", "value", what="a setting")
        text = setting.get("value", str, None)
        if text is not None:
            configs[setting.get("name", str)] = text
    if len(configs) > CONFIGS_MAX:
        raise RestError(413, 413, f"a topic is created with at most {CONFIGS_MAX} settings")
    only_check = fields.get("validate_only", bool, False)
    new_topic = NewTopic(name, partitions, replication, configs, replicas or None)
    outcome = (await call.backend.admin.create_topics([new_topic], only_check=only_check)).get(name)
    if outcome is not None:
        raise outcome
    row = topic_row(
        call, cluster_id, name, is_internal=False,
        replication=replication if replication >= 0 else max(map(len, replicas.values()), default=0),
        partitions=max(partitions, len(replicas), 0),
    )  # fmt: skip
    if not only_check and (partitions < 0 or replication < 0):
        described = (await call.backend.admin.topics([name])).get(name)
        if isinstance(described, TopicInfo):
            row |= {
                "replication_factor": _replication(described),
                "partitions_count": len(described.partitions),
            }
    location = call.url(*at(cluster_id, "topics", name))
    return Answer(row, 200 if only_check else 201, [("Location", location)])


def _assignments(values: list[Any]) -> dict[int, tuple[int, ...]]:
    if len(values) > ASSIGNMENTS_MAX:
        raise RestError(413, 413, f"a topic is created with at most {ASSIGNMENTS_MAX} partitions")
    replicas: dict[int, tuple[int, ...]] = {}
    for value in values:
        fields = Fields(value, "partition_id", "broker_ids", what="an assignment")
        brokers = fields.get("broker_ids", list)
        if not all(type(broker) is int and 0 <= broker <= INT32_MAX for broker in brokers):
            raise RestError(400, 400, "broker_ids is an array of numbers")
        replicas[fields.whole("partition_id")] = tuple(brokers)
    return replicas


async def add_partitions(call: Call) -> object:
    """Raise the number of partitions of a topic."""
    await cluster_of(call)
    fields = await call.fields("partitions_count")
    count = fields.whole("partitions_count", least=1)
    name = call.path["topic_name"]
    outcome = (await call.backend.admin.create_partitions({name: count})).get(name)
    if outcome is not None:
        raise outcome
    return await show_topic(call)


async def delete_topic(call: Call) -> object:
    """Delete a topic."""
    await cluster_of(call)
    name = call.path["topic_name"]
    outcome = (await call.backend.admin.delete_topics([name])).get(name)
    if outcome is not None:
        raise outcome
    return None


# --- partitions and replicas ------------------------------------------------------------------------------------


def _partition_row(call: Call, cluster_id: str, topic: str, partition: PartitionInfo) -> dict[str, Any]:
    segments = at(cluster_id, "topics", topic, "partitions", partition.number)
    fields: dict[str, Any] = {
        "cluster_id": cluster_id, "topic_name": topic, "partition_id": partition.number,
    }  # fmt: skip
    if partition.leader >= 0:
        fields["leader"] = related(call, *segments, "replicas", partition.leader)
    fields |= {
        "replicas": related(call, *segments, "replicas"),
        "reassignment": related(call, *segments, "reassignment"),
    }
    names = [("kafka", cluster_id), ("topic", topic), ("partition", partition.number)]
    return resource(call, "KafkaPartition", segments, names, fields)


async def list_partitions(call: Call) -> object:
    """Return the partitions of a topic."""
    cluster_id = await cluster_of(call)
    topic = await topic_of(call)
    data = [_partition_row(call, cluster_id, topic.name, partition) for partition in topic.partitions]
    return collection(call, "KafkaPartition", at(cluster_id, "topics", topic.name, "partitions"), data)


async def show_partition(call: Call) -> object:
    """Return a partition."""
    cluster_id = await cluster_of(call)
    partition = await partition_of(call)
    return _partition_row(call, cluster_id, call.path["topic_name"], partition)


async def show_offsets(call: Call) -> object:
    """Return the start or end offset of a partition, or both."""
    cluster_id = await cluster_of(call)
    kind = call.query.get("offset_type") or "earliest_and_latest"
    if kind not in _OFFSET_TYPES:
        raise RestError(400, 400, f"offset_type is one of {', '.join(_OFFSET_TYPES)}")
    partition = await partition_of(call)
    topic = call.path["topic_name"]
    segments = at(cluster_id, "topics", topic, "partitions", partition.number, "offset")
    fields: dict[str, Any] = {
        "cluster_id": cluster_id, "topic_name": topic, "partition_id": partition.number,
    }  # fmt: skip
    for name, time in zip(("earliest_offset", "latest_offset"), _OFFSET_TYPES[kind], strict=True):
        fields[name] = None
        if time is not None:
            place = (topic, partition.number)
            offset = (await call.backend.admin.offsets({place: time}))[place]
            if not isinstance(offset, OffsetAt):
                raise offset
            fields[name] = offset.offset
    names = [
        ("kafka", cluster_id), ("topic", topic), ("partition", partition.number), ("offset_type", kind),
    ]  # fmt: skip
    return resource(call, "KafkaPartitionWithOffsets", segments, names, fields)


def replica_rows(
    call: Call, cluster_id: str, topic: str, partition: PartitionInfo, brokers: Iterable[int]
) -> list[dict[str, Any]]:
    """Return replicas of a partition as resources."""
    rows = []
    for broker in brokers:
        segments = at(cluster_id, "topics", topic, "partitions", partition.number, "replicas", broker)
        fields = {
            "cluster_id": cluster_id,
            "topic_name": topic,
            "partition_id": partition.number,
            "broker_id": broker,
            "is_leader": broker == partition.leader,
            "is_in_sync": broker in partition.in_sync,
            "broker": related(call, *at(cluster_id, "brokers", broker)),
        }
        names = [
            ("kafka", cluster_id), ("topic", topic), ("partition", partition.number), ("replica", broker),
        ]  # fmt: skip
        rows.append(resource(call, "KafkaReplica", segments, names, fields))
    return rows


async def list_replicas(call: Call) -> object:
    """Return the replicas of a partition."""
    cluster_id = await cluster_of(call)
    partition = await partition_of(call)
    topic = call.path["topic_name"]
    data = replica_rows(call, cluster_id, topic, partition, partition.replicas)
    segments = at(cluster_id, "topics", topic, "partitions", partition.number, "replicas")
    return collection(call, "KafkaReplica", segments, data)


async def show_replica(call: Call) -> object:
    """Return a replica."""
    cluster_id = await cluster_of(call)
    broker = call.number("broker_id")
    partition = await partition_of(call)
    if broker not in partition.replicas:
        raise RestError(404, 404, f"broker {broker} has no replica of this partition")
    return replica_rows(call, cluster_id, call.path["topic_name"], partition, [broker])[0]


# --- reassignments ----------------------------------------------------------------------------------------------


def _reassignment_row(
    call: Call, cluster_id: str, topic: str, number: int, reassignment: Reassignment
) -> dict[str, Any]:
    segments = at(cluster_id, "topics", topic, "partitions", number)
    fields = {
        "cluster_id": cluster_id,
        "topic_name": topic,
        "partition_id": number,
        "adding_replicas": list(reassignment.adding),
        "removing_replicas": list(reassignment.removing),
        "replicas": related(call, *segments, "replicas"),
    }
    names = [
        ("kafka", cluster_id), ("topic", topic), ("partition", number), ("reassignment", None),
    ]  # fmt: skip
    return resource(call, "KafkaReassignment", (*segments, "reassignment"), names, fields)


async def list_reassignments(call: Call) -> object:
    """Return the partitions that are being moved, all or those of a topic."""
    cluster_id = await cluster_of(call)
    name = call.path.get("topic_name")
    if name is not None:
        await topic_of(call)
    data = [
        _reassignment_row(call, cluster_id, topic, number, reassignment)
        for (topic, number), reassignment in sorted((await call.backend.admin.reassignments()).items())
        if name in (None, topic)
    ]
    segments = at(cluster_id, "topics", name or "-", "partitions", "-", "reassignment")
    return collection(call, "KafkaReassignment", segments, data)


async def show_reassignment(call: Call) -> object:
    """Return the move of a partition."""
    cluster_id = await cluster_of(call)
    partition = await partition_of(call)
    topic = call.path["topic_name"]
    reassignment = (await call.backend.admin.reassignments()).get((topic, partition.number))
    if reassignment is None:
        raise RestError(404, 404, f"{topic}-{partition.number} is not being moved")
    return _reassignment_row(call, cluster_id, topic, partition.number, reassignment)


_TOPICS = "/v3/clusters/{cluster_id}/topics"
_TOPIC = _TOPICS + "/{topic_name}"
_PARTITION = _TOPIC + "/partitions/{partition_id}"
ROUTES = (
    Route(
        "GET", _TOPICS, list_topics, "Topics", V3,
        (Parameter("includeAuthorizedOperations", "boolean", "what the user may do with each (false)"),),
    ),
    Route(
        "POST", _TOPICS, create_topic, "Create a topic", V3, status=201,
        body=(
            Parameter("topic_name", "string", "its name"),
            Parameter("partitions_count", "integer", "its partitions (the broker's default)"),
            Parameter("replication_factor", "integer", "their replicas (the broker's default)"),
            Parameter("replicas_assignments", "array", "or objects with `partition_id` and `broker_ids`"),
            Parameter("configs", "array", "objects with `name` and `value`"),
            Parameter("validate_only", "boolean", "true to check, and create nothing (false)"),
        ),
    ),
    Route("GET", f"{_TOPICS}/-/partitions/-/reassignment", list_reassignments, "Partitions that are being moved", V3),
    Route(
        "GET", _TOPIC, show_topic, "A topic", V3,
        (Parameter("include_authorized_operations", "boolean", "what the user may do with it (false)"),),
    ),
    Route(
        "PATCH", _TOPIC, add_partitions, "Add partitions to a topic", V3,
        body=(Parameter("partitions_count", "integer", "the new number of all"),),
    ),
    Route("DELETE", _TOPIC, delete_topic, "Delete a topic", V3, status=204),
    Route("GET", f"{_TOPIC}/partitions", list_partitions, "Partitions of a topic", V3),
    Route(
        "GET", f"{_TOPIC}/partitions/-/reassignment", list_reassignments, "Partitions of a topic that are being moved", V3
    ),
    Route("GET", _PARTITION, show_partition, "A partition", V3),
    Route(
        "GET", f"{_PARTITION}/offset", show_offsets, "The first offset, and that after the last", V3,
        (Parameter("offset_type", "string", f"one of {', '.join(_OFFSET_TYPES)} (earliest_and_latest)"),),
    ),
    Route("GET", f"{_PARTITION}/reassignment", show_reassignment, "The move of a partition", V3),
    Route("GET", f"{_PARTITION}/replicas", list_replicas, "Replicas of a partition", V3),
    Route("GET", _PARTITION + "/replicas/{broker_id}", show_replica, "A replica", V3),
)  # fmt: skip
