"""Responses to the members of a classic group in one generation, and its record if they are many. Pure.

The rule: all values are immutable, so that responses and records can be encoded after the event.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from barnabas.config.features import RecordVersions
from barnabas.coordinators.groups.member import MANY_MEMBERS, Member
from barnabas.coordinators.groups.records import group_record
from barnabas.coordinators.statemachine.decision import Record
from barnabas.wire.generated.join_group import JoinGroupResponse
from barnabas.wire.generated.records.group_metadata import GroupMetadataValue

LARGE_RECORD_BYTES: Final = 500_000
"""From this size on, the record of a generation is encoded in a thread."""


@dataclass(frozen=True, slots=True)
class LeadersAnswer:
    """The response to the leader of very many members; its sender encodes the list."""

    response: JoinGroupResponse
    members: tuple[Member, ...]
    protocol: str

    def entries(self) -> Iterator[JoinGroupResponse.JoinGroupResponseMember]:
        """Yield the entries of the list."""
        return (leaders_entry(member, self.protocol) for member in self.members)


def leaders_entry(member: Member, protocol: str) -> JoinGroupResponse.JoinGroupResponseMember:
    """Return a member's entry in the leader's response."""
    return JoinGroupResponse.JoinGroupResponseMember(
        member_id=member.id, group_instance_id=member.instance_id, metadata=member.metadata_for(protocol)
    )


class Generation:
    """A generation, immutable; `members` are for its leader, which may be None."""

    __slots__ = ("leader", "members", "number", "protocol", "protocol_type")

    def __init__(
        self,
        number: int,
        protocol_type: str,
        protocol: str | None,
        leader: str | None,
        members: tuple[Member, ...],
    ) -> None:
        self.number = number
        self.protocol_type = protocol_type
        self.protocol = protocol
        self.leader = leader
        self.members = members

    def joined(self, member_id: str) -> JoinGroupResponse | LeadersAnswer:
        """Return the response to a member's JoinGroup."""
        response = JoinGroupResponse(
            generation_id=self.number,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=self.leader or "",
            member_id=member_id,
        )
        if member_id != self.leader:
            return response
        protocol = self.protocol or ""
        if len(self.members) >= MANY_MEMBERS:
            return LeadersAnswer(response, self.members, protocol)
        response.members = [leaders_entry(member, protocol) for member in self.members]
        return response


@dataclass(frozen=True, slots=True)
class RecordNeeded:
    """Effect of an event: the record of a large generation, to be encoded outside the event and appended.

    Then it is stable.
    """

    group_id: str
    generation: int
    value: GroupMetadataValue
    members: tuple[Member, ...]
    assignments: Mapping[str, bytes]
    versions: RecordVersions

    def compute(self) -> Record:
        """Return the record."""
        protocol = self.value.protocol or ""
        assignments = self.assignments
        members = [member.record(protocol, assignments.get(member.id, b"")) for member in self.members]
        return group_record(self.group_id, replace(self.value, members=members), self.versions)
