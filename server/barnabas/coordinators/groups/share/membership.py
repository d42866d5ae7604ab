"""Joining, staying in and leaving a share group by ShareGroupHeartbeat. Pure.

The rule: every heartbeat takes the same steps. The member is updated from the request; the group's epoch rises if the
subscription, the topics or the partitions with a state have changed; the target is computed again, if it is behind the
epoch and the last one is old enough; the member goes to its target in one step, since members share and revoke nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from barnabas.cluster.metadata.image import ClusterImage
from barnabas.coordinators.groups.assignors.simple import assign_shared
from barnabas.coordinators.groups.assignors.subscriber import Subscriber
from barnabas.coordinators.groups.epoch_group import watch_each
from barnabas.coordinators.groups.epoch_member import LEAVE_EPOCH
from barnabas.coordinators.groups.share import records
from barnabas.coordinators.groups.share.group import ShareGroup
from barnabas.coordinators.groups.share.member import ShareMember
from barnabas.coordinators.groups.share.topic_states import Partitions, TopicStates
from barnabas.coordinators.groups.targets import write_target
from barnabas.coordinators.groups.topics import by_topic, topic_ids, topics_hash
from barnabas.coordinators.statemachine.context import EventContext
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from barnabas.wire.topic_partitions import NO_PARTITIONS, TopicIdPartition, TopicIdPartitions

MEMBER_ID_LENGTH_MAX = 36
INITIALIZE_RETRY_MS = 30_000
"""Time after which the share coordinator is asked again to initialize a state (Kafka's constant)."""
EPOCH_OF_NEW = 1
"""Epoch of a new group before its first member has subscribed, as in Kafka."""
UNKNOWN_OFFSET = -1
NONE: Partitions = frozenset()
COMPUTED_ASIDE_FROM = 2_000
"""From this number of members plus partitions on (some milliseconds), an assignment is computed outside the event."""


@dataclass(frozen=True, slots=True)
class TargetNeeded:
    """Effect of an event: an assignment to compute for an epoch of a group, from an immutable input."""

    group_id: str
    epoch: int
    members: tuple[ShareMember, ...]
    target: Mapping[str, TopicIdPartitions]
    """The last target."""
    topic_states: TopicStates
    image: ClusterImage

    @property
    def is_large(self) -> bool:
        """True if the computation is too long for a turn of the event loop."""
        partitions = sum(len(topic) for topic in self.topic_states.initialized.values())
        return len(self.members) + partitions >= COMPUTED_ASIDE_FROM

    def compute(self) -> dict[str, TopicIdPartitions]:
        """Return the partitions by member id."""
        ids: dict[frozenset[str], frozenset[bytes]] = {}
        for member in self.members:
            if member.topics not in ids:
                ids[member.topics] = topic_ids(member.topics, self.image)
        subscribers = [
            Subscriber(member.id, ids[member.topics], assigned=self.target.get(member.id, NO_PARTITIONS))
            for member in self.members
        ]
        return assign_shared(subscribers, self.topic_states.topic_partitions)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A ShareGroupHeartbeat request, with further facts from the handler."""

    request: ShareGroupHeartbeatRequest
    client_id: str
    client_host: str


@dataclass(frozen=True, slots=True)
class Beginning:
    """States that the share coordinator is to initialize: their epoch, and start offsets by partition, -1 for none yet."""

    state_epoch: int
    offsets: Mapping[TopicIdPartition, int]


@dataclass(frozen=True, slots=True)
class Answer:
    """Response to a member, and the states to initialize before its assignment can grow."""

    response: ShareGroupHeartbeatResponse
    beginning: Beginning | None = None


def check_heartbeat(request: ShareGroupHeartbeatRequest) -> None:
    """Check that the fields are consistent. Raises INVALID_REQUEST."""
    why = ""
    if not request.group_id.strip():
        why = "the group id is empty"
    elif not request.member_id.strip() or len(request.member_id) > MEMBER_ID_LENGTH_MAX:
        why = f"a member id of 1 to {MEMBER_ID_LENGTH_MAX} characters is expected"
    elif request.rack_id is not None and not request.rack_id.strip():
        why = "the rack id is empty"
    elif request.member_epoch == 0 and not request.subscribed_topic_names:
        why = "who joins must give topic names"
    elif request.member_epoch < LEAVE_EPOCH:
        why = f"there is no member epoch {request.member_epoch}"
    if why:
        raise RequestError(ErrorCode.INVALID_REQUEST, why)


# --- heartbeats ---------------------------------------------------------------------------------------------


def heartbeat(group: ShareGroup, beat: Heartbeat, context: EventContext) -> Answer:
    """Handle the heartbeat of a joining or present member.

    Raises GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH.
    """
    request = beat.request
    joins = request.member_epoch == 0
    present = group.members.get(request.member_id)
    group.check_room(group.settings.share_size_max, request.member_id)
    before = present or ShareMember(request.member_id) if joins else group.member(request.member_id)
    if not joins:
        _check_epoch(before, request.member_epoch)
    after = before.after_heartbeat(request, beat.client_id, beat.client_host)
    if after != before or present is None:
        context.out.records.append(records.member_record(group.id, after))
    topics = group.topics_with(after)
    epoch, changed = _epoch(group, topics, before.topics != after.topics, context)
    target, target_epoch = group.target.get(after.id, NO_PARTITIONS), group.assignment_epoch
    if epoch > target_epoch and _may_assign(group, context):
        computed = _target(group, after, epoch, context)
        if computed is not None:
            target, target_epoch = computed[after.id], epoch
        elif target_epoch == 0:  # the epoch that a new member needs until then
            target_epoch = EPOCH_OF_NEW
            context.out.records.append(records.target_epoch_record(group.id, EPOCH_OF_NEW, 0))
    moved = _moved(after, target, target_epoch, changed, context.image)
    if moved is not after:
        context.out.records.append(records.current_record(group.id, moved))
    watch_session(group, moved, context)
    response = ShareGroupHeartbeatResponse(
        member_id=moved.id,
        member_epoch=moved.epoch,
        heartbeat_interval_ms=group.settings.of_share_group(context.image, group.id).heartbeat_interval_ms,
    )
    if joins or request.subscribed_topic_names is not None or moved.assigned != before.assigned:
        response.assignment = _assignment(moved.assigned)
    is_same = before.topics == after.topics and present is not None
    if is_same and group.is_complete(context.image.topics):
        return Answer(response)
    beginning = _begin(group, topics, epoch, context)
    if is_same and beginning is None and not group.topic_states.initializing:
        group.complete = (context.image.topics, group.topic_states)
    return Answer(response, beginning)


def _assignment(topic_partitions: TopicIdPartitions) -> ShareGroupHeartbeatResponse.Assignment:
    return ShareGroupHeartbeatResponse.Assignment(
        topic_partitions=[
            ShareGroupHeartbeatResponse.TopicPartitions(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in by_topic(topic_partitions)
        ]
    )


def assignment_ahead(
    group: ShareGroup, member_id: str, image: ClusterImage
) -> ShareGroupHeartbeatResponse.Assignment | None:
    """Return the assignment of a member at its next heartbeat, as far as it is determined now; None if it is empty.

    Nothing is decided: epochs and records follow at that heartbeat, as in Kafka.
    """
    if member_id not in group.members:
        return None
    members = tuple(group.members.values())
    needed = TargetNeeded(group.id, group.epoch, members, group.target, group.topic_states, image)
    if needed.is_large:  # it is computed outside the event
        return None
    target = needed.compute()[member_id]
    return _assignment(target) if target else None


def _may_assign(group: ShareGroup, context: EventContext) -> bool:
    """Return whether the last assignment is older than `share.assignment.interval.ms`; the first one never waits."""
    interval_ms = group.settings.of_share_group(context.image, group.id).assignment_interval_ms
    return not group.was_assigned_within(interval_ms, context.now_ms)


def _check_epoch(member: ShareMember, epoch: int) -> None:
    """Check a member's epoch; a member that lost the last answer may continue with its previous epoch."""
    if epoch not in (member.epoch, member.previous_epoch):
        raise RequestError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"the member is in epoch {member.epoch}, not {epoch}: it must join again",
        )


def _epoch(
    group: ShareGroup, topics: Collection[str], changed: bool, context: EventContext
) -> tuple[int, bool]:
    """Return the group's epoch after the event, and whether it is new."""
    changed = changed or _is_outdated(group, context.image)
    if not changed and group.epoch and group.topics_seen is context.image.topics:
        return group.epoch, False
    new_hash = topics_hash(topics, context.image)
    group.topics_seen = context.image.topics
    if not changed and group.epoch and new_hash == group.topics_hash:
        return group.epoch, False
    epoch = max(group.epoch, EPOCH_OF_NEW) + 1
    context.out.records.append(records.epoch_record(group.id, epoch, new_hash))
    return epoch, True


def _is_outdated(group: ShareGroup, image: ClusterImage) -> bool:
    """Return whether the target lacks initialized partitions; record it if it lacks none."""
    if not group.members or group.assignment_epoch < group.epoch:
        return False
    if group.is_settled(image.topics):
        return False
    ids = topic_ids(group.topics, image)
    for topic_id, partitions in group.topic_states.initialized.items():
        if topic_id in ids and any((topic_id, index) not in group.copies for index in partitions):
            return True
    group.settled = (image.topics, group.topic_states, group.assignment_epoch)
    return False


def _target(
    group: ShareGroup, member: ShareMember, epoch: int, context: EventContext
) -> Mapping[str, TopicIdPartitions] | None:
    """Run the assignor, and write the changes.

    A large assignment is computed outside the event, one at a time for each group: then the target does not change yet.
    """
    if group.assigning_epoch:
        return None
    members = group.members.copy()
    members[member.id] = member
    needed = TargetNeeded(
        group.id, epoch, tuple(members.values()), group.target.copy(), group.topic_states, context.image
    )
    if needed.is_large:
        group.assigning_epoch = epoch
        context.out.effects.append(needed)
        return None
    target = needed.compute()
    write_target(group, epoch, target, records, context)
    return target


def _moved(
    member: ShareMember, target: TopicIdPartitions, target_epoch: int, changed: bool, image: ClusterImage
) -> ShareMember:
    """Return the member at the epoch of its target, without partitions of topics that it has unsubscribed from."""
    if member.epoch == target_epoch and not changed:
        return member
    ids = topic_ids(member.topics, image)
    assigned = frozenset(topic_partition for topic_partition in target if topic_partition[0] in ids)
    if member.epoch == target_epoch:
        return member if assigned == member.assigned else replace(member, assigned=assigned)
    return replace(member, epoch=target_epoch, previous_epoch=member.epoch, assigned=assigned)


# --- the states of partitions -------------------------------------------------------------------------------


def _begin(group: ShareGroup, names: Collection[str], epoch: int, context: EventContext) -> Beginning | None:
    """Return the partitions of subscribed topics without a state, and write that their state is being initialized."""
    topic_states, image = group.topic_states, context.image
    underway = {
        topic_id: partitions
        for topic_id, partitions in topic_states.initializing.items()
        if context.now_ms - group.begun_ms.get(topic_id, context.now_ms - INITIALIZE_RETRY_MS)
        < INITIALIZE_RETRY_MS
    }
    missing: list[TopicIdPartition] = []
    for topic in [image.topics[name] for name in sorted(names) if name in image.topics]:
        if len(topic_states.initialized.get(topic.id, NONE)) < len(topic.partitions):
            there = topic_states.initialized.get(topic.id, NONE) | underway.get(topic.id, NONE)
            missing += [(topic.id, index) for index in range(len(topic.partitions)) if index not in there]
    if not missing:
        return None
    # a partition added to a known topic is read from its beginning; a new topic, from the group's start setting
    offsets = {
        topic_partition: 0 if topic_partition[0] in topic_states.initialized else UNKNOWN_OFFSET
        for topic_partition in missing
    }
    begin(group, offsets, context)
    return Beginning(epoch, offsets)


def begin(group: ShareGroup, topic_partitions: Iterable[TopicIdPartition], context: EventContext) -> None:
    """Write that these states are being initialized, before the share coordinator is asked."""
    topic_partitions = list(topic_partitions)
    names = {
        topic_partition[0]: context.image.topic_name(topic_partition[0]) or ""
        for topic_partition in topic_partitions
    }
    context.out.records.append(
        records.topic_states_record(group.id, group.topic_states.begun(topic_partitions, names))
    )
    group.begun_ms.update(dict.fromkeys(names, context.now_ms))


# --- leaving ------------------------------------------------------------------------------------------------


def leave(group: ShareGroup, member_id: str, context: EventContext) -> ShareGroupHeartbeatResponse:
    """Handle the leave of a member. Raises UNKNOWN_MEMBER_ID."""
    remove(group, group.member(member_id), context)
    return ShareGroupHeartbeatResponse(member_id=member_id, member_epoch=LEAVE_EPOCH)


def remove(group: ShareGroup, member: ShareMember, context: EventContext) -> None:
    """Remove a member; the group's epoch rises, and the next heartbeat computes a new target."""
    context.out.records += records.member_tombstones(group.id, member.id)
    context.out.timers["session", group.id, member.id] = None
    epoch = group.epoch + 1
    new_hash = topics_hash(group.topics_without(member), context.image)
    context.out.records.append(records.epoch_record(group.id, epoch, new_hash))
    if len(group.members) == 1:
        context.out.records.append(records.target_epoch_record(group.id, epoch, 0))


# --- timers -------------------------------------------------------------------------------------------------


def watch_session(group: ShareGroup, member: ShareMember, context: EventContext) -> None:
    """Restart a member's session timeout."""
    timeout_ms = group.settings.of_share_group(context.image, group.id).session_timeout_ms
    context.out.timers["session", group.id, member.id] = context.now_ms + timeout_ms


def overdue(group: ShareGroup, member_id: str, context: EventContext) -> None:
    """Remove a member without heartbeats in time."""
    member = group.members.get(member_id)
    if member is not None:
        remove(group, member, context)


def watch_all(group: ShareGroup, context: EventContext) -> None:
    """Restart all timers of all members, after a load."""
    watch_each(group.members.values(), partial(watch_session, group), context)
