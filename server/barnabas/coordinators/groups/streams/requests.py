"""Checks of a StreamsGroupHeartbeat's fields, and readers of its topology and its tasks. Pure.

The rule: nothing here depends on the group.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.cluster.metadata.topic_decisions import check_topic_name
from barnabas.coordinators.groups.epoch_member import LEAVE_FOR_A_WHILE_EPOCH
from barnabas.coordinators.groups.streams.offsets import check_offsets
from barnabas.coordinators.groups.streams.tasks import Tasks, read_tasks
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.records.streams_group_topology import StreamsGroupTopologyValue
from barnabas.wire.generated.streams_group_heartbeat import StreamsGroupHeartbeatRequest


def check_heartbeat(request: StreamsGroupHeartbeatRequest) -> None:
    """Check that the fields are consistent. Raises INVALID_REQUEST, STREAMS_INVALID_TOPOLOGY."""
    why = _not_served(request) or _wrong(request)
    if why:
        raise RequestError(ErrorCode.INVALID_REQUEST, why)
    check_offsets(request)
    if request.topology is not None:
        _check_topology(request.topology)


def _not_served(request: StreamsGroupHeartbeatRequest) -> str:
    """Return the name of a requested feature that Kafka does not serve either; empty if all are served."""
    parts = request.topology.subtopologies if request.topology is not None else ()
    if any(part.source_topic_regex for part in parts):
        return "streams groups have no source topics by regular expression"
    return ""


def _wrong(request: StreamsGroupHeartbeatRequest) -> str:
    for what, value in (
        ("member id", request.member_id),
        ("group id", request.group_id),
        ("instance id", request.instance_id),
        ("rack id", request.rack_id),
    ):
        if value is not None and not value.strip():
            return f"the {what} is empty"
    tasks = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    epoch = request.member_epoch
    if epoch < LEAVE_FOR_A_WHILE_EPOCH:
        return f"there is no member epoch {epoch}"
    if epoch == LEAVE_FOR_A_WHILE_EPOCH and request.instance_id is None:
        return "only a member with an instance id leaves for a while"
    if epoch == 0 and request.rebalance_timeout_ms == -1:
        return "who joins must give a rebalance timeout"
    if epoch == 0 and any(entries is None or entries for entries in tasks):
        return "who joins must report that it has no tasks"
    if (epoch == 0) != (request.topology is not None):
        return "a topology comes with joining, and only then"
    tags = [tag.key for tag in request.client_tags or ()]
    if len(set(tags)) < len(tags):
        return "a client tag comes twice"
    if any(entries is None for entries in tasks) and not all(entries is None for entries in tasks):
        return "the tasks of all roles are reported together, or none"
    return ""


def _check_topology(topology: StreamsGroupHeartbeatRequest.Topology) -> None:
    why = ""
    ids = [part.subtopology_id for part in topology.subtopologies]
    if len(set(ids)) < len(ids):
        why = "a subtopology comes twice"
    for part in topology.subtopologies:
        infos = (*part.state_changelog_topics, *part.repartition_source_topics)
        for name in (*part.source_topics, *part.repartition_sink_topics, *(info.name for info in infos)):
            try:
                check_topic_name(name)
            except RequestError as error:
                why = error.message
        if any(topic.partitions for topic in part.state_changelog_topics):
            why = "the partitions of changelog topics are not the application's to say"
        for group in part.copartition_groups:
            counts = (len(part.source_topics), len(part.repartition_source_topics))
            for indexes, count in zip(
                (group.source_topics, group.repartition_source_topics), counts, strict=True
            ):
                if any(not 0 <= index < count for index in indexes):
                    raise RequestError(
                        ErrorCode.INVALID_REQUEST, "a copartition group names a topic that is not there"
                    )
    if why:
        raise RequestError(ErrorCode.STREAMS_INVALID_TOPOLOGY, why)


def reported_tasks(request: StreamsGroupHeartbeatRequest) -> Tasks | None:
    """Return the tasks in a member's report, None without a report."""
    if request.active_tasks is None or request.standby_tasks is None or request.warmup_tasks is None:
        return None
    return read_tasks(request.active_tasks, request.standby_tasks, request.warmup_tasks)


def topology_value(brought: StreamsGroupHeartbeatRequest.Topology) -> StreamsGroupTopologyValue:
    """Return the topology as the value of a record, in an order that is the same for every member.

    Source topics keep their order, as copartition groups refer to it.
    """
    value = StreamsGroupTopologyValue

    def topics(
        infos: Iterable[StreamsGroupHeartbeatRequest.TopicInfo],
    ) -> list[StreamsGroupTopologyValue.TopicInfo]:
        return [
            value.TopicInfo(
                name=info.name,
                partitions=info.partitions,
                replication_factor=info.replication_factor,
                topic_configs=[
                    value.TopicConfig(key=entry.key, value=entry.value)
                    for entry in sorted(info.topic_configs, key=lambda entry: entry.key)
                ],
            )
            for info in infos
        ]

    return value(
        epoch=brought.epoch,
        subtopologies=[
            value.Subtopology(
                subtopology_id=part.subtopology_id,
                source_topics=list(part.source_topics),
                state_changelog_topics=sorted(
                    topics(part.state_changelog_topics), key=lambda topic: topic.name
                ),
                repartition_sink_topics=sorted(part.repartition_sink_topics),
                repartition_source_topics=topics(part.repartition_source_topics),
                copartition_groups=[
                    value.CopartitionGroup(
                        source_topics=list(joined.source_topics),
                        repartition_source_topics=list(joined.repartition_source_topics),
                    )
                    for joined in part.copartition_groups
                ],
            )
            for part in sorted(brought.subtopologies, key=lambda part: part.subtopology_id)
        ],
    )
