"""Members of a consumer group that use the classic protocol, during a migration between the protocols. Pure.

The rule: for the group such a member is like all others. JoinGroup reports its subscription and owned partitions, and
takes one reconciliation step; SyncGroup returns its assignment; after a Heartbeat's REBALANCE_IN_PROGRESS it joins again.
It never leads.
"""

from __future__ import annotations

from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.consumer.member import ClassicProtocols, ConsumerMember
from barnabas.coordinators.groups.consumer.membership import advance, take_over_static, watch_session
from barnabas.coordinators.groups.consumer_protocol import (
    CONSUMER,
    owned_partitions,
    read_subscription,
    write_assignment,
)
from barnabas.coordinators.groups.epoch_member import MemberState, changed
from barnabas.coordinators.groups.member import Joining
from barnabas.coordinators.statemachine.context import EventContext
from barnabas.errors import PeerError, RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.wire.generated.sync_group import SyncGroupRequest, SyncGroupResponse


def join(group: ConsumerGroup, joining: Joining, context: EventContext) -> ConsumerMember | None:
    """Handle a JoinGroup request; returns the member after it, for `answer_join`; None if the request is answered.

    Raises GROUP_MAX_SIZE_REACHED, INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    """
    request = joining.request
    member_id = request.member_id or joining.new_bare_id
    group.check_room(group.settings.consumer_size_max, member_id)
    _check_protocols(group, request)
    instance_id = request.group_instance_id
    if not request.member_id and instance_id is None and joining.known_id_required:
        response = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
        context.out.replies.append((joining.waiter, response))
        return None
    try:
        subscription = read_subscription(request.protocols[0].metadata)
    except PeerError as error:
        raise RequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"not a consumer's: {error}") from error
    if instance_id is None:
        before = group.members.get(member_id) or ConsumerMember(member_id)
    elif request.member_id:
        before = group.static_member(instance_id, member_id)
    else:
        before = take_over_static(group, member_id, instance_id, context, by_classic=True)
    after = changed(
        before,
        instance_id=instance_id or before.instance_id,
        rack_id=subscription.rack_id or before.rack_id,
        client_id=joining.client_id,
        client_host=joining.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=frozenset(subscription.topics),
        regex="",
        classic=ClassicProtocols(
            request.session_timeout_ms,
            tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        ),
    )
    return advance(group, before, after, owned_partitions(subscription, context.image), context)


def _check_protocols(group: ConsumerGroup, request: JoinGroupRequest) -> None:
    """Check that all members of the classic protocol have a common assignor, though the broker assigns."""
    known_to, count = group.classic_protocols, group.classic_members
    has_shared = any(known_to[protocol.name] == count for protocol in request.protocols)
    if request.protocol_type != CONSUMER or not has_shared:
        raise RequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def answer_join(
    group: ConsumerGroup, member: ConsumerMember, joining: Joining, context: EventContext
) -> None:
    """Answer a member's JoinGroup, and wait for its SyncGroup."""
    group.rejoins_due_ms.pop(member.id, None)
    watch_session(group, member, context)
    context.out.timers["rejoin", group.id, member.id] = None
    context.out.timers["resync", group.id, member.id] = context.now_ms + member.rebalance_timeout_ms
    context.out.replies.append((joining.waiter, joined(member, member.epoch)))


def joined(member: ConsumerMember, generation: int) -> JoinGroupResponse:
    """Return the response to a JoinGroup: it names no leader, so that every member asks for its assignment."""
    assert member.classic is not None
    return JoinGroupResponse(
        generation_id=generation,
        protocol_type=CONSUMER,
        protocol_name=member.classic.protocols[0][0],
        member_id=member.id,
    )


def sync(group: ConsumerGroup, request: SyncGroupRequest, waiter: int, context: EventContext) -> None:
    """Handle a SyncGroup request; a member behind the group is answered REBALANCE_IN_PROGRESS, and must join again in time.

    Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL.
    """
    member, classic = _member(group, request.member_id, request.group_instance_id, request.generation_id)
    name, metadata = classic.protocols[0]
    if request.protocol_type not in (None, CONSUMER) or request.protocol_name not in (None, name):
        raise RequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED:
        _expect_rejoin(group, member, context)
        refusal = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        context.out.replies.append((waiter, refusal))
        return
    watch_session(group, member, context)
    context.out.timers["resync", group.id, member.id] = None
    response = SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=write_assignment(member.assigned, metadata, context.image),
    )
    context.out.replies.append((waiter, response))


def must_join_again(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int, context: EventContext
) -> bool:
    """Handle a Heartbeat; returns whether the member must join again, as it can take a step. Raises as `sync`."""
    member, _ = _member(group, member_id, instance_id, generation)
    watch_session(group, member, context)
    can_step = (
        member.epoch < group.epoch
        or member.state is MemberState.UNREVOKED
        or (member.state is MemberState.UNRELEASED and not _waits_for_others(group, member))
    )
    if can_step:
        _expect_rejoin(group, member, context)
    return can_step


def _waits_for_others(group: ConsumerGroup, member: ConsumerMember) -> bool:
    missing = group.target_of(member) - member.assigned.keys()
    return any(topic_partition in group.owners for topic_partition in missing)


def _expect_rejoin(group: ConsumerGroup, member: ConsumerMember, context: EventContext) -> None:
    """Set the deadline for joining again: the rebalance timeout after the first REBALANCE_IN_PROGRESS."""
    due_ms = group.rejoins_due_ms.setdefault(member.id, context.now_ms + member.rebalance_timeout_ms)
    context.out.timers["rejoin", group.id, member.id] = due_ms


def leaver(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """Return the member that a LeaveGroup request names by id or instance id.

    It may be of either protocol, as operators send the request too. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    """
    if instance_id is not None and not member_id:
        member_id = group.static_ids.get(instance_id, "")
    return group.static_member(instance_id, member_id) if instance_id is not None else group.member(member_id)


def _member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int | None = None
) -> tuple[ConsumerMember, ClassicProtocols]:
    if instance_id is not None:
        member = group.static_member(instance_id, member_id)
    else:
        member = group.member(member_id)
    if member.classic is None:
        raise RequestError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"member {member.id!r} does not use the classic protocol"
        )
    if generation is not None and generation != member.epoch:
        raise RequestError(ErrorCode.ILLEGAL_GENERATION)
    return member, member.classic
