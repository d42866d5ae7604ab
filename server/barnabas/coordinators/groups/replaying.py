"""Replay of the records of one kind of group, by their types. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

from barnabas.coordinators.groups.epoch_group import EpochGroup, ReconciledGroup
from barnabas.coordinators.groups.epoch_member import EpochMember
from barnabas.coordinators.groups.records import DecodedRecord, check_epoch
from barnabas.wire.codec import RecordType
from barnabas.wire.topic_partitions import TopicIdPartition

G = TypeVar("G")
M = TypeVar("M", bound=EpochMember[Any])
ApplyRecord = Callable[[Any, Any, Any], None]
"""Changes a group by a record's decoded key, and value or None."""


class Replay(Generic[G]):
    """Replay for a kind of group: its records all have their group in `group_id`; the tombstone of `epoch` ends it.

    `apply_record` maps a type to the function that applies a record's decoded key, and value or None, to its group.
    """

    def __init__(
        self,
        epoch: RecordType[Any, Any],
        apply_record: Iterable[tuple[RecordType[Any, Any], ApplyRecord]],
    ) -> None:
        self._epoch = epoch
        self._types = {record_type.type_id: (record_type, changes) for record_type, changes in apply_record}

    @property
    def type_ids(self) -> Iterable[int]:
        """The types of the records of this kind of group."""
        return self._types.keys()

    def decoded(self, type_id: int, key: bytes, value: bytes | None) -> DecodedRecord:
        """Decode a record of one of the types. Raises DecodeError."""
        record_type = self._types[type_id][0]
        written = None if value is None else record_type.decode_value(value)
        if record_type is self._epoch and written is not None:
            check_epoch(written.epoch)
        return DecodedRecord(type_id, record_type.decode_key(key), written)

    def apply(
        self, decoded: DecodedRecord, find: Callable[[str, bool], G | None], end: Callable[[str], None]
    ) -> None:
        """Replay a record.

        `find` returns the group with an id; if none of this kind exists, a new one if the flag is true, else None.
        """
        type_id, where, written = decoded
        record_type, apply_record = self._types[type_id]
        group = find(where.group_id, written is not None)
        if group is not None:
            if record_type is self._epoch and written is None:
                end(where.group_id)
            else:
                apply_record(group, where, written)


# --- records of several kinds of groups ---------------------------------------------------------------------


class _WithTargetTime(Protocol):
    """A group that records the time of its last target."""

    assignment_epoch: int
    assigned_ms: int


def replay_target_epoch(*, nothing: int) -> Callable[[_WithTargetTime, Any, Any], None]:
    """Return the replay of a target epoch's record; `nothing` is the epoch after its tombstone."""

    def apply_record(group: _WithTargetTime, _: Any, written: Any) -> None:
        group.assignment_epoch = written.assignment_epoch if written is not None else nothing
        group.assigned_ms = written.assignment_timestamp if written is not None else 0

    return apply_record


def replay_target(group: EpochGroup[Any, TopicIdPartition], where: Any, written: Any) -> None:
    """Replay the record of a member's target."""
    if written is None:
        group.drop_target(where.member_id)
    else:
        topics = written.topic_partitions
        assigned = frozenset((t.topic_id, p) for t in topics for p in t.partitions)
        group.put_target(where.member_id, assigned)


def replay_members(
    make: Callable[[str], M],
    metadata: tuple[RecordType[Any, Any], Callable[[M, Any], M]],
    current: tuple[RecordType[Any, Any], Callable[[M, Any], M]],
) -> list[tuple[RecordType[Any, Any], ApplyRecord]]:
    """Return functions that replay a member's records: its metadata and its assignments.

    Each is passed a function that returns the member with the value; `make` creates an empty member.
    """
    metadata_record, with_metadata = metadata
    current_record, with_current = current

    def replay_metadata(group: ReconciledGroup[M, Any], where: Any, written: Any) -> None:
        if written is None:
            group.drop_member(where.member_id)
        else:
            member = group.members.get(where.member_id) or make(where.member_id)
            group.put_member(with_metadata(member, written))

    def replay_current(group: ReconciledGroup[M, Any], where: Any, written: Any) -> None:
        member = group.members.get(where.member_id)
        if written is not None:
            group.put_member(with_current(member or make(where.member_id), written))
        elif member is not None:
            group.put_member(member.without_assignment())

    return [(metadata_record, replay_metadata), (current_record, replay_current)]
