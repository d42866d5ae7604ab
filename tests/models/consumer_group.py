"""A group of the consumer protocol by the rules of KIP-848 (with KIP-1251 for commits), as short as they can be said.

Written from those rules, and without any code of the broker's. The assignment itself is not predicted: when the group
assigns, `assign` gives what the broker has chosen, and the model says if it may be (each partition to a subscriber).
Left out: regular expressions, racks, members of the classic protocol, changes of topics.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

from tests.models.transactions import RefusedError, refuse_unless

Partition = tuple[str, int]
SESSION_MS = 45_000
AWAY = -2
"""Epoch of a static member that has left for a while."""


@dataclass
class Member:
    """One member. `since` has the epoch in which it was given each partition, those in `revoking` too."""

    id: str
    instance: str | None
    topics: frozenset[str] = frozenset()
    rebalance_ms: int = -1
    epoch: int = 0
    previous_epoch: int = 0
    is_reconciled: bool = True
    assigned: frozenset[Partition] = frozenset()
    revoking: frozenset[Partition] = frozenset()
    since: dict[Partition, int] = field(default_factory=dict)
    session_due_ms: int = 0
    revocation_due_ms: int | None = None


@dataclass
class ConsumerGroup:
    """One group; `partitions` are those that there are. Times in ms."""

    partitions: Collection[Partition]
    assign: Callable[[], dict[str, frozenset[Partition]]]
    exists: bool = False
    epoch: int = 1
    assignment_epoch: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    target: dict[str, frozenset[Partition]] = field(default_factory=dict)

    # --- requests -------------------------------------------------------------------------------------------

    def heartbeat(
        self, member_id: str, epoch: int, instance: str | None, topics: frozenset[str] | None, rebalance_ms: int,
        owned: frozenset[Partition] | None, now_ms: int,
    ) -> tuple[int, frozenset[Partition] | None]:  # fmt: skip
        """A ConsumerGroupHeartbeat; returns the member's epoch, and its assignment where it is told."""
        refuse_unless(self.exists or epoch == 0, "GROUP_ID_NOT_FOUND")
        if epoch < 0:
            self.leave(self.known(member_id, instance), epoch, now_ms)
            return epoch, None
        joins = epoch == 0
        former: Member | None = None
        if joins and instance is None:
            member = self.members.get(member_id) or Member(member_id, None)
        elif joins:
            former = self.static(instance)
            if former is None or former.id == member_id:
                member, former = self.members.get(member_id) or Member(member_id, instance), None
            else:
                refuse_unless(former.epoch == AWAY, "UNRELEASED_INSTANCE_ID")
                member = replace(former, id=member_id, epoch=0, previous_epoch=0)
        else:
            member = self.known(member_id, instance)
            self.check_epoch(member, epoch, owned)
        self.exists = True
        was = self.members.get(member_id) if former is not None else None
        if former is not None:
            del self.members[former.id]
            self.target[member_id] = self.target.pop(former.id, frozenset())
        self.members[member_id] = member
        before = member.assigned
        if (topics is not None and topics != member.topics) or was is not None:
            member.topics = member.topics if topics is None else topics
            self.epoch += 1
        if instance is not None:
            member.instance = instance
        if rebalance_ms != -1:
            member.rebalance_ms = rebalance_ms
        if self.epoch > self.assignment_epoch:
            self.target, self.assignment_epoch = self.checked(self.assign()), self.epoch
        had = was.assigned | was.revoking if was is not None else frozenset()
        self.reconcile(member, owned, had, now_ms)
        member.session_due_ms = now_ms + SESSION_MS
        says_all = rebalance_ms != -1 and topics is not None and owned is not None
        is_told = joins or says_all or member.assigned != before
        return member.epoch, member.assigned if is_told else None

    def leave(self, member: Member, epoch: int, now_ms: int) -> None:
        """A member leaves for good, or a static one for a while: that one keeps what it has, as if since ever."""
        if epoch == AWAY:
            member.epoch, member.revoking, member.revocation_due_ms = AWAY, frozenset(), None
            member.since = dict.fromkeys(member.assigned, 0)
        else:
            self.remove(member)

    def commit(
        self,
        member_id: str,
        epoch: int,
        places: Collection[Partition],
        *,
        says_epochs: bool,
        in_transaction: bool,
    ) -> None:
        """See that offsets may be committed; `says_epochs` for versions that carry member epochs."""
        if epoch < 0 and not self.members:
            return
        if in_transaction and epoch < 0 and not member_id:
            return
        refuse_unless(member_id in self.members, "UNKNOWN_MEMBER_ID")
        refuse_unless(says_epochs or in_transaction, "UNSUPPORTED_VERSION")
        member = self.members[member_id]
        is_recent = epoch < member.epoch and all(
            partition in member.since and member.since[partition] <= epoch for partition in places
        )
        refuse_unless(
            epoch == member.epoch or is_recent, "STALE_MEMBER_EPOCH" if says_epochs else "ILLEGAL_GENERATION"
        )

    def fetch_offsets(self, member_id: str | None, epoch: int) -> None:
        """See that committed offsets may be asked for."""
        if member_id is None and epoch < 0:
            return
        refuse_unless(member_id in self.members, "UNKNOWN_MEMBER_ID")
        refuse_unless(epoch == self.members[member_id or ""].epoch, "STALE_MEMBER_EPOCH")

    # --- rules ----------------------------------------------------------------------------------------------

    def check_epoch(self, member: Member, epoch: int, owned: frozenset[Partition] | None) -> None:
        """A member may be one answer behind, if it owns nothing but what it was given."""
        if epoch != member.epoch:
            is_behind = epoch < member.epoch and epoch == member.previous_epoch
            refuse_unless(is_behind and owned is not None and owned <= member.assigned, "FENCED_MEMBER_EPOCH")

    def reconcile(
        self, member: Member, owned: frozenset[Partition] | None, had: frozenset[Partition], now_ms: int
    ) -> None:
        """One step towards the target: first gives up what is not in it, then takes what no other member has.

        `had` is what a member had until now that replaces a static one: it is free from its next step on.
        """
        if member.is_reconciled and member.epoch == self.assignment_epoch and not member.revoking:
            return
        epoch = member.epoch
        if member.revoking:
            if owned is None or owned & member.revoking:
                return
            epoch += 1
        target = self.target.get(member.id, frozenset())
        kept, surplus = member.assigned & target, member.assigned - target
        if surplus and (owned is None or owned & surplus):
            self.move(member, epoch, kept, surplus, now_ms, is_reconciled=False)
            return
        # What it has just given up counts as free from its next step on.
        others = [other for other in self.members.values() if other is not member]
        taken = had | member.revoking.union(*(other.assigned | other.revoking for other in others))
        gained = target - kept - taken
        for partition in gained:
            member.since[partition] = self.assignment_epoch
        all_given = kept | gained == target
        self.move(member, self.assignment_epoch, kept | gained, frozenset(), now_ms, is_reconciled=all_given)

    def move(
        self, member: Member, epoch: int, assigned: frozenset[Partition], revoking: frozenset[Partition], now_ms: int,
        *, is_reconciled: bool,
    ) -> None:  # fmt: skip
        after = (epoch, assigned, revoking, is_reconciled)
        if after == (member.epoch, member.assigned, member.revoking, member.is_reconciled):
            return
        member.previous_epoch = member.epoch
        member.epoch, member.assigned, member.revoking, member.is_reconciled = after
        member.since = {part: since for part, since in member.since.items() if part in assigned | revoking}
        member.revocation_due_ms = now_ms + member.rebalance_ms if revoking else None

    def remove(self, member: Member) -> None:
        del self.members[member.id]
        self.target.pop(member.id, None)
        self.epoch += 1
        if not self.members:
            self.assignment_epoch = self.epoch

    def checked(self, target: dict[str, frozenset[Partition]]) -> dict[str, frozenset[Partition]]:
        """Return a target after a look at it: all that is wanted is given, once, to a subscriber."""
        assigned = [(member_id, partition) for member_id, part in target.items() for partition in part]
        assert target.keys() == self.members.keys()
        assert len({partition for _, partition in assigned}) == len(assigned)
        assert all(partition[0] in self.members[member_id].topics for member_id, partition in assigned)
        subscribed = frozenset[str]().union(*(member.topics for member in self.members.values()))
        assert {part for _, part in assigned} == {part for part in self.partitions if part[0] in subscribed}
        return target

    # --- time -----------------------------------------------------------------------------------------------

    def pass_time(self, now_ms: int) -> None:
        """Members that were not heard of, or have not given up what they must, are gone."""
        for member in list(self.members.values()):
            dues = [member.session_due_ms]
            if member.revocation_due_ms is not None and member.revoking:
                dues.append(member.revocation_due_ms)
            if min(dues) <= now_ms:
                self.remove(member)

    def restart(self, now_ms: int) -> None:
        """Another coordinator knows all of it; members have all of their time again."""
        for member in self.members.values():
            member.session_due_ms = now_ms + SESSION_MS
            member.revocation_due_ms = now_ms + member.rebalance_ms if member.revoking else None

    # --- questions ------------------------------------------------------------------------------------------

    def static(self, instance: str | None) -> Member | None:
        return next((own for own in self.members.values() if instance and own.instance == instance), None)

    def known(self, member_id: str, instance: str | None) -> Member:
        if instance is not None:
            member = self.static(instance)
            refuse_unless(member is not None, "UNKNOWN_MEMBER_ID")
            assert member is not None
            refuse_unless(member.id == member_id, "FENCED_INSTANCE_ID")
        if member_id not in self.members:
            raise RefusedError("UNKNOWN_MEMBER_ID")
        return self.members[member_id]

    def seen(self) -> Any:
        """The comparable state of the group."""
        return (
            self.epoch,
            self.assignment_epoch,
            {member.id: seen_of(member) for member in self.members.values()},
        )


def seen_of(member: Member) -> tuple[Any, ...]:
    """The comparable state of a member."""
    return (
        member.instance,
        member.topics,
        member.epoch,
        member.previous_epoch,
        member.assigned,
        member.revoking,
        member.since,
    )
