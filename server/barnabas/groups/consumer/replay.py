"""Replay of the records of consumer groups. Pure.

The rule: a value makes its group if there is none of this kind; a tombstone for what is not there means nothing.
After compaction any record may come without those that were written before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from barnabas.groups.consumer.group import ConsumerGroup
from barnabas.groups.consumer.member import ConsumerMember, MemberState
from barnabas.groups.consumer.records import partitions_with_epochs
from barnabas.groups.consumer.regex import Resolved
from barnabas.wire.generated.records import (
    consumer_group_current_member_assignment as current_assignment,
)
from barnabas.wire.generated.records import (
    consumer_group_member_metadata as member_metadata,
)
from barnabas.wire.generated.records import (
    consumer_group_metadata as metadata,
)
from barnabas.wire.generated.records import (
    consumer_group_partition_metadata as partition_metadata,
)
from barnabas.wire.generated.records import (
    consumer_group_regular_expression as regular_expression,
)
from barnabas.wire.generated.records import (
    consumer_group_target_assignment_member as target_member,
)
from barnabas.wire.generated.records import (
    consumer_group_target_assignment_metadata as target_metadata,
)

Find = Callable[[str, bool], ConsumerGroup | None]
"""The group of an id; made if the flag says so, otherwise None where there is none of this kind."""
End = Callable[[str], None]
_STATES = frozenset(MemberState)


def replay(kind: int, key: bytes, value: bytes | None, find: Find, end: End) -> bool:
    """Replay a record, if it is one of a consumer group; whether it was. Raises DecodeError."""
    if kind == metadata.RECORD.type_id:
        _epoch(key, value, find, end)
        return True
    apply_record = _RECORD_TYPES.get(kind)
    if apply_record is None:
        return False
    apply_record(key, value, find)
    return True


def _epoch(key: bytes, value: bytes | None, find: Find, end: End) -> None:
    group_id = metadata.RECORD.decode_key(key).group_id
    group = find(group_id, value is not None)
    if value is None:
        if group is not None:
            end(group_id)
    elif group is not None:
        written = metadata.RECORD.decode_value(value)
        group.epoch, group.topics_hash = written.epoch, written.metadata_hash


def _partition_metadata(key: bytes, value: bytes | None, find: Find) -> None:
    group = find(partition_metadata.RECORD.decode_key(key).group_id, value is not None)
    if group is not None:
        group.has_partition_metadata = value is not None


def _target_epoch(key: bytes, value: bytes | None, find: Find) -> None:
    group = find(target_metadata.RECORD.decode_key(key).group_id, value is not None)
    if group is not None:
        target = target_metadata.RECORD.decode_value(value) if value is not None else None
        group.assignment_epoch = target.assignment_epoch if target else 0
        group.assigned_ms = target.assignment_timestamp if target else 0


def _target(key: bytes, value: bytes | None, find: Find) -> None:
    where = target_member.RECORD.decode_key(key)
    group = find(where.group_id, value is not None)
    if group is None:
        return
    if value is None:
        group.target.pop(where.member_id, None)
        return
    topics = target_member.RECORD.decode_value(value).topic_partitions
    group.target[where.member_id] = frozenset((t.topic_id, p) for t in topics for p in t.partitions)


def _member(key: bytes, value: bytes | None, find: Find) -> None:
    where = member_metadata.RECORD.decode_key(key)
    group = find(where.group_id, value is not None)
    if group is None:
        return
    if value is None:
        group.drop_member(where.member_id)
        return
    member = group.members.get(where.member_id) or ConsumerMember(where.member_id)
    group.put_member(member.with_metadata(member_metadata.RECORD.decode_value(value)))


def _current(key: bytes, value: bytes | None, find: Find) -> None:
    where = current_assignment.RECORD.decode_key(key)
    group = find(where.group_id, value is not None)
    if group is None:
        return
    if value is None:
        group.forget_current(where.member_id)
        return
    written = current_assignment.RECORD.decode_value(value)
    member = group.members.get(where.member_id) or ConsumerMember(where.member_id)
    group.put_member(
        replace(
            member,
            epoch=written.member_epoch,
            previous_epoch=written.previous_member_epoch,
            state=MemberState(written.state) if written.state in _STATES else MemberState.UNKNOWN,
            assigned=partitions_with_epochs(written.assigned_partitions, written.member_epoch),
            revoking=partitions_with_epochs(written.partitions_pending_revocation, written.member_epoch),
        )
    )


def _regex(key: bytes, value: bytes | None, find: Find) -> None:
    where = regular_expression.RECORD.decode_key(key)
    group = find(where.group_id, value is not None)
    if group is None:
        return
    if value is None:
        group.regexes.pop(where.regular_expression, None)
        return
    written = regular_expression.RECORD.decode_value(value)
    group.regexes[where.regular_expression] = Resolved(
        frozenset(written.topics), written.version, written.timestamp
    )


_RECORD_TYPES: dict[int, Callable[[bytes, bytes | None, Find], None]] = {
    partition_metadata.RECORD.type_id: _partition_metadata,
    target_metadata.RECORD.type_id: _target_epoch,
    target_member.RECORD.type_id: _target,
    member_metadata.RECORD.type_id: _member,
    current_assignment.RECORD.type_id: _current,
    regular_expression.RECORD.type_id: _regex,
}
