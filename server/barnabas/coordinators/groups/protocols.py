"""Requests of members in all group protocols: each finds or creates its group. Pure.

The rule: an empty group becomes the kind that its next member needs. A group with members of the classic protocol
becomes a consumer group when a member of that protocol joins, and from then on serves both protocols (see `migration`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from barnabas.coordinators.groups import migration
from barnabas.coordinators.groups.classic import ClassicGroup
from barnabas.coordinators.groups.consumer import classic_members, membership
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.consumer.member import ConsumerMember
from barnabas.coordinators.groups.consumer.membership import Heartbeat
from barnabas.coordinators.groups.directory import GroupDirectory
from barnabas.coordinators.groups.epoch_member import LEAVE_FOR_A_WHILE_EPOCH
from barnabas.coordinators.groups.group import Group
from barnabas.coordinators.groups.member import Joining, State
from barnabas.coordinators.groups.share import membership as share_membership
from barnabas.coordinators.groups.streams import membership as streams_membership
from barnabas.coordinators.groups.streams.group import StreamsGroup
from barnabas.coordinators.statemachine.context import EventContext
from barnabas.errors import RequestError
from barnabas.wire.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.heartbeat import HeartbeatRequest
from barnabas.wire.generated.join_group import JoinGroupResponse
from barnabas.wire.generated.leave_group import LeaveGroupRequest
from barnabas.wire.generated.sync_group import SyncGroupRequest

PROTOCOLS_MAX: Final = 100
"""Largest number of protocols that a member may offer: the choice visits those of all members."""

# --- the consumer protocol ----------------------------------------------------------------------------------


def consumer_heartbeat(
    shard: GroupDirectory, beat: Heartbeat, context: EventContext
) -> ConsumerGroupHeartbeatResponse:
    """Handle a ConsumerGroupHeartbeat. Raises GROUP_ID_NOT_FOUND, and the errors of `membership`."""
    request = beat.request
    if request.member_epoch >= 0:
        group = _to_heartbeat_in(shard, request.group_id, request.member_epoch == 0, context)
        return membership.heartbeat(group, beat, context)
    group = shard.consumer_group(request.group_id)
    member = group.known_member(request.instance_id, request.member_id)
    if request.member_epoch == LEAVE_FOR_A_WHILE_EPOCH:
        membership.leave_for_a_while(group, member, context)
    else:
        _remove(shard, group, member, context)
    return ConsumerGroupHeartbeatResponse(member_id=member.id, member_epoch=request.member_epoch)


def _to_heartbeat_in(
    shard: GroupDirectory, group_id: str, joins: bool, context: EventContext
) -> ConsumerGroup:
    if joins and group_id not in shard.groups:
        return ConsumerGroup(group_id, shard.settings)
    classic = shard.find(group_id, ClassicGroup) if joins else None
    if classic is not None and classic.state is State.EMPTY:
        classic.end(context.out)
        return ConsumerGroup(group_id, shard.settings)
    if classic is not None and migration.can_upgrade(classic):
        return migration.upgrade(classic, context)
    return shard.consumer_group(group_id)


def member_overdue(
    shard: GroupDirectory, group: ConsumerGroup, timer: str, member_id: str, context: EventContext
) -> None:
    """Remove a member without heartbeats, or one that has not revoked its partitions in time."""
    member = group.overdue_member(timer, member_id)
    if member is not None:
        _remove(shard, group, member, context)


def _remove(
    shard: GroupDirectory, group: ConsumerGroup, member: ConsumerMember, context: EventContext
) -> None:
    if migration.can_downgrade(group, member.id, is_replaced=False):
        shard.groups[group.id] = migration.downgrade(group, member.id, context)
    else:
        membership.remove(group, [member], context)


# --- the streams protocol -----------------------------------------------------------------------------------


def streams_heartbeat(
    shard: GroupDirectory, beat: streams_membership.Heartbeat, context: EventContext
) -> streams_membership.Answer:
    """Handle a StreamsGroupHeartbeat. Raises GROUP_ID_NOT_FOUND, and the errors of `streams.membership`."""
    request = beat.request
    if request.member_epoch < 0:
        return streams_membership.leave(shard.streams_group(request.group_id), request, context)
    if request.member_epoch == 0 and shard.find(request.group_id, StreamsGroup) is None:
        classic = shard.find(request.group_id, ClassicGroup)
        if classic is not None and classic.state is State.EMPTY:
            classic.end(context.out)
        elif request.group_id in shard.groups:
            shard.streams_group(request.group_id)  # raises
        group = shard.new_streams_group(request.group_id)
    else:
        group = shard.streams_group(request.group_id)
    return streams_membership.heartbeat(group, beat, context)


# --- the share protocol -------------------------------------------------------------------------------------


def share_heartbeat(
    shard: GroupDirectory, beat: share_membership.Heartbeat, context: EventContext
) -> share_membership.Answer:
    """Handle a ShareGroupHeartbeat. Raises GROUP_ID_NOT_FOUND, and the errors of `share.membership`."""
    request = beat.request
    if request.member_epoch < 0:
        group = shard.share_group(request.group_id)
        return share_membership.Answer(share_membership.leave(group, request.member_id, context))
    if request.member_epoch == 0 and not shard.exists(request.group_id):
        group = shard.new_share_group(request.group_id)
    else:
        group = shard.share_group(request.group_id)
    return share_membership.heartbeat(group, beat, context)


# --- the classic protocol -----------------------------------------------------------------------------------


def join_group(shard: GroupDirectory, joining: Joining, context: EventContext) -> None:
    """Handle a JoinGroup request; the first one creates the group. Raises RequestError."""
    request, settings = joining.request, shard.settings
    timeout_ms = request.session_timeout_ms
    if not settings.session_timeout_ms_min <= timeout_ms <= settings.session_timeout_ms_max:
        raise RequestError(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"session timeout {timeout_ms} ms is outside of "
            f"{settings.session_timeout_ms_min} to {settings.session_timeout_ms_max}",
        )
    if len(request.protocols) > PROTOCOLS_MAX:
        raise RequestError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"more than {PROTOCOLS_MAX} protocols are offered"
        )
    existing = shard.groups.get(request.group_id)
    classic = shard.find(request.group_id, ClassicGroup)
    if existing is not None and classic is None and not existing.is_unused:
        try:
            _join_epoch_group(shard, existing, joining, context)
        except RequestError as error:
            context.out.clear()
            # like Kafka's groups of this kind, without naming a member
            context.out.replies.append((joining.waiter, JoinGroupResponse(error_code=error.code)))
        return
    if existing is not None and classic is None and not request.member_id:
        existing.end(context.out)
        existing = None
    if existing is None and (not request.member_id or shard.exists(request.group_id)):
        classic = ClassicGroup(request.group_id, settings)
    group = classic or shard.group(request.group_id)
    group.join(joining, context.now_ms, context.out)
    shard.groups[request.group_id] = group


def _join_epoch_group(
    shard: GroupDirectory, existing: Group, joining: Joining, context: EventContext
) -> None:
    group = shard.find(existing.id, ConsumerGroup)
    if group is None:
        raise RequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"this is a {existing.kind} group")
    member = classic_members.join(group, joining, context)
    if member is None:
        return
    former = group.static_ids.get(member.instance_id or "", "")
    if migration.can_downgrade(group, former, is_replaced=True):
        shard.groups[group.id] = migration.downgrade_for(group, former, member, joining, context)
    else:
        classic_members.answer_join(group, member, joining, context)


def sync_group(
    shard: GroupDirectory,
    request: SyncGroupRequest,
    waiter: int,
    context: EventContext,
    assigned: Mapping[str, bytes] | None = None,
) -> None:
    """Handle a SyncGroup request, with its assignments by member if they are many. Raises RequestError."""
    consumers = shard.find(request.group_id, ConsumerGroup)
    if consumers is not None:
        classic_members.sync(consumers, request, waiter, context)
    else:
        group = shard.group(request.group_id)
        group.sync(request, waiter, context.now_ms, context.out, assigned)


def classic_heartbeat(shard: GroupDirectory, request: HeartbeatRequest, context: EventContext) -> bool:
    """Handle a Heartbeat request; returns whether the member must join again. Raises RequestError."""
    consumers = shard.find(request.group_id, ConsumerGroup)
    if consumers is not None:
        return classic_members.must_join_again(
            consumers, request.member_id, request.group_instance_id, request.generation_id, context
        )
    group = shard.group(request.group_id)
    group.heartbeat(
        request.member_id, request.group_instance_id, request.generation_id, context.now_ms, context.out
    )
    return group.is_joining


def leave_group(
    shard: GroupDirectory,
    group_id: str,
    members: Iterable[LeaveGroupRequest.MemberIdentity],
    context: EventContext,
) -> list[int]:
    """Handle a LeaveGroup request; returns the error code of each member that it names."""
    codes: list[int] = []
    gone: list[ConsumerMember] = []
    consumers = shard.find(group_id, ConsumerGroup)
    for member in members:
        try:
            if consumers is not None:
                gone.append(classic_members.leaver(consumers, member.member_id, member.group_instance_id))
            else:
                shard.group(group_id).leave(member.member_id, member.group_instance_id, context.out)
        except RequestError as error:
            codes.append(error.code)
        else:
            codes.append(ErrorCode.NONE)
    if consumers is not None and len({member.id for member in gone}) == 1:
        _remove(shard, consumers, gone[0], context)
    elif consumers is not None:
        membership.remove(consumers, gone, context)
    elif ErrorCode.NONE in codes:
        shard.group(group_id).members_left(context.now_ms, context.out)
    return codes
