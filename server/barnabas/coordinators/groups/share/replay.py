"""Replay of the records of share groups. Pure.

The rule: a value creates its group unless one of this kind exists; a tombstone of a missing entry is ignored.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from barnabas.coordinators.groups.replaying import Replay, replay_target
from barnabas.coordinators.groups.share.group import ShareGroup
from barnabas.coordinators.groups.share.member import ShareMember
from barnabas.coordinators.groups.share.records import topic_states_of
from barnabas.coordinators.groups.share.topic_states import NO_TOPIC_STATES
from barnabas.wire.generated.records import share_group_current_member_assignment as current
from barnabas.wire.generated.records import share_group_member_metadata as member_metadata
from barnabas.wire.generated.records import share_group_metadata as metadata
from barnabas.wire.generated.records import share_group_state_partition_metadata as known_topics
from barnabas.wire.generated.records import share_group_target_assignment_member as target_member
from barnabas.wire.generated.records import share_group_target_assignment_metadata as target_metadata
from barnabas.wire.topic_partitions import NO_PARTITIONS


def _epoch(group: ShareGroup, _: Any, written: Any) -> None:
    group.epoch, group.topics_hash = written.epoch, written.metadata_hash


def _target_epoch(group: ShareGroup, _: Any, written: Any) -> None:
    group.assignment_epoch = written.assignment_epoch if written is not None else 0
    group.assigned_ms = written.assignment_timestamp if written is not None else 0


def _member(group: ShareGroup, where: Any, written: Any) -> None:
    if written is None:
        group.drop_member(where.member_id)
        return
    member = group.members.get(where.member_id) or ShareMember(where.member_id)
    group.put_member(
        replace(
            member,
            rack_id=written.rack_id,
            client_id=written.client_id,
            client_host=written.client_host,
            topics=frozenset(written.subscribed_topic_names),
        )
    )


def _current(group: ShareGroup, where: Any, written: Any) -> None:
    member = group.members.get(where.member_id)
    if written is None:
        if member is not None:
            group.put_member(replace(member, epoch=-1, previous_epoch=-1, assigned=NO_PARTITIONS))
        return
    group.put_member(
        replace(
            member or ShareMember(where.member_id),
            epoch=written.member_epoch,
            previous_epoch=written.previous_member_epoch,
            assigned=frozenset((t.topic_id, p) for t in written.assigned_partitions for p in t.partitions),
        )
    )


def _known(group: ShareGroup, _: Any, written: Any) -> None:
    group.topic_states = NO_TOPIC_STATES if written is None else topic_states_of(written)


replay: Replay[ShareGroup] = Replay(
    metadata.RECORD,
    [
        (metadata.RECORD, _epoch),
        (target_metadata.RECORD, _target_epoch),
        (target_member.RECORD, replay_target),
        (member_metadata.RECORD, _member),
        (current.RECORD, _current),
        (known_topics.RECORD, _known),
    ],
)
"""Replays a record, if it is one of a share group."""
