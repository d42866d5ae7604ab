"""Joining, staying in and leaving a streams group by StreamsGroupHeartbeat. Pure.

The rule is that of consumer groups: the member as it says it is; the group's epoch, one higher if anything that the
assignment depends on has changed; the target, if it is behind the epoch; one step of this member towards it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from barnabas.errors import RequestError
from barnabas.groups.consumer.member import LEAVE_EPOCH, LEAVE_FOR_A_WHILE_EPOCH, MemberState
from barnabas.groups.consumer.reconciliation import reconcile
from barnabas.groups.streams import records
from barnabas.groups.streams.assignor import Worker, assign_tasks
from barnabas.groups.streams.group import StreamsGroup
from barnabas.groups.streams.member import StreamsMember
from barnabas.groups.streams.tasks import ACTIVE, NO_TASKS, STANDBY, WARMUP, Tasks, of_role, read_tasks
from barnabas.groups.streams.topology import Configured, InternalTopic, Status, configure, required_topics
from barnabas.groups.topics import topics_hash
from barnabas.groups.turn import Turn
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.records.streams_group_topology import StreamsGroupTopologyValue
from barnabas.wire.generated.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

TASK_OFFSET_INTERVAL_MS = 60_000
"""How often members are to report how far their stores are; nothing is done with it yet."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A StreamsGroupHeartbeat request with what the handler knows beyond its fields."""

    request: StreamsGroupHeartbeatRequest
    client_id: str
    client_host: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The response, and the topics that the broker is to make for the application."""

    response: StreamsGroupHeartbeatResponse
    to_create: tuple[InternalTopic, ...] = ()


def check_heartbeat(request: StreamsGroupHeartbeatRequest) -> None:
    """Whether the fields fit together. Raises INVALID_REQUEST, STREAMS_INVALID_TOPOLOGY."""
    for what, value in (
        ("member id", request.member_id),
        ("group id", request.group_id),
        ("rack id", request.rack_id),
    ):
        if value is not None and not value.strip():
            raise RequestError(ErrorCode.INVALID_REQUEST, f"the {what} is empty")
    tasks = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    topology, why = request.topology, ""
    if request.instance_id is not None:
        why = "streams groups have no static members"
    elif request.member_epoch < LEAVE_FOR_A_WHILE_EPOCH:
        why = f"there is no member epoch {request.member_epoch}"
    elif request.member_epoch == LEAVE_FOR_A_WHILE_EPOCH:
        why = "only a member with an instance id leaves for a while"
    elif request.member_epoch == 0 and request.rebalance_timeout_ms == -1:
        why = "who joins must give a rebalance timeout"
    elif request.member_epoch == 0 and any(tasks):
        why = "who joins must report that it has no tasks"
    elif (request.member_epoch == 0) != (topology is not None):
        why = "a topology comes with joining, and only then"
    elif any(entries is None for entries in tasks) and not all(entries is None for entries in tasks):
        why = "the tasks of all roles are reported together, or none"
    elif topology is not None and any(part.source_topic_regex for part in topology.subtopologies):
        why = "regular expressions of source topics are not served"
    if why:
        raise RequestError(ErrorCode.INVALID_REQUEST, why)
    if topology is not None:
        _check_topology(topology)


def _check_topology(topology: StreamsGroupHeartbeatRequest.Topology) -> None:
    why = ""
    for part in topology.subtopologies:
        if any(topic.partitions for topic in part.state_changelog_topics):
            why = "the partitions of changelog topics are not the application's to say"
        for group in part.copartition_groups:
            counts = (len(part.source_topics), len(part.repartition_source_topics))
            for indexes, count in zip(
                (group.source_topics, group.repartition_source_topics), counts, strict=True
            ):
                if any(not 0 <= index < count for index in indexes):
                    why = "a copartition group names a topic that is not there"
    if why:
        raise RequestError(ErrorCode.STREAMS_INVALID_TOPOLOGY, why)


def heartbeat(group: StreamsGroup, beat: Heartbeat, turn: Turn) -> Answer:
    """Join or stay. Raises GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, INVALID_REQUEST,
    STREAMS_INVALID_TOPOLOGY_EPOCH.
    """
    request = beat.request
    joins = request.member_epoch == 0
    reported = _reported(request)
    if joins:
        size_max = group.settings.streams_size_max
        if len(group.members) >= size_max and request.member_id not in group.members:
            raise RequestError(
                ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has {size_max} members, which is the most"
            )
        before = group.members.get(request.member_id) or StreamsMember(request.member_id)
    else:
        before = group.member(request.member_id)
        _check_epoch(before, request.member_epoch, reported)
    after = before.after_heartbeat(request, beat.client_id, beat.client_host)
    topology = _settle_topology(group, request, turn)
    configured = _configured(group, topology, turn)
    if configured.is_ready:
        _check_reported(configured, reported)
    after = _advance(group, before, after, topology, configured, reported, turn)
    settings = group.settings.of_streams_group(turn.image, group.id)
    turn.out.timers["session", group.id, after.id] = turn.now_ms + settings.session_timeout_ms
    if request.shutdown_application:
        group.shutdown_by = after.id
    response = StreamsGroupHeartbeatResponse(
        member_id=after.id,
        member_epoch=after.epoch,
        heartbeat_interval_ms=settings.heartbeat_interval_ms,
        task_offset_interval_ms=TASK_OFFSET_INTERVAL_MS,
        status=_status(group, after, topology, configured) or None,
    )
    if joins or after.assigned.keys() != before.assigned.keys():
        response.active_tasks, response.standby_tasks, response.warmup_tasks = (
            _task_ids(role, after) for role in (ACTIVE, STANDBY, WARMUP)
        )
        if after.endpoint is not None:
            group.endpoints_epoch += 1
    _tell_endpoints(group, after, configured, request, response)
    return Answer(response, configured.missing)


def _reported(request: StreamsGroupHeartbeatRequest) -> Tasks | None:
    if request.active_tasks is None or request.standby_tasks is None or request.warmup_tasks is None:
        return None
    return read_tasks(request.active_tasks, request.standby_tasks, request.warmup_tasks)


def _check_epoch(member: StreamsMember, epoch: int, reported: Tasks | None) -> None:
    """One that is behind by an answer that was lost may go on, if it runs nothing that it should not."""
    if epoch == member.epoch:
        return
    may_go_on = epoch == member.previous_epoch and reported is not None and reported <= member.assigned.keys()
    if epoch > member.epoch or not may_go_on:
        raise RequestError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"the member is in epoch {member.epoch}, not {epoch}: it must give up all and join again",
        )


def _check_reported(configured: Configured, reported: Tasks | None) -> None:
    for _, subtopology, partition in reported or ():
        shape = configured.shapes.get(subtopology)
        if shape is None or not 0 <= partition < shape.tasks:
            raise RequestError(
                ErrorCode.INVALID_REQUEST, f"there is no task {partition} of subtopology {subtopology!r}"
            )


def _settle_topology(
    group: StreamsGroup, request: StreamsGroupHeartbeatRequest, turn: Turn
) -> StreamsGroupTopologyValue:
    """The group's topology: the first one that a member brought. Others may only bring the same, or an older one."""
    if request.topology is None:
        if group.topology is None:
            raise RequestError(ErrorCode.FENCED_MEMBER_EPOCH, "the group's topology is not known: join again")
        return group.topology
    brought = _topology_value(request.topology)
    if group.topology is None:
        turn.out.records.append(records.topology_record(group.id, brought))
        return brought
    if brought.epoch > group.topology.epoch:
        raise RequestError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH,
            f"the group's topology is of epoch {group.topology.epoch}, not {brought.epoch}",
        )
    if brought.epoch == group.topology.epoch and brought != group.topology:
        raise RequestError(ErrorCode.INVALID_REQUEST, "the topology of a group cannot be changed")
    return group.topology


def _topology_value(brought: StreamsGroupHeartbeatRequest.Topology) -> StreamsGroupTopologyValue:
    """The topology as it is written, in an order that does not depend on who brings it.

    Source topics stay in their order, since copartition groups count on it.
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


def _configured(group: StreamsGroup, topology: StreamsGroupTopologyValue, turn: Turn) -> Configured:
    """How the topology fits the topics; looked at again when those are others."""
    if (
        group.configured is None
        or group.topics_seen is not turn.image.topics
        or group.topology is not topology
    ):
        group.configured = configure(topology, turn.image)
    return group.configured


def _advance(
    group: StreamsGroup,
    before: StreamsMember,
    after: StreamsMember,
    topology: StreamsGroupTopologyValue,
    configured: Configured,
    reported: Tasks | None,
    turn: Turn,
) -> StreamsMember:
    """Let a member be what it now says, and take all from there: epoch, target, its next step."""
    out = turn.out
    changed = after != before or after.id not in group.members
    if changed:
        out.records.append(records.member_record(group.id, after))
    new_hash = group.topics_hash
    if group.topics_seen is not turn.image.topics or group.topology is not topology:
        new_hash = topics_hash(required_topics(topology), turn.image)
    validated = topology.epoch if configured.is_ready else -1
    settings = group.settings.of_streams_group(turn.image, group.id)
    used = {"num.standby.replicas": str(settings.standby_replicas)}
    epoch = group.epoch
    known = (group.topics_hash, group.validated_epoch, group.settings_used)
    if changed or epoch == 0 or (new_hash, validated, used) != known:
        epoch += 1
        out.records.append(records.epoch_record(group.id, epoch, new_hash, validated, used))
    target, target_epoch = group.target.get(after.id, NO_TASKS), group.assignment_epoch
    if epoch > target_epoch:
        members = {**group.members, after.id: after}
        target = _write_target(group, members.values(), configured, settings.standby_replicas, epoch, turn)[
            after.id
        ]
        target_epoch = epoch
    moved = reconcile(after, target_epoch, target, group.taken(after.process_id), reported)
    if moved is not after:
        out.records.append(records.current_record(group.id, moved))
        watch_revocation(group, moved, turn)
    group.topics_seen = turn.image.topics
    return moved


def _write_target(
    group: StreamsGroup,
    members: Iterable[StreamsMember],
    configured: Configured,
    standby_replicas: int,
    epoch: int,
    turn: Turn,
) -> dict[str, Tasks]:
    """Let the assignor decide anew, and write what is different; nothing runs while the topology does not fit."""
    workers = [
        Worker(member.id, member.process_id, group.target.get(member.id, NO_TASKS)) for member in members
    ]
    shapes = configured.shapes if configured.is_ready else {}
    target = assign_tasks(workers, shapes, standby_replicas)
    for member_id, tasks in target.items():
        if group.target.get(member_id) != tasks:
            turn.out.records.append(records.target_record(group.id, member_id, tasks))
    turn.out.records.append(records.target_epoch_record(group.id, epoch, turn.now_ms))
    return target


# --- telling ------------------------------------------------------------------------------------------------


def _task_ids(role: str, member: StreamsMember) -> list[StreamsGroupHeartbeatResponse.TaskIds]:
    return [
        StreamsGroupHeartbeatResponse.TaskIds(subtopology_id=name, partitions=numbers)
        for name, numbers in of_role(role, member.assigned)
    ]


def _status(
    group: StreamsGroup, member: StreamsMember, topology: StreamsGroupTopologyValue, configured: Configured
) -> list[StreamsGroupHeartbeatResponse.Status]:
    said: list[tuple[Status, str]] = []
    if member.topology_epoch < topology.epoch:
        said.append(
            (
                Status.STALE_TOPOLOGY,
                f"The member's topology epoch {member.topology_epoch} is behind the group's {topology.epoch}.",
            )
        )
    if configured.problem is not None:
        said.append(configured.problem)
    if group.shutdown_by is not None:
        said.append((Status.SHUTDOWN_APPLICATION, f"Member {group.shutdown_by} asked all members to stop."))
    return [StreamsGroupHeartbeatResponse.Status(status_code=code, status_detail=text) for code, text in said]


def _tell_endpoints(
    group: StreamsGroup,
    member: StreamsMember,
    configured: Configured,
    request: StreamsGroupHeartbeatRequest,
    response: StreamsGroupHeartbeatResponse,
) -> None:
    """Who answers queries for which partitions, to those who do not know the newest yet."""
    response.endpoint_information_epoch = group.endpoints_epoch
    if group.endpoints_epoch == request.endpoint_information_epoch:
        return
    members = {**group.members, member.id: member}
    response.partitions_by_user_endpoint = [
        StreamsGroupHeartbeatResponse.EndpointToPartitions(
            user_endpoint=StreamsGroupHeartbeatResponse.Endpoint(
                host=other.endpoint[0], port=other.endpoint[1]
            ),
            active_partitions=_read_by(other, (ACTIVE,), configured),
            standby_partitions=_read_by(other, (STANDBY, WARMUP), configured),
        )
        for other in members.values()
        if other.endpoint is not None
    ]


def _read_by(
    member: StreamsMember, roles: tuple[str, ...], configured: Configured
) -> list[StreamsGroupHeartbeatResponse.TopicPartition]:
    topics: dict[str, set[int]] = {}
    for role, subtopology, partition in member.assigned:
        shape = configured.shapes.get(subtopology)
        if role in roles and shape is not None:
            for topic in shape.source_topics:
                topics.setdefault(topic, set()).add(partition)
    return [
        StreamsGroupHeartbeatResponse.TopicPartition(topic=topic, partitions=sorted(numbers))
        for topic, numbers in sorted(topics.items())
    ]


# --- leaving ------------------------------------------------------------------------------------------------


def leave(group: StreamsGroup, request: StreamsGroupHeartbeatRequest, turn: Turn) -> Answer:
    """A member says goodbye. Raises UNKNOWN_MEMBER_ID."""
    member = group.member(request.member_id)
    remove(group, member, turn)
    return Answer(StreamsGroupHeartbeatResponse(member_id=member.id, member_epoch=LEAVE_EPOCH, status=None))


def remove(group: StreamsGroup, member: StreamsMember, turn: Turn) -> None:
    """A member is gone; the group's epoch rises, and the next heartbeat finds a new target."""
    turn.out.records += records.member_tombstones(group.id, member.id)
    turn.out.records.append(
        records.epoch_record(
            group.id, group.epoch + 1, group.topics_hash, group.validated_epoch, group.settings_used
        )
    )
    for timer in ("session", "revocation"):
        turn.out.timers[timer, group.id, member.id] = None
    if len(group.members) == 1:
        group.shutdown_by = None


# --- time ---------------------------------------------------------------------------------------------------


def watch_revocation(group: StreamsGroup, member: StreamsMember, turn: Turn) -> None:
    """A member that must give up tasks has its rebalance timeout to do so."""
    waits = member.state is MemberState.UNREVOKED
    due_ms = turn.now_ms + member.rebalance_timeout_ms if waits else None
    turn.out.timers["revocation", group.id, member.id] = due_ms


def overdue(group: StreamsGroup, timer: str, member_id: str, turn: Turn) -> None:
    """Nothing was heard of a member in time, or it has not given up what it must."""
    member = group.members.get(member_id)
    if member is not None and (timer != "revocation" or member.state is MemberState.UNREVOKED):
        remove(group, member, turn)


def watch_all(group: StreamsGroup, turn: Turn) -> None:
    """After a load: every member has all of its time again."""
    settings = group.settings.of_streams_group(turn.image, group.id)
    for member in group.members.values():
        turn.out.timers["session", group.id, member.id] = turn.now_ms + settings.session_timeout_ms
        watch_revocation(group, member, turn)
