"""Where the protocols meet: each request of either finds the group it means, or makes it. Pure.

The rule: an empty group becomes what its next member needs. One with members answers to its own protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.errors import RequestError
from barnabas.groups.classic import ClassicGroup
from barnabas.groups.consumer import membership
from barnabas.groups.consumer.group import ConsumerGroup
from barnabas.groups.consumer.member import LEAVE_FOR_A_WHILE_EPOCH
from barnabas.groups.consumer.membership import Heartbeat
from barnabas.groups.member import Joining
from barnabas.groups.turn import Turn
from barnabas.wire.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.groups.shard import GroupShard


def consumer_heartbeat(shard: GroupShard, beat: Heartbeat, turn: Turn) -> ConsumerGroupHeartbeatResponse:
    """A ConsumerGroupHeartbeat. Raises GROUP_ID_NOT_FOUND, and what `membership` raises."""
    try:
        return _consumer_heartbeat(shard, beat, turn)
    except RequestError:
        turn.out.clear()
        raise


def _consumer_heartbeat(shard: GroupShard, beat: Heartbeat, turn: Turn) -> ConsumerGroupHeartbeatResponse:
    request = beat.request
    if request.member_epoch >= 0:
        group = _to_heartbeat_in(shard, request.group_id, request.member_epoch == 0, turn)
        return membership.heartbeat(group, beat, turn)
    group = shard.consumer_group(request.group_id)
    member = membership.leaver(group, request)
    if request.member_epoch == LEAVE_FOR_A_WHILE_EPOCH:
        membership.leave_for_a_while(group, member, turn)
    else:
        membership.remove(group, [member], turn)
    return ConsumerGroupHeartbeatResponse(member_id=member.id, member_epoch=request.member_epoch)


def _to_heartbeat_in(shard: GroupShard, group_id: str, joins: bool, turn: Turn) -> ConsumerGroup:
    known = shard.groups.get(group_id)
    if isinstance(known, ConsumerGroup) or not joins:
        return shard.consumer_group(group_id)
    if isinstance(known, ClassicGroup):
        if not known.is_unused:
            return shard.consumer_group(group_id)
        if known.generation:
            turn.out.records += known.tombstones()
    return ConsumerGroup(group_id, shard.settings)


def join_group(shard: GroupShard, joining: Joining, turn: Turn) -> None:
    """A JoinGroup request; the first of a group makes it. Raises RequestError."""
    request, settings = joining.request, shard.settings
    timeout_ms = request.session_timeout_ms
    if not settings.session_timeout_ms_min <= timeout_ms <= settings.session_timeout_ms_max:
        raise RequestError(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"session timeout {timeout_ms} ms is outside of "
            f"{settings.session_timeout_ms_min} to {settings.session_timeout_ms_max}",
        )
    known = shard.groups.get(request.group_id)
    if isinstance(known, ConsumerGroup) and known.is_unused and not request.member_id:
        turn.out.records += known.tombstones()
        known = None
    if known is None and not request.member_id:
        known = ClassicGroup(request.group_id, settings)
    group = known if isinstance(known, ClassicGroup) else shard.group(request.group_id)
    group.join(joining, turn.now_ms, turn.out)
    shard.groups[request.group_id] = group


def member_overdue(group: ConsumerGroup, timer: str, member_id: str, turn: Turn) -> None:
    """Nothing was heard of a member in time, or it has not done its part."""
    member = membership.overdue(group, timer, member_id)
    if member is not None:
        membership.remove(group, [member], turn)
