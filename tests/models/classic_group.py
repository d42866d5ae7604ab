"""A group of the classic protocol by Kafka's rules (KIP-62, 134, 345, 394), as short as they can be said.

Written from those rules, and without any code of the broker's. A request is refused with `RefusedError`, or its waiter is
answered now or later in `answers`: `("join", code, generation, leader, member id, ids of the members it is told of)` or
`("sync", code, assignment)`. Where Kafka's order of members is that of a hash table, the caller says which was taken
(`pick`) and the model whether it may be. Left out: `group.max.size`, generations too large to be written in one step.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.models.transactions import RefusedError, refuse_unless

INITIAL_DELAY_MS = 3_000
NEW_MEMBER_MS = 300_000
Protocols = tuple[tuple[str, bytes], ...]


@dataclass
class Member:
    """One member; `due_ms` is when it counts as gone unless it is heard of, None while it waits for an answer."""

    id: str
    instance: str | None
    session_ms: int
    rebalance_ms: int
    protocols: Protocols
    is_new: bool = True
    due_ms: int | None = None
    join_waiter: int | None = None
    sync_waiter: int | None = None
    assignment: bytes = b""
    has_synced: bool = True


@dataclass
class ClassicGroup:
    """One group, with the answers to its requests by waiter. Times in ms; a time that is None is not waited for."""

    pick: Callable[[str, set[str]], str]
    exists: bool = False
    state: str = "Empty"
    generation: int = 0
    protocol_type: str = ""
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    pending: dict[str, int] = field(default_factory=dict)
    is_initial: bool = False
    has_grown: bool = False
    delay_left_ms: int = 0
    join_due_ms: int | None = None
    sync_due_ms: int | None = None
    answers: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    written: ClassicGroup | None = None

    # --- requests -------------------------------------------------------------------------------------------

    def join(
        self, waiter: int, member_id: str, new_id: str, instance: str | None, kind: str, protocols: Protocols,
        session_ms: int, rebalance_ms: int, now_ms: int, *, needs_known_id: bool,
    ) -> None:  # fmt: skip
        """A JoinGroup request; `needs_known_id` from version 4 on (KIP-394)."""
        refuse_unless(self.exists or not member_id, "UNKNOWN_MEMBER_ID")
        refuse_unless(bool(kind and protocols), "INCONSISTENT_GROUP_PROTOCOL")
        if self.state != "Empty":
            names = {name for name, _ in protocols}
            is_shared = not self.members or names & self.shared_protocols()
            refuse_unless(kind == self.protocol_type and bool(is_shared), "INCONSISTENT_GROUP_PROTOCOL")
        self.exists = True
        new = Member(member_id or new_id, instance, session_ms, rebalance_ms, protocols)
        if member_id in self.pending:
            refuse_unless(instance is None, "UNKNOWN_MEMBER_ID")
            self.add(new, waiter, kind, now_ms)
        elif member_id:
            self.join_again(self.known(member_id, instance), new, waiter, now_ms)
        elif instance is not None and (former := self.static(instance)) is not None:
            self.replace(former, new, waiter, now_ms)
        elif instance is None and needs_known_id:
            self.pending[new_id] = now_ms + session_ms
            self.answers[waiter] = ("join", "MEMBER_ID_REQUIRED", -1, "", new_id, ())
        else:
            self.add(new, waiter, kind, now_ms)

    def sync(
        self, waiter: int, member_id: str, instance: str | None, generation: int, kind: str | None, protocol: str | None,
        assigned: dict[str, bytes], now_ms: int,
    ) -> None:  # fmt: skip
        """A SyncGroup request; that of the leader assigns."""
        member = self.known(member_id, instance)
        refuse_unless(generation == self.generation, "ILLEGAL_GENERATION")
        refuse_unless(kind in (None, self.protocol_type), "INCONSISTENT_GROUP_PROTOCOL")
        refuse_unless(protocol in (None, self.protocol), "INCONSISTENT_GROUP_PROTOCOL")
        refuse_unless(self.state != "PreparingRebalance", "REBALANCE_IN_PROGRESS")
        self.hear(member, now_ms)
        member.has_synced = True
        if self.state == "Stable":
            self.answers[waiter] = ("sync", "NONE", member.assignment)
            return
        if member.sync_waiter is not None:  # sent again, on another connection
            self.answers[member.sync_waiter] = ("sync", "REBALANCE_IN_PROGRESS", b"")
        member.sync_waiter = waiter
        if member_id == self.leader:
            for other in self.members.values():
                other.assignment = assigned.get(other.id, b"")
            self.state = "Stable"
            self.answer_syncs("NONE", now_ms)
            self.write()

    def heartbeat(self, member_id: str, instance: str | None, generation: int, now_ms: int) -> bool:
        """A Heartbeat request; returns if the member must join again."""
        member = self.known(member_id, instance)
        refuse_unless(generation == self.generation, "ILLEGAL_GENERATION")
        self.hear(member, now_ms)
        return self.state == "PreparingRebalance"

    def leave(self, leavers: list[tuple[str, str | None]], now_ms: int) -> list[str]:
        """A LeaveGroup request, with the codes of its members; a static one may be named by its instance alone."""
        codes = []
        for member_id, instance in leavers:
            try:
                if member_id in self.pending:
                    del self.pending[member_id]
                elif not member_id and instance is not None and (member := self.static(instance)) is not None:
                    self.remove(member)
                else:
                    self.remove(self.known(member_id, instance))
            except RefusedError as refusal:
                codes.append(str(refusal))
            else:
                codes.append("NONE")
        if "NONE" in codes:
            self.somebody_left(now_ms)
        return codes

    def commit(
        self, member_id: str, instance: str | None, generation: int, now_ms: int, *, in_transaction: bool
    ) -> None:
        """See that offsets may be committed by this member, or by no member in particular."""
        if generation < 0 and self.state == "Empty":
            return
        if generation >= 0 or member_id or instance is not None:
            member = self.known(member_id, instance)
            refuse_unless(generation == self.generation, "ILLEGAL_GENERATION")
        else:
            refuse_unless(in_transaction, "UNKNOWN_MEMBER_ID")
            return
        refuse_unless(in_transaction or self.state != "CompletingRebalance", "REBALANCE_IN_PROGRESS")
        self.hear(member, now_ms)

    # --- membership -----------------------------------------------------------------------------------------

    def add(self, member: Member, waiter: int, kind: str, now_ms: int) -> None:
        self.pending.pop(member.id, None)
        if not self.members:
            self.protocol_type = kind
        self.members[member.id] = member
        member.join_waiter, member.due_ms = waiter, now_ms + NEW_MEMBER_MS
        if self.leader is None:
            self.leader = member.id
        if self.state == "PreparingRebalance" and self.is_initial:
            self.has_grown = True
        self.rebalance(now_ms)

    def join_again(self, member: Member, new: Member, waiter: int, now_ms: int) -> None:
        refuse_unless(self.state != "Empty", "UNKNOWN_MEMBER_ID")
        is_same = member.protocols == new.protocols
        if is_same and (
            self.state == "CompletingRebalance" or (self.state == "Stable" and member.id != self.leader)
        ):
            self.answers[waiter] = self.joined(member)
            self.hear(member, now_ms)
            return
        if member.join_waiter is not None:  # sent again, on another connection
            self.answers[member.join_waiter] = ("join", "UNKNOWN_MEMBER_ID", -1, "", member.id, ())
        member.protocols, member.session_ms, member.rebalance_ms = (
            new.protocols,
            new.session_ms,
            new.rebalance_ms,
        )
        member.join_waiter = waiter
        self.rebalance(now_ms)

    def replace(self, former: Member, new: Member, waiter: int, now_ms: int) -> None:
        """A static member that has lost its id gets a new one, and fences the holder of the old one (KIP-345)."""
        if former.join_waiter is not None:
            self.answers[former.join_waiter] = ("join", "FENCED_INSTANCE_ID", -1, "", former.id, ())
        if former.sync_waiter is not None:
            self.answers[former.sync_waiter] = ("sync", "FENCED_INSTANCE_ID", b"")
        del self.members[former.id]
        new.is_new, new.assignment, new.has_synced = False, former.assignment, former.has_synced
        self.members[new.id] = new
        if self.leader == former.id:
            self.leader = new.id
        if self.state == "Stable" and self.protocol in self.choices():
            self.answers[waiter] = self.joined(new)
            self.hear(new, now_ms)
            self.write()
            return
        new.join_waiter = waiter
        self.rebalance(now_ms)

    def remove(self, member: Member) -> None:
        del self.members[member.id]
        if member.join_waiter is not None:
            self.answers[member.join_waiter] = ("join", "UNKNOWN_MEMBER_ID", -1, "", "", ())
        if member.sync_waiter is not None:
            self.answers[member.sync_waiter] = ("sync", "UNKNOWN_MEMBER_ID", b"")
        if self.leader == member.id:
            self.leader = self.pick("leader", set(self.members)) if self.members else None

    def somebody_left(self, now_ms: int) -> None:
        if self.state in ("Stable", "CompletingRebalance"):
            self.rebalance(now_ms)
        elif self.state == "PreparingRebalance":
            self.complete_if_all_joined(now_ms)

    # --- rebalances -----------------------------------------------------------------------------------------

    def rebalance(self, now_ms: int) -> None:
        """All members must join (again), or one more has joined."""
        if self.state == "PreparingRebalance":
            self.complete_if_all_joined(now_ms)
            return
        if self.state == "CompletingRebalance":
            for member in self.members.values():
                member.assignment = b""
            self.answer_syncs("REBALANCE_IN_PROGRESS", now_ms)
        self.sync_due_ms = None
        self.is_initial = self.state == "Empty"
        self.state = "PreparingRebalance"
        if self.is_initial:
            self.has_grown = False
            self.delay_left_ms = max(self.longest_ms() - INITIAL_DELAY_MS, 0)
            self.join_due_ms = now_ms + INITIAL_DELAY_MS
        else:
            self.join_due_ms = now_ms + self.longest_ms()
            self.complete_if_all_joined(now_ms)

    def complete_if_all_joined(self, now_ms: int) -> None:
        have_all = (
            all(member.join_waiter is not None for member in self.members.values()) and not self.pending
        )
        if not self.is_initial and have_all:
            self.complete_join(now_ms)

    def joining_is_over(self, now_ms: int) -> None:
        self.join_due_ms = None
        if self.is_initial and self.has_grown and self.delay_left_ms:
            delay_ms = min(INITIAL_DELAY_MS, self.delay_left_ms)
            self.delay_left_ms -= delay_ms
            self.has_grown = False
            self.join_due_ms = now_ms + delay_ms
        else:
            self.complete_join(now_ms)

    def complete_join(self, now_ms: int) -> None:
        """Begin a generation with the joined members; static members stay without."""
        self.is_initial, self.join_due_ms = False, None
        for member in list(self.members.values()):
            if member.join_waiter is None and member.instance is None:
                self.remove(member)
        joined = {member.id for member in self.members.values() if member.join_waiter is not None}
        if self.members and not joined:
            self.join_due_ms = now_ms + self.longest_ms()
            return
        self.generation += 1
        if not self.members:
            self.state, self.protocol = "Empty", None
            self.write()
            return
        if self.leader not in joined:
            self.leader = self.pick("leader", joined)
        self.state, self.protocol = "CompletingRebalance", self.pick("protocol", self.choices())
        self.sync_due_ms = now_ms + self.longest_ms()
        for member in self.members.values():
            if member.join_waiter is not None:
                self.answers[member.join_waiter] = self.joined(member)
            member.join_waiter, member.is_new, member.has_synced = None, False, False
            self.hear(member, now_ms)

    def syncing_is_over(self, now_ms: int) -> None:
        self.sync_due_ms = None
        late = [member for member in self.members.values() if not member.has_synced]
        for member in late:
            self.remove(member)
        if late:
            self.rebalance(now_ms)

    def answer_syncs(self, code: str, now_ms: int) -> None:
        for member in self.members.values():
            if member.sync_waiter is not None:
                self.answers[member.sync_waiter] = (
                    "sync",
                    code,
                    member.assignment if code == "NONE" else b"",
                )
                member.sync_waiter = None
                if code == "NONE":
                    self.hear(member, now_ms)

    def joined(self, member: Member) -> tuple[Any, ...]:
        told = tuple(sorted(self.members)) if member.id == self.leader else ()
        return ("join", "NONE", self.generation, self.leader, member.id, told)

    def shared_protocols(self) -> set[str]:
        return set.intersection(*({name for name, _ in member.protocols} for member in self.members.values()))

    def choices(self) -> set[str]:
        """Of the protocols that all know, those with the most votes; each member votes for the first in its list."""
        shared = self.shared_protocols()
        votes = [next(name for name, _ in m.protocols if name in shared) for m in self.members.values()]
        return {name for name in votes if votes.count(name) == max(map(votes.count, votes))}

    def longest_ms(self) -> int:
        return max((member.rebalance_ms for member in self.members.values()), default=0)

    # --- time -----------------------------------------------------------------------------------------------

    def hear(self, member: Member, now_ms: int) -> None:
        member.due_ms = now_ms + member.session_ms

    def pass_time(self, now_ms: int) -> None:
        """Let happen what is due by now, in its order."""
        while True:
            due: list[tuple[int, Callable[[int], None]]] = [
                (due_ms, lambda at_ms, gone=member_id: self.pending_is_gone(gone, at_ms))  # type: ignore[misc]
                for member_id, due_ms in self.pending.items()
            ]
            due += [
                (member.due_ms, lambda at_ms, gone=member: self.session_is_over(gone, at_ms))  # type: ignore[misc]
                for member in self.members.values()
                if member.due_ms is not None
            ]
            if self.join_due_ms is not None:
                due.append((self.join_due_ms, self.joining_is_over))
            if self.sync_due_ms is not None:
                due.append((self.sync_due_ms, self.syncing_is_over))
            due = [entry for entry in due if entry[0] <= now_ms]
            if not due:
                return
            at_ms, happens = min(due, key=lambda entry: entry[0])
            happens(at_ms)

    def pending_is_gone(self, member_id: str, now_ms: int) -> None:
        del self.pending[member_id]
        if self.state == "PreparingRebalance":
            self.complete_if_all_joined(now_ms)

    def session_is_over(self, member: Member, now_ms: int) -> None:
        if not member.is_new and (member.join_waiter is not None or member.sync_waiter is not None):
            member.due_ms = None  # it waits for the group, not the group for it
            return
        self.remove(member)
        self.somebody_left(now_ms)

    # --- what is kept ---------------------------------------------------------------------------------------

    def write(self) -> None:
        """Keep what another coordinator would find."""
        self.written = None
        self.written = copy.copy(self)
        self.written.members = copy.deepcopy(self.members)

    def restarted(self, now_ms: int) -> ClassicGroup | None:
        """The group as another coordinator finds it, or None: no member waits, each member has a whole session."""
        if self.written is None:
            return None
        group = ClassicGroup(
            self.pick, True, "Stable" if self.written.members else "Empty", self.written.generation,
            self.written.protocol_type, self.written.protocol, self.written.leader, written=self.written,
        )  # fmt: skip
        for member in copy.deepcopy(self.written.members).values():
            member.protocols = tuple(
                (name, metadata) for name, metadata in member.protocols if name == group.protocol
            )
            member.join_waiter = member.sync_waiter = None
            member.is_new, member.has_synced = False, True
            group.members[member.id] = member
            group.hear(member, now_ms)
        return group

    # --- questions ------------------------------------------------------------------------------------------

    def static(self, instance: str) -> Member | None:
        return next((member for member in self.members.values() if member.instance == instance), None)

    def known(self, member_id: str, instance: str | None) -> Member:
        """The member, if its id and its instance belong together. Raises RefusedError."""
        if instance is not None:
            static = self.static(instance)
            refuse_unless(static is not None, "UNKNOWN_MEMBER_ID")
            assert static is not None
            refuse_unless(static.id == member_id, "FENCED_INSTANCE_ID")
        refuse_unless(member_id in self.members, "UNKNOWN_MEMBER_ID")
        return self.members[member_id]
