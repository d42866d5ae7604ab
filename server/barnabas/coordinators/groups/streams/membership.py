"""Joining, staying in and leaving a streams group by StreamsGroupHeartbeat. Pure.

The rule is that of consumer groups: update the member; raise the group's epoch if any input of the assignment has
changed; compute the target if it is behind the epoch; move this member one step towards it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from barnabas.coordinators.groups.epoch_group import watch_each
from barnabas.coordinators.groups.epoch_member import LEAVE_FOR_A_WHILE_EPOCH, changed
from barnabas.coordinators.groups.reconciliation import reconcile
from barnabas.coordinators.groups.settings import StreamsSettings
from barnabas.coordinators.groups.streams import answers, records
from barnabas.coordinators.groups.streams.assignor import Worker, assign_tasks
from barnabas.coordinators.groups.streams.group import StreamsGroup
from barnabas.coordinators.groups.streams.member import StreamsMember
from barnabas.coordinators.groups.streams.offsets import NO_OFFSETS, TaskOffsets
from barnabas.coordinators.groups.streams.requests import reported_tasks, topology_value
from barnabas.coordinators.groups.streams.tasks import ACTIVE, NO_TASKS, STANDBY, WARMUP, Tasks, change_roles
from barnabas.coordinators.groups.streams.topology import (
    Configured,
    InternalTopic,
    Shape,
    configure,
    required_topics,
)
from barnabas.coordinators.groups.targets import write_target
from barnabas.coordinators.groups.topics import topics_hash
from barnabas.coordinators.statemachine.context import EventContext
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.records.streams_group_topology import StreamsGroupTopologyValue
from barnabas.wire.generated.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

INITIAL_DELAY = "initial rebalance delay"
INTERVAL = "assignment interval"
COMPUTED_ASIDE_FROM = 1_000
"""From this number of members plus tasks on (some milliseconds), an assignment is computed outside the event."""


@dataclass(frozen=True, slots=True)
class TargetNeeded:
    """Effect of an event: an assignment to compute for an epoch of a group, from an immutable input."""

    group_id: str
    epoch: int
    members: tuple[StreamsMember, ...]
    offsets: Mapping[str, TaskOffsets]
    """Offsets of tasks as reported by these members."""
    shapes: Mapping[str, Shape]
    standby_replicas: int

    @property
    def is_large(self) -> bool:
        """True if the computation is too long for a turn of the event loop."""
        tasks = sum(shape.tasks for shape in self.shapes.values())
        return len(self.members) + tasks * (1 + self.standby_replicas) >= COMPUTED_ASIDE_FROM

    def compute(self) -> dict[str, Tasks]:
        """Return the tasks by member id."""
        workers = [
            Worker(
                member.id,
                member.process_id,
                frozenset(member.assigned),
                self.offsets.get(member.id, NO_OFFSETS).offsets,
            )
            for member in self.members
        ]
        return assign_tasks(workers, self.shapes, self.standby_replicas)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A StreamsGroupHeartbeat request, with further facts from the handler."""

    request: StreamsGroupHeartbeatRequest
    client_id: str
    client_host: str
    version: int = 1


@dataclass(frozen=True, slots=True)
class Answer:
    """The response, and the topics that the broker is to create for the application.

    `add_endpoints` completes the response: endpoints may be very many, so the sender adds them in slices.
    """

    response: StreamsGroupHeartbeatResponse
    to_create: tuple[InternalTopic, ...] = ()
    endpoints: tuple[StreamsMember, ...] = ()
    configured: Configured | None = None

    def add_endpoints(self) -> Iterator[None]:
        """Add the endpoints of members that answer queries, one member at a time."""
        for member in self.endpoints:
            assert self.configured is not None
            assert self.response.partitions_by_user_endpoint is not None
            self.response.partitions_by_user_endpoint.append(answers.endpoint_of(member, self.configured))
            yield


def heartbeat(group: StreamsGroup, beat: Heartbeat, context: EventContext) -> Answer:
    """Handle the heartbeat of a joining or present member.

    Raises GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID, FENCED_INSTANCE_ID,
    INVALID_REQUEST, STREAMS_INVALID_TOPOLOGY.
    """
    request = beat.request
    joins = request.member_epoch == 0
    reported = reported_tasks(request)
    if joins:
        before = _joining(group, request, context)
    else:
        before = group.known_member(request.instance_id, request.member_id)
        before.check_epoch(request.member_epoch, reported)
    after = before.after_heartbeat(request, beat.client_id, beat.client_host)
    topology = _settle_topology(group, request, context)
    configured = _configured(group, topology, context)
    if configured.is_ready:
        _check_reported(configured, reported)
    if request.task_offsets is not None or request.task_end_offsets is not None:
        group.offsets[after.id] = group.offsets_of(after.id).after_heartbeat(request)
    settings = group.settings.of_streams_group(context.image, group.id)
    epoch = _settle_epoch(group, before, after, topology, configured, settings, context)
    if not group.members and settings.initial_rebalance_delay_ms and not group.waits_for_members:
        group.waits_for_members = True
        context.out.timers["initial", group.id, ""] = context.now_ms + settings.initial_rebalance_delay_ms
    target_epoch, target, delayed_by = _settle_target(group, after, configured, settings, epoch, context)
    after = _move(group, after, target_epoch, target, reported, context)
    group.topics_seen = context.image.topics
    context.out.timers["session", group.id, after.id] = context.now_ms + settings.session_timeout_ms
    if request.shutdown_application and group.shutdown_by is None:
        group.shutdown_by = after.id
    response = StreamsGroupHeartbeatResponse(
        member_id=after.id,
        member_epoch=after.epoch,
        heartbeat_interval_ms=settings.heartbeat_interval_ms,
        task_offset_interval_ms=settings.task_offset_interval_ms
        if beat.version >= group.settings.streams_offsets_asked_since
        else 0,
        acceptable_recovery_lag=settings.acceptable_recovery_lag,
        status=answers.status(
            group, after, topology, configured, delayed_by, settings.assignment_tags if beat.version else ()
        ),
    )
    is_moved = after.assigned.keys() != before.assigned.keys()
    if joins or is_moved:
        response.active_tasks, response.standby_tasks, response.warmup_tasks = (
            answers.task_ids(role, after) for role in (ACTIVE, STANDBY, WARMUP)
        )
    if after.endpoint != before.endpoint or (is_moved and after.endpoint is not None):
        group.endpoints_epoch += 1
    endpoints = answers.to_tell_endpoints(group, after, request, response)
    return Answer(response, configured.missing, endpoints, configured)


def _joining(
    group: StreamsGroup, request: StreamsGroupHeartbeatRequest, context: EventContext
) -> StreamsMember:
    """Return the joining member: an existing one, one that replaces the former owner of its instance id, or a new one.

    The former owner must have left temporarily: otherwise it may still run.
    """
    present = group.members.get(request.member_id)
    former_id = group.static_ids.get(request.instance_id) if request.instance_id is not None else None
    if former_id is not None and former_id != request.member_id:
        former = group.members[former_id]
        if former.epoch != LEAVE_FOR_A_WHILE_EPOCH:
            raise RequestError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"the instance id {request.instance_id!r} belongs to {former.id!r}",
            )
        return _take_over(group, former, request.member_id, context)
    group.check_room(group.settings.streams_size_max, request.member_id)
    return present or StreamsMember(request.member_id)


def _take_over(
    group: StreamsGroup, former: StreamsMember, member_id: str, context: EventContext
) -> StreamsMember:
    """Return a static member that is back with another id, with its former tasks."""
    member = changed(former, id=member_id, epoch=0, previous_epoch=0)
    out = context.out
    out.records += records.member_tombstones(group.id, former.id)
    out.records.append(records.member_record(group.id, member))
    out.records.append(records.target_record(group.id, member_id, group.target_of(former)))
    out.records.append(records.current_record(group.id, member))
    for timer in ("session", "revocation"):
        out.timers[timer, group.id, former.id] = None
    return member


def _check_reported(configured: Configured, reported: Tasks | None) -> None:
    for _, subtopology, partition in reported or ():
        shape = configured.shapes.get(subtopology)
        if shape is None or not 0 <= partition < shape.tasks:
            raise RequestError(
                ErrorCode.INVALID_REQUEST, f"there is no task {partition} of subtopology {subtopology!r}"
            )


def _settle_topology(
    group: StreamsGroup, request: StreamsGroupHeartbeatRequest, context: EventContext
) -> StreamsGroupTopologyValue:
    """Return the group's topology: the first that a member sent. Others may only send the same, or an older one."""
    if request.topology is None:
        if group.topology is None:
            raise RequestError(ErrorCode.FENCED_MEMBER_EPOCH, "the group's topology is not known: join again")
        return group.topology
    brought = topology_value(request.topology)
    if group.topology is None:
        context.out.records.append(records.topology_record(group.id, brought))
        return brought
    if brought.epoch >= group.topology.epoch and brought != group.topology:
        raise RequestError(ErrorCode.INVALID_REQUEST, "the topology of a group cannot be changed")
    return group.topology


def _configured(
    group: StreamsGroup, topology: StreamsGroupTopologyValue, context: EventContext
) -> Configured:
    """Return the topology configured for the topics; computed again when either has changed."""
    if (
        group.configured is None
        or group.topics_seen is not context.image.topics
        or group.topology is not topology
    ):
        group.configured = configure(topology, context.image)
    return group.configured


def _settle_epoch(
    group: StreamsGroup,
    before: StreamsMember,
    after: StreamsMember,
    topology: StreamsGroupTopologyValue,
    configured: Configured,
    settings: StreamsSettings,
    context: EventContext,
) -> int:
    """Update a member from its request, and return the group's epoch, raised if any input of the assignment has changed."""
    out = context.out
    is_static = after.instance_id is not None and after.instance_id in group.static_ids
    is_new = after.id not in group.members and not is_static
    if is_new or after != before:
        out.records.append(records.member_record(group.id, after))
    changed = is_new or group.was_another(after)
    changed = changed or (not after.wants_the_same(before) if is_static else after != before)
    new_hash = group.topics_hash
    if group.topics_seen is not context.image.topics or group.topology is not topology:
        new_hash = topics_hash(required_topics(topology), context.image)
    validated = topology.epoch if configured.is_ready else -1
    used = settings.used
    current = (group.topics_hash, group.validated_epoch, group.settings_used)
    if not changed and (new_hash, validated, used) == current:
        return group.epoch
    out.records.append(records.epoch_record(group.id, group.epoch + 1, new_hash, validated, used))
    return group.epoch + 1


def _settle_target(
    group: StreamsGroup,
    member: StreamsMember,
    configured: Configured,
    settings: StreamsSettings,
    epoch: int,
    context: EventContext,
) -> tuple[int, Tasks, str]:
    """Return the target's epoch, this member's tasks in it, and the reason if the newest epoch has no target yet."""
    if group.waits_for_members:
        return group.assignment_epoch, NO_TASKS, INITIAL_DELAY
    assigned = group.target_of(member)
    if epoch <= group.assignment_epoch:
        return group.assignment_epoch, assigned, ""
    if group.was_assigned_within(settings.assignment_interval_ms, context.now_ms):
        return group.assignment_epoch, assigned, INTERVAL
    target = _assign(group, member, configured, settings.standby_replicas, epoch, context)
    if target is None:
        return group.assignment_epoch, assigned, ""
    return epoch, target[member.id], ""


def _assign(
    group: StreamsGroup,
    member: StreamsMember,
    configured: Configured,
    standby_replicas: int,
    epoch: int,
    context: EventContext,
) -> Mapping[str, Tasks] | None:
    """Run the assignor, with the updated member; no tasks are assigned while the topology does not fit.

    A large assignment is computed outside the event, one at a time for each group: then the target does not change yet.
    """
    if group.assigning_epoch:
        return None
    shapes = configured.shapes if configured.is_ready else {}
    members, current = tuple(group.members_with(member)), group.target_with(member)
    needed = TargetNeeded(group.id, epoch, members, group.offsets.copy(), shapes, standby_replicas)
    if needed.is_large:
        group.assigning_epoch = epoch
        context.out.effects.append(needed)
        return None
    target = needed.compute()
    write_target(group, epoch, target, records, context, current)
    return target


def _move(
    group: StreamsGroup,
    member: StreamsMember,
    target_epoch: int,
    target: Tasks,
    reported: Tasks | None,
    context: EventContext,
) -> StreamsMember:
    """Move a member one step towards its target."""
    moved = reconcile(member, target_epoch, target, group.taken(member), reported, change_roles)
    if moved is not member:
        context.out.records.append(records.current_record(group.id, moved))
        group.watch_revocation(moved, context)
    return moved


# --- leaving ------------------------------------------------------------------------------------------------


def leave(group: StreamsGroup, request: StreamsGroupHeartbeatRequest, context: EventContext) -> Answer:
    """Handle the leave of a member, temporary or for good. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    member = group.known_member(request.instance_id, request.member_id)
    if request.shutdown_application and group.shutdown_by is None:
        group.shutdown_by = member.id
    if request.member_epoch == LEAVE_FOR_A_WHILE_EPOCH:
        _leave_for_a_while(group, member, context)
    else:
        remove(group, member, context)
    return Answer(StreamsGroupHeartbeatResponse(member_id=member.id, member_epoch=request.member_epoch))


def _leave_for_a_while(group: StreamsGroup, member: StreamsMember, context: EventContext) -> None:
    """Keep a static member that will return within its session timeout; its revoked tasks are released."""
    context.out.records.append(records.current_record(group.id, member.away()))
    context.out.timers["revocation", group.id, member.id] = None


def remove(group: StreamsGroup, member: StreamsMember, context: EventContext) -> None:
    """Remove a member; the group's epoch rises, and the next heartbeat computes a new target."""
    context.out.records += records.member_tombstones(group.id, member.id)
    context.out.records.append(
        records.epoch_record(
            group.id, group.epoch + 1, group.topics_hash, group.validated_epoch, group.settings_used
        )
    )
    for timer in ("session", "revocation"):
        context.out.timers[timer, group.id, member.id] = None
    if len(group.members) == 1:
        context.out.records.append(records.target_epoch_record(group.id, group.epoch + 1, 0))
        group.shutdown_by = None


# --- timers -------------------------------------------------------------------------------------------------


def overdue(group: StreamsGroup, timer: str, member_id: str, context: EventContext) -> None:
    """Handle a timer: a member was silent or did not revoke in time, or the wait for more members is over."""
    if timer == "initial":
        _assign_after_delay(group, context)
        return
    member = group.overdue_member(timer, member_id)
    if member is not None:
        remove(group, member, context)


def _assign_after_delay(group: StreamsGroup, context: EventContext) -> None:
    """Assign the tasks to the present members. If the topology is not checked yet, the next heartbeat does it."""
    group.waits_for_members = False
    if group.members and group.configured is not None and group.epoch > group.assignment_epoch:
        standby_replicas = int(group.settings_used.get("num.standby.replicas", "0"))
        member = next(iter(group.members.values()))
        _assign(group, member, group.configured, standby_replicas, group.epoch, context)


def watch_all(group: StreamsGroup, context: EventContext) -> None:
    """Restart all timers of all members, after a load."""
    settings = group.settings.of_streams_group(context.image, group.id)

    def watch(member: StreamsMember, context: EventContext) -> None:
        context.out.timers["session", group.id, member.id] = context.now_ms + settings.session_timeout_ms
        group.watch_revocation(member, context)

    watch_each(group.members.values(), watch, context)
