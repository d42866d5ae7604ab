"""Groups that change their protocol while they have members (KIP-848). Pure.

A classic group of consumers becomes a consumer group when the first member of that protocol joins; it becomes a classic
one again when the last such member has left. The rule: members keep their partitions, and must join again.
"""

from __future__ import annotations

from barnabas.coordinators.groups.classic import ClassicGroup
from barnabas.coordinators.groups.consumer import records
from barnabas.coordinators.groups.consumer.classic_members import joined
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.consumer.member import ClassicProtocols, ConsumerMember
from barnabas.coordinators.groups.consumer.membership import forget_timers, watch_session
from barnabas.coordinators.groups.consumer_protocol import (
    CONSUMER,
    owned_partitions,
    read_assignment,
    read_subscription,
    write_assignment,
)
from barnabas.coordinators.groups.member import Joining, Member, State
from barnabas.coordinators.groups.topics import topics_hash
from barnabas.coordinators.statemachine.context import EventContext
from barnabas.errors import PeerError, RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.join_group import JoinGroupResponse
from barnabas.wire.generated.sync_group import SyncGroupResponse
from barnabas.wire.topic_partitions import NO_PARTITIONS, TopicIdPartitions


def can_upgrade(group: ClassicGroup) -> bool:
    """Return whether a member of the consumer protocol may join this classic group."""
    return (
        group.settings.migration_policy.allows_upgrade
        and group.protocol_type == CONSUMER
        and len(group.members) <= group.settings.consumer_size_max
    )


def upgrade(group: ClassicGroup, context: EventContext) -> ConsumerGroup:
    """Decide on the records that turn a classic group into a consumer group; returns that group.

    Raises GROUP_ID_NOT_FOUND if a member's subscription or assignment is not a consumer's.
    """
    upgraded = ConsumerGroup(
        group.id, group.settings, epoch=group.generation, assignment_epoch=group.generation
    )
    for member in group.members.values():
        try:
            upgraded.put_member(_upgraded(member, group, upgraded, context))
        except PeerError as error:
            raise RequestError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"group {group.id!r} cannot become a consumer group: {error}"
            ) from error
        upgraded.target[member.id] = frozenset(upgraded.members[member.id].assigned)
    out = context.out
    group.end(out)
    out.records += [records.member_record(group.id, member) for member in upgraded.members.values()]
    topics = frozenset().union(*(member.topics for member in upgraded.members.values()))
    upgraded.topics_hash = topics_hash(topics, context.image)
    out.records.append(records.epoch_record(group.id, upgraded.epoch, upgraded.topics_hash))
    out.records += [records.target_record(group.id, *target) for target in upgraded.target.items()]
    out.records.append(records.target_epoch_record(group.id, upgraded.epoch, context.now_ms))
    out.records += [records.current_record(group.id, member) for member in upgraded.members.values()]
    _send_back(group, context)
    for upgraded_member in upgraded.members.values():
        watch_session(upgraded, upgraded_member, context)
    return upgraded


def _upgraded(
    member: Member, group: ClassicGroup, upgraded: ConsumerGroup, context: EventContext
) -> ConsumerMember:
    subscription = read_subscription(member.metadata_for(group.protocol or member.protocols[0][0]))
    assignment = group.assignments.get(member.id, b"")
    owned = read_assignment(assignment, context.image)
    if not assignment:  # a rebalance that ended without a result: some members have kept their partitions
        owned = owned_partitions(subscription, context.image)
    # client-side assignors may have assigned a partition to two members: the first keeps it
    topic_partitions = {
        topic_partition: group.generation
        for topic_partition in owned
        if topic_partition not in upgraded.owners
    }
    return ConsumerMember(
        member.id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topics=frozenset(subscription.topics),
        classic=ClassicProtocols(member.session_timeout_ms, tuple(member.protocols)),
        epoch=group.generation,
        previous_epoch=group.generation,
        assigned=topic_partitions,
    )


def _send_back(group: ClassicGroup, context: EventContext) -> None:
    """End the rebalance of the classic group: waiting requests are answered REBALANCE_IN_PROGRESS."""
    code = ErrorCode.REBALANCE_IN_PROGRESS
    for member_id, waiter in group.members.joining.items():
        response = JoinGroupResponse(error_code=code, member_id=member_id)
        context.out.replies.append((waiter, response))
    for waiter in group.members.syncing.values():
        context.out.replies.append((waiter, SyncGroupResponse(error_code=code)))
    for timer in ("join", "sync"):
        context.out.timers[timer, group.id] = None


def can_downgrade(group: ConsumerGroup, leaving_id: str, *, is_replaced: bool) -> bool:
    """Return whether all members but this one are of the classic protocol, so that the group may become classic."""
    leaving = group.members.get(leaving_id)
    rest = len(group.members) - 1
    return (
        leaving is not None
        and leaving.classic is None
        and (rest > 0 or is_replaced)
        and group.classic_members == rest
        and group.settings.migration_policy.allows_downgrade
        and rest + is_replaced <= group.settings.size_max
    )


def downgrade(group: ConsumerGroup, leaving_id: str, context: EventContext) -> ClassicGroup:
    """Turn a consumer group into a classic group without this member, and return it; the others must join again."""
    rest = [(member, member) for member in group.members.values() if member.id != leaving_id]
    classic = _downgraded(group, rest, context)
    classic.begin_rebalance(context.now_ms, context.out)
    return classic


def downgrade_for(
    group: ConsumerGroup, leaving_id: str, joiner: ConsumerMember, joining: Joining, context: EventContext
) -> ClassicGroup:
    """Do the same when a static member of the classic protocol replaces the member, and takes over its partitions.

    Decisions to add it to the consumer group are undone. The others need not join again, unless they had not reached
    their targets, or the subscriptions have changed.
    """
    context.out.clear()
    former = group.members[leaving_id]
    rest = [(member, member) for member in group.members.values() if member.id != leaving_id]
    classic = _downgraded(group, [*rest, (joiner, former)], context)
    context.out.replies.append((joining.waiter, joined(joiner, classic.generation)))
    if joiner.topics != former.topics or not _is_settled(group, leaving_id):
        classic.begin_rebalance(context.now_ms, context.out)
    return classic


def _is_settled(group: ConsumerGroup, leaving_id: str) -> bool:
    """Return whether all members have their targets and, except for the leaving one, the group's epoch."""
    return group.epoch == group.assignment_epoch and all(
        _has(member) == group.target.get(member.id, NO_PARTITIONS)
        and (member.epoch == group.epoch or member.id == leaving_id)
        for member in group.members.values()
    )


def _has(member: ConsumerMember) -> TopicIdPartitions:
    """Return the partitions that a member may own, also those that it must revoke."""
    return frozenset((*member.assigned, *member.revoking))


def _downgraded(
    group: ConsumerGroup, members: list[tuple[ConsumerMember, ConsumerMember]], context: EventContext
) -> ClassicGroup:
    """Return a stable classic group of these members, each paired with its member of the consumer group."""
    classic = ClassicGroup(group.id, group.settings)
    classic.state, classic.state_since_ms = State.STABLE, context.now_ms
    classic.generation, classic.protocol_type = group.epoch, CONSUMER
    for member, _ in members:
        assert member.classic is not None
        classic_member = Member(
            member.id, member.instance_id, member.client_id, member.client_host,
            member.classic.session_timeout_ms, member.rebalance_timeout_ms, list(member.classic.protocols),
        )  # fmt: skip
        classic.members.put(classic_member)
        if member.instance_id is not None:
            classic.static_ids[member.instance_id] = member.id
    classic.protocol = classic.members.choose_protocol()
    classic.leader = classic.members.first_id()
    for member, former in members:
        metadata = classic.members[member.id].metadata_for(classic.protocol)
        # not its target, which may still be another member's: the next migration starts from here
        classic.assignments[member.id] = write_assignment(_has(former), metadata, context.image)
    for member_id in group.members:
        forget_timers(group, member_id, context)
    group.end(context.out)
    context.out.records.append(classic.record())
    classic.watch_sessions(context.now_ms, context.out)
    return classic
