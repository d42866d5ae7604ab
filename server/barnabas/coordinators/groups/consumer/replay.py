"""Replay of the records of consumer groups. Pure.

The rule: a value creates its group unless one of this kind exists; a tombstone of a missing entry is ignored. After
compaction any record may be read without those written before it.
"""

from __future__ import annotations

from typing import Any

from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.consumer.member import ConsumerMember
from barnabas.coordinators.groups.consumer.records import partitions_with_epochs
from barnabas.coordinators.groups.consumer.regex import Resolved
from barnabas.coordinators.groups.epoch_member import MemberState, changed
from barnabas.coordinators.groups.replaying import Replay, replay_members, replay_target, replay_target_epoch
from barnabas.wire.generated.records import consumer_group_current_member_assignment as current
from barnabas.wire.generated.records import consumer_group_member_metadata as member_metadata
from barnabas.wire.generated.records import consumer_group_metadata as metadata
from barnabas.wire.generated.records import consumer_group_partition_metadata as partition_metadata
from barnabas.wire.generated.records import consumer_group_regular_expression as regular_expression
from barnabas.wire.generated.records import consumer_group_target_assignment_member as target_member
from barnabas.wire.generated.records import consumer_group_target_assignment_metadata as target_metadata

_STATES = frozenset(MemberState)


def _epoch(group: ConsumerGroup, _: Any, written: Any) -> None:
    group.epoch, group.topics_hash = written.epoch, written.metadata_hash


def _partition_metadata(group: ConsumerGroup, _: Any, written: Any) -> None:
    group.has_partition_metadata = written is not None


def _current(member: ConsumerMember, written: Any) -> ConsumerMember:
    return changed(
        member,
        epoch=written.member_epoch,
        previous_epoch=written.previous_member_epoch,
        state=MemberState(written.state) if written.state in _STATES else MemberState.UNKNOWN,
        assigned=partitions_with_epochs(written.assigned_partitions, written.member_epoch),
        revoking=partitions_with_epochs(written.partitions_pending_revocation, written.member_epoch),
    )


def _regex(group: ConsumerGroup, where: Any, written: Any) -> None:
    if written is None:
        group.regexes.pop(where.regular_expression, None)
    else:
        topics = frozenset(written.topics)
        group.regexes[where.regular_expression] = Resolved(topics, written.version, written.timestamp)


replay: Replay[ConsumerGroup] = Replay(
    metadata.RECORD,
    [
        (metadata.RECORD, _epoch),
        (partition_metadata.RECORD, _partition_metadata),
        (target_metadata.RECORD, replay_target_epoch(nothing=0)),
        (target_member.RECORD, replay_target),
        *replay_members(
            ConsumerMember,
            (member_metadata.RECORD, ConsumerMember.with_metadata),
            (current.RECORD, _current),
        ),
        (regular_expression.RECORD, _regex),
    ],
)
"""Replays a record, if it is one of a consumer group."""
