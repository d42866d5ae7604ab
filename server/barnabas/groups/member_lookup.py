"""Finding the members of a group that has epochs, by member id and by instance id. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode


class Named(Protocol):
    """A member that may be static."""

    @property
    def id(self) -> str:
        """The member id."""

    @property
    def instance_id(self) -> str | None:
        """The instance id, None if it is not static."""


T = TypeVar("T")
M = TypeVar("M", bound=Named)


def member_of(group_id: str, members: Mapping[str, T], member_id: str) -> T:
    """A member. Raises UNKNOWN_MEMBER_ID."""
    member = members.get(member_id)
    if member is None:
        raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id!r} is no member of {group_id!r}")
    return member


def static_member_of(
    members: Mapping[str, T], static_ids: Mapping[str, str], instance_id: str, member_id: str
) -> T:
    """The member that has an instance id. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    known = static_ids.get(instance_id)
    if known is None:
        raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID, f"the instance id {instance_id!r} is not known")
    if known != member_id:
        raise RequestError(
            ErrorCode.FENCED_INSTANCE_ID, f"the instance id {instance_id!r} belongs to {known!r}"
        )
    return members[known]


def members_with(members: Mapping[str, M], static_ids: Mapping[str, str], member: M) -> list[M]:
    """All members, with this one as it is now, and without the one whose instance id it has taken over."""
    former = static_ids.get(member.instance_id) if member.instance_id is not None else None
    after = {key: value for key, value in members.items() if key != former}
    after[member.id] = member
    return list(after.values())
