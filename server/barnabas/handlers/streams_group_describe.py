"""StreamsGroupDescribe v0-v1. State, topology, members and tasks of streams groups (KIP-1071).

v1 names the assignor (KIP-1357) and can ask for the description of the topology (KIP-1331); none is stored here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from barnabas.coordinators.groups.shard import GroupShard
from barnabas.coordinators.groups.streams.group import StreamsGroup
from barnabas.coordinators.groups.streams.member import StreamsMember
from barnabas.coordinators.groups.streams.offsets import TaskOffsets
from barnabas.coordinators.groups.streams.tasks import NO_TASKS, ROLES, Task, TaskId, Tasks, of_role
from barnabas.coordinators.statemachine.decision import EVENT_SIZE_MAX
from barnabas.handlers.shared.describing import GroupsDescribed, MemberToDescribe
from barnabas.wire.generated.records.streams_group_topology import StreamsGroupTopologyValue
from barnabas.wire.generated.streams_group_describe import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)

if TYPE_CHECKING:
    from barnabas.serving.context import RequestContext

Response = StreamsGroupDescribeResponse
Described = StreamsGroupDescribeResponse.DescribedGroup

DESCRIPTION_NOT_STORED = 1
ASSIGNOR = "sticky"


class StreamsGroupDescribe(GroupsDescribed):
    """Handler of StreamsGroupDescribe."""

    async def handle(
        self, context: RequestContext, request: StreamsGroupDescribeRequest
    ) -> StreamsGroupDescribeResponse:
        """Describe each group on its own."""
        groups = await self.describe_each(
            context,
            request,
            _describe,
            Described,
            _topics_used,
            is_large=_is_large,
        )
        if request.include_topology_description:
            for described in groups:
                if not described.error_code:
                    described.topology_description_status = DESCRIPTION_NOT_STORED
        return Response(groups=groups)


def _topics_used(group: Described) -> Iterator[str]:
    """Return the topics of a group's topology."""
    for part in group.topology.subtopologies or () if group.topology is not None else ():
        yield from part.source_topics
        yield from part.repartition_sink_topics
        for topics in (part.repartition_source_topics, part.state_changelog_topics):
            yield from (topic.name for topic in topics)


def _is_large(group_id: str, shard: GroupShard) -> bool:
    """Return whether the topology of a group is too long to be described in one turn of the event loop."""
    return shard.event_size(group_id, "") > EVENT_SIZE_MAX


def _describe(group_id: str, shard: GroupShard) -> tuple[Described, Iterator[MemberToDescribe]]:
    group = shard.streams_group(group_id)
    members = [
        (member, group.target.get(member.id, NO_TASKS), group.offsets_of(member.id))
        for member in group.members.values()
    ]
    described = Described(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=ASSIGNOR,
        topology=_topology(group),
    )
    return described, (
        MemberToDescribe(
            len(member.assigned)
            + len(member.revoking)
            + len(target)
            + len(reported.offsets)
            + len(reported.ends),
            partial(_member, member, target, reported),
        )
        for member, target, reported in members
    )


def _topology(group: StreamsGroup) -> Response.Topology | None:
    """The topology with the sizes that its internal topics have, where they are known."""
    if group.topology is None:
        return None
    configured = group.configured
    sizes = configured.sizes if configured is not None and configured.is_ready else {}
    return Response.Topology(
        epoch=group.topology.epoch,
        subtopologies=[
            Response.Subtopology(
                subtopology_id=part.subtopology_id,
                source_topics=sorted(part.source_topics),
                repartition_sink_topics=part.repartition_sink_topics,
                state_changelog_topics=_topics(part.state_changelog_topics, sizes),
                repartition_source_topics=_topics(part.repartition_source_topics, sizes),
            )
            for part in group.topology.subtopologies
        ],
    )


def _topics(
    infos: Iterable[StreamsGroupTopologyValue.TopicInfo], sizes: Mapping[str, int]
) -> list[Response.TopicInfo]:
    return [
        Response.TopicInfo(
            name=info.name,
            partitions=sizes.get(info.name, info.partitions),
            replication_factor=info.replication_factor,
            topic_configs=[
                Response.KeyValue(key=entry.key, value=entry.value) for entry in info.topic_configs
            ],
        )
        for info in sorted(infos, key=lambda info: info.name)
    ]


def _member(member: StreamsMember, target: Tasks, reported: TaskOffsets) -> Response.Member:
    endpoint = member.endpoint
    return Response.Member(
        member_id=member.id,
        member_epoch=member.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else Response.Endpoint(host=endpoint[0], port=endpoint[1]),
        client_tags=[Response.KeyValue(key=key, value=value) for key, value in member.client_tags],
        task_offsets=_offsets(reported.offsets),
        task_end_offsets=_offsets(reported.ends),
        assignment=_assignment(member.assigned),
        target_assignment=_assignment(target),
    )


def _offsets(offsets: Mapping[TaskId, int]) -> list[Response.TaskOffset]:
    return [
        Response.TaskOffset(subtopology_id=name, partition=partition, offset=offset)
        for (name, partition), offset in sorted(offsets.items())
    ]


def _assignment(tasks: Iterable[Task]) -> Response.Assignment:
    held = list(tasks)
    active, standby, warmup = (
        [Response.TaskIds(subtopology_id=name, partitions=numbers) for name, numbers in of_role(role, held)]
        for role in ROLES
    )
    return Response.Assignment(active_tasks=active, standby_tasks=standby, warmup_tasks=warmup)
