"""A share group by the rules of KIP-932, as short as they can be said: members, epochs and which member may read what.

Written from those rules, and without any code of the broker's. The assignment itself is not predicted: when the group
assigns, `assign` gives what the broker has chosen, and the model says if it may be (each partition that has a state to
a subscriber). States of partitions are begun with the heartbeat that misses them. Left out: topics that go, racks,
sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tests.models.transactions import RefusedError, refuse_unless

Partition = tuple[str, int]
SESSION_MS, INTERVAL_MS = 45_000, 4
ID_LENGTH_MAX = 36


@dataclass
class Member:
    id: str
    topics: frozenset[str] = frozenset()
    epoch: int = 0
    previous_epoch: int = -1
    assigned: frozenset[Partition] = frozenset()
    due_ms: int = 0


@dataclass
class ShareGroup:
    """One group. `topics` has the number of partitions of each topic. Times in ms."""

    assign: Callable[[], dict[str, frozenset[Partition]]]
    topics: dict[str, int] = field(default_factory=dict)
    exists: bool = False
    epoch: int = 0
    assignment_epoch: int = 0
    assigned_ms: int | None = None
    members: dict[str, Member] = field(default_factory=dict)
    target: dict[str, frozenset[Partition]] = field(default_factory=dict)
    begun: set[Partition] = field(default_factory=set)
    seen_topics: dict[str, int] = field(default_factory=dict)
    """The topics of all members as they were when the epoch began."""

    # --- requests -------------------------------------------------------------------------------------------

    def heartbeat(
        self, member_id: str, epoch: int, topics: frozenset[str] | None, now_ms: int
    ) -> tuple[int, frozenset[Partition] | None]:
        """Return the member's epoch, and its partitions where it is told them."""
        joins = epoch == 0
        refuse_unless(0 < len(member_id) <= ID_LENGTH_MAX and epoch >= -1, "INVALID_REQUEST")
        refuse_unless(not joins or bool(topics), "INVALID_REQUEST")
        refuse_unless(self.exists or joins, "GROUP_ID_NOT_FOUND")
        if member_id not in self.members and not joins:
            raise RefusedError("UNKNOWN_MEMBER_ID")
        if epoch == -1:
            self.remove(self.members[member_id])
            return epoch, None
        before = self.members.get(member_id, Member(member_id))
        # It may be one answer behind: nobody must give up anything before another can have it.
        refuse_unless(joins or epoch in (before.epoch, before.previous_epoch), "FENCED_MEMBER_EPOCH")
        member = replace(before, topics=before.topics if topics is None else topics)
        lacks = bool(self.members) and self.epoch == self.assignment_epoch and self.lacks()
        self.exists, self.members[member_id] = True, member
        is_new = member.topics != before.topics or lacks or self.seen_topics != self.wanted_topics()
        if is_new:
            self.epoch, self.seen_topics = max(self.epoch, 1) + 1, self.wanted_topics()
        waits = self.assigned_ms is not None and now_ms - self.assigned_ms < INTERVAL_MS
        if self.epoch > self.assignment_epoch and not waits:
            self.target, self.assignment_epoch, self.assigned_ms = (
                self.checked(self.assign()),
                self.epoch,
                now_ms,
            )
        if member.epoch != self.assignment_epoch or is_new:
            target = self.target.get(member_id, frozenset())
            member.assigned = frozenset(part for part in target if part[0] in member.topics)
        if member.epoch != self.assignment_epoch:
            member.epoch, member.previous_epoch = self.assignment_epoch, member.epoch
        member.due_ms = now_ms + SESSION_MS
        self.begun |= {
            (name, number) for name, count in self.wanted_topics().items() for number in range(count)
        }
        is_told = joins or topics is not None or member.assigned != before.assigned
        return member.epoch, member.assigned if is_told else None

    def remove(self, member: Member) -> None:
        del self.members[member.id]
        self.target.pop(member.id, None)
        self.epoch, self.seen_topics = self.epoch + 1, self.wanted_topics()
        if not self.members:
            self.assignment_epoch, self.assigned_ms = self.epoch, None

    # --- rules ----------------------------------------------------------------------------------------------

    def wanted_topics(self) -> dict[str, int]:
        subscribed = frozenset[str]().union(*(member.topics for member in self.members.values()))
        return {name: count for name, count in self.topics.items() if name in subscribed}

    def lacks(self) -> bool:
        """Tell if a subscribed partition has got a state since the target was made."""
        assigned = frozenset[Partition]().union(*self.target.values())
        return bool({part for part in self.begun if part[0] in self.wanted_topics()} - assigned)

    def checked(self, target: dict[str, frozenset[Partition]]) -> dict[str, frozenset[Partition]]:
        """Return a target after a look at it: all that has a state and is wanted is given to a subscriber."""
        assert target.keys() == self.members.keys()
        for member_id, assigned in target.items():
            assert all(part[0] in self.members[member_id].topics and part in self.begun for part in assigned)
        topics = self.wanted_topics()
        assigned = frozenset[Partition]().union(*target.values())
        assert assigned == {part for part in self.begun if part[0] in topics}
        return target

    # --- time and questions ---------------------------------------------------------------------------------

    def pass_time(self, now_ms: int) -> None:
        """Members that were not heard of are gone."""
        for member in list(self.members.values()):
            if member.due_ms <= now_ms:
                self.remove(member)

    def restart(self, now_ms: int) -> None:
        for member in self.members.values():
            member.due_ms = now_ms + SESSION_MS

    def seen(self) -> Any:
        """The comparable state of the group."""
        members = {
            member.id: (member.topics, member.epoch, member.previous_epoch, member.assigned)
            for member in self.members.values()
        }
        state = "Stable" if self.members else "Empty"
        return state, self.epoch, self.assignment_epoch, self.target, members
