"""Joining, staying in and leaving a consumer group by ConsumerGroupHeartbeat (KIP-848). Pure.

A classic group stops for each rebalance: all members join again, one of them assigns, and all wait for the result. Here the
coordinator assigns, and each member moves to its new partitions by its own heartbeats while the others keep consuming.
Three epochs order that:

- the group's epoch rises when a subscription, the matches of an expression, or the partitions of a topic change;
- the target's epoch is the group's epoch for which the partitions of every member were computed last;
- a member's epoch is the target's epoch that the member has reached; requests and commits in another one are refused.

A member first revokes the partitions that are not in its target, and reports that it has done so. Then it takes over the
target's epoch, and gets each new partition as soon as the former owner has revoked it (`reconciliation`).

The rule: every heartbeat takes the same steps. The member is updated from the request; the group's epoch rises if that
changes the subscriptions, or the topics have changed; the target is computed if it is behind the epoch; the member takes
one step towards it. All of this is records, and the state changes when they are replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from barnabas.cluster.metadata.image import ClusterImage
from barnabas.coordinators.groups.consumer import records
from barnabas.coordinators.groups.consumer.group import ConsumerGroup, topics_in
from barnabas.coordinators.groups.consumer.member import ConsumerMember, Subscription
from barnabas.coordinators.groups.consumer.regex import Resolved, matching
from barnabas.coordinators.groups.consumer.target import TargetNeeded
from barnabas.coordinators.groups.epoch_group import watch_each
from barnabas.coordinators.groups.epoch_member import (
    LEAVE_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    MemberState,
    changed,
)
from barnabas.coordinators.groups.reconciliation import reconcile
from barnabas.coordinators.groups.settings import ConsumerSettings, GroupSettings
from barnabas.coordinators.groups.targets import write_target
from barnabas.coordinators.groups.topics import by_topic, partition_counts, topic_ids, topics_hash
from barnabas.coordinators.statemachine.context import EventContext
from barnabas.errors import RequestError
from barnabas.wire.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.topic_partitions import NO_PARTITIONS, TopicIdPartitions

OWN_MEMBER_ID_SINCE: Final = 1
"""The first version in which a member generates its id itself (KIP-1082)."""

EPOCH_OF_NEW: Final = 1
"""Epoch of a new group before its first member has subscribed, as in Kafka."""

SMALL_GROUP_MAX: Final = 200
"""Larger groups (members plus partitions) are assigned when quiet for a while, or after `LARGE_INTERVAL_MS`."""

LARGE_INTERVAL_MS: Final = 1_000
REST_SIZE_PER_MS: Final = 10
"""Members and partitions for each ms of that while, in which neither the broker is busy nor a disk slow."""


class Heartbeat:
    """A ConsumerGroupHeartbeat request, with further facts from the handler.

    `new_member_id` is for a member without an id. `may_describe` says whether the requester may describe a topic, for
    the topics that an expression matches; None without an authorizer. `answered` is the last response to the same
    request, if it is repeated: without changes it is reused. `unchanged` is the member if `is_up_to_date` has said so,
    until the following event.
    """

    __slots__ = (
        "answered",
        "client_host",
        "client_id",
        "may_describe",
        "new_member_id",
        "request",
        "unchanged",
    )

    def __init__(
        self,
        request: ConsumerGroupHeartbeatRequest,
        client_id: str,
        client_host: str,
        new_member_id: str,
        may_describe: Callable[[str], bool] | None = None,
        answered: ConsumerGroupHeartbeatResponse | None = None,
    ) -> None:
        self.request = request
        self.client_id = client_id
        self.client_host = client_host
        self.new_member_id = new_member_id
        self.may_describe = may_describe
        self.answered = answered
        self.unchanged: ConsumerMember | None = None


def check_heartbeat(
    request: ConsumerGroupHeartbeatRequest, api_version: int, settings: GroupSettings
) -> None:
    """Check that the fields are consistent. Raises INVALID_REQUEST, UNSUPPORTED_ASSIGNOR."""
    epoch = request.member_epoch
    if api_version >= OWN_MEMBER_ID_SINCE or epoch > 0 or epoch == LEAVE_EPOCH:
        _check_given(request.member_id, "member id")
    _check_given(request.group_id, "group id")
    if request.instance_id is not None:
        _check_given(request.instance_id, "instance id")
    if request.rack_id is not None:
        _check_given(request.rack_id, "rack id")
    why = ""
    if epoch == 0:
        if request.rebalance_timeout_ms == -1:
            why = "who joins must give a rebalance timeout"
        elif request.topic_partitions is None or request.topic_partitions:
            why = "who joins must report that it has no partitions"
        elif request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            why = "who joins must give topic names or a regular expression"
    elif epoch == LEAVE_FOR_A_WHILE_EPOCH:
        why = (
            "" if request.instance_id is not None else "only a member with an instance id leaves for a while"
        )
    elif epoch < LEAVE_FOR_A_WHILE_EPOCH:
        why = f"there is no member epoch {epoch}"
    if why:
        raise RequestError(ErrorCode.INVALID_REQUEST, why)
    if request.server_assignor is not None and request.server_assignor not in settings.consumer_assignors:
        served = ", ".join(settings.consumer_assignors)
        raise RequestError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"assignor {request.server_assignor!r} is not served; {served} are",
        )


def _check_given(value: str, what: str) -> None:
    if not value.strip():
        raise RequestError(ErrorCode.INVALID_REQUEST, f"the {what} is empty")


def _settings_of(group: ConsumerGroup, image: ClusterImage) -> ConsumerSettings:
    """Return a group's effective settings: its own, and the broker's for the rest."""
    cached = group.obeyed
    if cached is None or cached[0] is not image.configs:
        cached = group.obeyed = (image.configs, group.settings.of_group(image, group.id))
    return cached[1]


# --- heartbeats ---------------------------------------------------------------------------------------------


def heartbeat(group: ConsumerGroup, beat: Heartbeat, context: EventContext) -> ConsumerGroupHeartbeatResponse:
    """Handle the heartbeat of a joining or present member.

    Raises GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID, FENCED_INSTANCE_ID,
    INVALID_REGULAR_EXPRESSION.
    """
    request = beat.request
    if beat.unchanged is not None or is_up_to_date(group, beat, context.image, context.now_ms):
        return _stay(group, beat, context)
    joins = request.member_epoch == 0
    member_id = request.member_id or beat.new_member_id
    reported = _reported(request)
    group.check_room(group.settings.consumer_size_max, member_id)
    if request.instance_id is None:
        present = group.members.get(member_id)
        before = present or ConsumerMember(member_id) if joins else group.member(member_id)
        if not joins:
            before.check_epoch(request.member_epoch, reported)
    elif joins:
        before = take_over_static(group, member_id, request.instance_id, context, by_classic=False)
    else:
        before = group.static_member(request.instance_id, member_id)
        before.check_epoch(request.member_epoch, reported)
    updated = before
    if not _says_nothing(beat, before):
        updated = before.after_heartbeat(request, beat.client_id, beat.client_host)
    after = advance(group, before, updated, reported, context)
    watch_session(group, after, context)
    former = group.members.get(after.id)
    if former is not None and former.classic is not None:
        expect_nothing(group, after.id, context)
    response = ConsumerGroupHeartbeatResponse(
        member_id=after.id,
        member_epoch=after.epoch,
        heartbeat_interval_ms=_settings_of(group, context.image).heartbeat_interval_ms,
    )
    says_everything = (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )
    if joins or says_everything or after.assigned.keys() != before.assigned.keys():
        response.assignment = ConsumerGroupHeartbeatResponse.Assignment(
            topic_partitions=[
                ConsumerGroupHeartbeatResponse.TopicPartitions(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in by_topic(after.assigned)
            ]
        )
    return response


def is_up_to_date(group: ConsumerGroup, beat: Heartbeat, image: ClusterImage, now_ms: int) -> bool:
    """Return whether a heartbeat changes nothing, as most do; sets `beat.unchanged` to the member then."""
    request = beat.request
    member = group.members.get(request.member_id)
    beat.unchanged = None
    if (
        member is None
        or not 0 < request.member_epoch == member.epoch
        or request.instance_id is not None
        or request.topic_partitions is not None
        or group.topics_seen is not image.topics
        or member.epoch != group.assignment_epoch
        or member.state is not MemberState.STABLE
        or not _says_nothing(beat, member)
        or (
            group.epoch > group.assignment_epoch
            and not group.assigning_epoch
            and _may_assign(group, member, image, now_ms)
        )
    ):
        return False
    beat.unchanged = member
    return True


def _stay(group: ConsumerGroup, beat: Heartbeat, context: EventContext) -> ConsumerGroupHeartbeatResponse:
    """Restart the session timer of an unchanged member; returns the response without changes."""
    member = beat.unchanged
    assert member is not None
    settings = _settings_of(group, context.image)
    context.out.timers["session", group.id, member.id] = context.now_ms + settings.session_timeout_ms
    answered, interval_ms = beat.answered, settings.heartbeat_interval_ms
    if (
        answered is not None
        and answered.member_id == member.id
        and answered.member_epoch == member.epoch
        and answered.heartbeat_interval_ms == interval_ms
        and answered.assignment is None
        and not answered.error_code
        and not answered.throttle_time_ms
    ):
        return answered
    return ConsumerGroupHeartbeatResponse(
        member_id=member.id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=interval_ms,
    )


def _says_nothing(beat: Heartbeat, member: ConsumerMember) -> bool:
    """Return whether a heartbeat changes none of its member's fields: null or -1 means no change."""
    request = beat.request
    return (
        request.rebalance_timeout_ms == -1
        and request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.server_assignor is None
        and request.rack_id is None
        and (request.instance_id is None or request.instance_id == member.instance_id)
        and member.client_id == beat.client_id
        and member.client_host == beat.client_host
        and member.classic is None
    )


def _reported(request: ConsumerGroupHeartbeatRequest) -> TopicIdPartitions | None:
    if request.topic_partitions is None:
        return None
    return frozenset((topic.topic_id, p) for topic in request.topic_partitions for p in topic.partitions)


def take_over_static(
    group: ConsumerGroup, member_id: str, instance_id: str, context: EventContext, *, by_classic: bool
) -> ConsumerMember:
    """Return the member that joins with an instance id: a new one, or one that replaces the former owner of the id.

    A former owner of the consumer protocol must have left temporarily. Raises UNRELEASED_INSTANCE_ID.
    """
    owner_id = group.static_ids.get(instance_id)
    if owner_id is None or owner_id == member_id:
        return group.members.get(member_id) or ConsumerMember(member_id, instance_id)
    former = group.members[owner_id]
    if not by_classic and former.classic is None and former.epoch != LEAVE_FOR_A_WHILE_EPOCH:
        raise RequestError(
            ErrorCode.UNRELEASED_INSTANCE_ID, f"the instance id {instance_id!r} belongs to {former.id!r}"
        )
    member = changed(former, id=member_id, epoch=0, previous_epoch=0)
    out = context.out
    out.records += records.member_tombstones(group.id, former.id)
    out.records.append(records.member_record(group.id, member))
    out.records.append(records.target_record(group.id, member_id, group.target.get(former.id, NO_PARTITIONS)))
    out.records.append(records.current_record(group.id, member))
    forget_timers(group, former.id, context)
    return member


def advance(
    group: ConsumerGroup,
    before: ConsumerMember,
    after: ConsumerMember,
    reported: TopicIdPartitions | None,
    context: EventContext,
) -> ConsumerMember:
    """Update a member, and after it the group's epoch, the target, and the member's next step.

    Raises INVALID_REGULAR_EXPRESSION.
    """
    out = context.out
    changed = before.topics != after.topics or before.regex != after.regex or group.was_another(after)
    changed = changed or group.prefers_another_assignor(before, after)
    if (after is not before and after != before) or after.id not in group.members:
        records.write_member(out, group.id, after)
    epoch, seen = max(group.epoch, EPOCH_OF_NEW), group
    if changed or group.epoch == 0 or group.topics_seen is not context.image.topics:
        subscriptions = _subscriptions_with(group, after)
        regexes = _refresh_regexes(group, subscriptions, context)
        if regexes != group.regexes:
            seen = replace(group, regexes=regexes)
        new_hash = _hash(group, _topics_in(subscriptions, regexes), context)
        if changed or new_hash != group.topics_hash or regexes != group.regexes:
            epoch += 1
        if epoch != group.epoch:
            _write_epoch(group, epoch, new_hash, context)
    target, target_epoch = group.target_of(after), group.assignment_epoch
    if epoch > target_epoch and _may_assign(group, after, context.image, context.now_ms):
        needed = None if group.assigning_epoch else _target_needed(seen, after, epoch, context)
        if needed is None or needed.is_large:
            # otherwise an assignment is in progress, and the next is requested after it
            if needed is not None:
                group.assigning_epoch = epoch
                context.out.effects.append(needed)
            if target_epoch == 0:  # the epoch that a new member needs until then
                target_epoch = EPOCH_OF_NEW
                out.records.append(records.target_epoch_record(group.id, EPOCH_OF_NEW, 0))
        else:
            computed = needed.compute()
            write_target(group, epoch, computed, records, context, needed.group.target)
            target, target_epoch = computed[after.id], epoch
    moved = reconcile(after, target_epoch, target, group.owners, reported)
    if moved is not after:
        records.write_current(out, group.id, moved)
        watch_revocation(group, moved, context)
    group.topics_seen = context.image.topics
    return moved


def _may_assign(group: ConsumerGroup, after: ConsumerMember, image: ClusterImage, now_ms: int) -> bool:
    """Return whether the last assignment is at least `consumer.assignment.interval.ms` ago; the first one never waits.

    If many members join together, each would move partitions that the others just got: large groups wait until they are
    quiet, but no longer than `LARGE_INTERVAL_MS` after their last assignment.
    """
    interval_ms = _settings_of(group, image).assignment_interval_ms
    if group.was_assigned_within(interval_ms, now_ms):
        return False
    size = len(group.members) + (after.id not in group.members) + group.partition_count
    if size <= SMALL_GROUP_MAX or not group.was_assigned_within(LARGE_INTERVAL_MS, now_ms):
        return True
    return now_ms - max(group.changed_ms, group.assigned_ms) >= size // REST_SIZE_PER_MS


def _hash(group: ConsumerGroup, names: frozenset[str], context: EventContext) -> int:
    """Return `topics_hash`, cached for the same names of the same topics."""
    cached = group.hashed
    if cached is None or cached[0] is not context.image.topics or cached[1] != names:
        topics = context.image.topics
        partitions = sum([len(topics[name].partitions) for name in names if name in topics])
        cached = group.hashed = (topics, names, topics_hash(names, context.image), partitions)
    return cached[2]


def _subscriptions_with(group: ConsumerGroup, member: ConsumerMember) -> set[Subscription]:
    """Return the members' subscriptions, with the updated member, and without the one that it replaces."""
    replaced = group.replaced_by(member)
    return group.subscriptions_after(() if replaced is None else (replaced,), member)


def _topics_in(subscriptions: Iterable[Subscription], regexes: Mapping[str, Resolved]) -> frozenset[str]:
    return frozenset().union(*(topics_in(subscription, regexes) for subscription in subscriptions))


def _write_epoch(group: ConsumerGroup, epoch: int, new_hash: int, context: EventContext) -> None:
    group.changed_ms = context.now_ms
    if group.has_partition_metadata:
        context.out.records.append(records.partition_metadata_tombstone(group.id))
    records.write_epoch(context.out, group.id, epoch, new_hash)


def _refresh_regexes(
    group: ConsumerGroup, subscriptions: Iterable[Subscription], context: EventContext
) -> dict[str, Resolved]:
    """Resolve these regular expressions again; writes the changed results."""
    used = {regex for _, regex in subscriptions if regex}
    regexes: dict[str, Resolved] = {}
    for regex in used:
        resolved = group.regexes.get(regex)
        if resolved is not None and group.topics_seen is context.image.topics:
            regexes[regex] = resolved
            continue
        topics = matching(regex, context.image.topics)
        if context.may_describe is not None:
            topics = frozenset(filter(context.may_describe, topics))
        if resolved is not None and resolved.topics == topics:
            regexes[regex] = resolved
            continue
        regexes[regex] = Resolved(topics, context.image.version, context.now_ms)
        context.out.records.append(records.regex_record(group.id, regex, regexes[regex]))
    context.out.records += [
        records.regex_tombstone(group.id, regex) for regex in group.regexes if regex not in used
    ]
    return regexes


def _target_needed(
    group: ConsumerGroup, member: ConsumerMember, epoch: int, context: EventContext
) -> TargetNeeded:
    members = tuple(group.members_with(member))
    subscriptions = _subscriptions_with(group, member)
    counts = partition_counts(
        topic_ids(_topics_in(subscriptions, group.regexes), context.image), context.image
    )
    assigned_group = ConsumerGroup(
        group.id, group.settings, target=group.target_with(member), regexes=group.regexes
    )
    return TargetNeeded(group.id, epoch, members, assigned_group, context.image, counts)


# --- leaving ------------------------------------------------------------------------------------------------


def leave_for_a_while(group: ConsumerGroup, member: ConsumerMember, context: EventContext) -> None:
    """Keep a static member that left temporarily, until its session timeout; its revoked partitions are released."""
    context.out.records.append(records.current_record(group.id, member.away()))
    context.out.timers["revocation", group.id, member.id] = None


def remove(group: ConsumerGroup, gone: Iterable[ConsumerMember], context: EventContext) -> None:
    """Remove members; the group's epoch rises, and the next heartbeat computes a new target."""
    ids = {member.id for member in gone}
    if not ids:
        return
    for member_id in sorted(ids):
        context.out.records += records.member_tombstones(group.id, member_id)
        forget_timers(group, member_id, context)
    subscriptions = group.subscriptions_after(ids)
    used = {regex for _, regex in subscriptions}
    context.out.records += [
        records.regex_tombstone(group.id, regex) for regex in group.regexes if regex not in used
    ]
    new_hash = _hash(group, _topics_in(subscriptions, group.regexes), context)
    _write_epoch(group, group.epoch + 1, new_hash, context)
    if len(ids) == len(group.members):
        context.out.records.append(records.target_epoch_record(group.id, group.epoch + 1, 0))


# --- timers -------------------------------------------------------------------------------------------------


def watch_session(group: ConsumerGroup, member: ConsumerMember, context: EventContext) -> None:
    """Restart a member's session timeout."""
    if member.classic is not None:
        timeout_ms = member.classic.session_timeout_ms
    else:
        timeout_ms = _settings_of(group, context.image).session_timeout_ms
    context.out.timers["session", group.id, member.id] = context.now_ms + timeout_ms


def watch_revocation(group: ConsumerGroup, member: ConsumerMember, context: EventContext) -> None:
    """Start the rebalance timeout of a member that must revoke partitions."""
    if member.classic is None:
        group.watch_revocation(member, context)


def forget_timers(group: ConsumerGroup, member_id: str, context: EventContext) -> None:
    """Cancel the timers of a member."""
    for name in ("session", "revocation"):
        context.out.timers[name, group.id, member_id] = None
    expect_nothing(group, member_id, context)


def expect_nothing(group: ConsumerGroup, member_id: str, context: EventContext) -> None:
    """Stop the timers for the rejoin or sync of a classic member."""
    group.rejoins_due_ms.pop(member_id, None)
    for name in ("rejoin", "resync"):
        context.out.timers[name, group.id, member_id] = None


def watch_all(group: ConsumerGroup, context: EventContext) -> None:
    """Restart all timers of all members, after a load."""
    watch_each(group.members.values(), partial(_watch, group), context)


def _watch(group: ConsumerGroup, member: ConsumerMember, context: EventContext) -> None:
    watch_session(group, member, context)
    watch_revocation(group, member, context)
