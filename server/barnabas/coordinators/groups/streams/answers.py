"""Parts of the response to a StreamsGroupHeartbeat: tasks, faults of the group, endpoints for queries. Pure.

The rule: nothing is decided here.
"""

from __future__ import annotations

from barnabas.coordinators.groups.streams.group import StreamsGroup
from barnabas.coordinators.groups.streams.member import StreamsMember
from barnabas.coordinators.groups.streams.tasks import ACTIVE, STANDBY, WARMUP, of_role
from barnabas.coordinators.groups.streams.topology import Configured, Status
from barnabas.wire.generated.records.streams_group_topology import StreamsGroupTopologyValue
from barnabas.wire.generated.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)


def task_ids(role: str, member: StreamsMember) -> list[StreamsGroupHeartbeatResponse.TaskIds]:
    """Return the member's tasks of a role."""
    return [
        StreamsGroupHeartbeatResponse.TaskIds(subtopology_id=name, partitions=numbers)
        for name, numbers in of_role(role, member.assigned)
    ]


def status(
    group: StreamsGroup,
    member: StreamsMember,
    topology: StreamsGroupTopologyValue,
    configured: Configured,
    delayed_by: str,
    tags: tuple[str, ...] = (),
) -> list[StreamsGroupHeartbeatResponse.Status]:
    """Return the statuses of unusual conditions.

    `delayed_by` is the reason why the newest epoch has no target yet, "" if it has a target; `tags` are the tags that a
    member must have.
    """
    statuses: list[tuple[Status, str]] = []
    if member.topology_epoch < topology.epoch:
        statuses.append(
            (
                Status.STALE_TOPOLOGY,
                f"The member's topology epoch {member.topology_epoch} is behind the group's {topology.epoch}.",
            )
        )
    if delayed_by:
        statuses.append(
            (Status.ASSIGNMENT_DELAYED, f"Assignment delayed due to the configured {delayed_by}.")
        )
    if configured.problem is not None:
        statuses.append(configured.problem)
    if group.shutdown_by is not None:
        statuses.append(
            (Status.SHUTDOWN_APPLICATION, f"Member {group.shutdown_by} asked all members to stop.")
        )
    missing = [tag for tag in tags if tag not in dict(member.client_tags)]
    if missing:
        statuses.append(
            (
                Status.MISSING_CLIENT_TAGS,
                f"The assignment of standby tasks needs client tags that the member lacks: {', '.join(missing)}. "
                "Set them as client.tag.NAME in the configuration of Kafka Streams.",
            )
        )
    return [
        StreamsGroupHeartbeatResponse.Status(status_code=code, status_detail=text) for code, text in statuses
    ]


def to_tell_endpoints(
    group: StreamsGroup,
    member: StreamsMember,
    request: StreamsGroupHeartbeatRequest,
    response: StreamsGroupHeartbeatResponse,
) -> tuple[StreamsMember, ...]:
    """Return the endpoints for queries, if the member does not have the newest yet."""
    response.endpoint_information_epoch = group.endpoints_epoch
    if group.endpoints_epoch == request.endpoint_information_epoch:
        return ()
    response.partitions_by_user_endpoint = []
    return tuple(other for other in group.members_with(member) if other.endpoint is not None)


def endpoint_of(
    member: StreamsMember, configured: Configured
) -> StreamsGroupHeartbeatResponse.EndpointToPartitions:
    """Return a member's endpoint for queries, and the partitions that it serves."""
    assert member.endpoint is not None
    return StreamsGroupHeartbeatResponse.EndpointToPartitions(
        user_endpoint=StreamsGroupHeartbeatResponse.Endpoint(
            host=member.endpoint[0], port=member.endpoint[1]
        ),
        active_partitions=_read_by(member, (ACTIVE,), configured),
        standby_partitions=_read_by(member, (STANDBY, WARMUP), configured),
    )


def _read_by(
    member: StreamsMember, roles: tuple[str, ...], configured: Configured
) -> list[StreamsGroupHeartbeatResponse.TopicPartition]:
    topics: dict[str, set[int]] = {}
    for role, subtopology, partition in member.assigned:
        shape = configured.shapes.get(subtopology)
        if role in roles and shape is not None:
            # a topic may have fewer partitions than tasks: a subtopology has as many tasks as its largest topic has
            # partitions
            for topic in (name for name in shape.source_topics if partition < configured.sizes[name]):
                topics.setdefault(topic, set()).add(partition)
    return [
        StreamsGroupHeartbeatResponse.TopicPartition(topic=topic, partitions=sorted(numbers))
        for topic, numbers in sorted(topics.items())
    ]
