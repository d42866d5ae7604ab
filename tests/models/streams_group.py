"""A group of a Kafka Streams application by the rules of KIP-1071, as short as they can be said.

Written from those rules, and without any code of the broker's. The assignment itself is not predicted: when the group
assigns, `assign` gives what the broker has chosen, and the model says if it may be (each task active at one member, no
process with two copies of a task). Left out: endpoints for queries, racks and tags, `group.streams.max.size`, assignments
that are computed aside, topologies of more than a source topic and a changelog for each part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tests.models.transactions import RefusedError, refuse_unless

Task = tuple[str, str, int]
"""Role, subtopology, partition."""
Tasks = frozenset[Task]
NOTHING: Tasks = frozenset()
SESSION_MS, INITIAL_DELAY_MS, INTERVAL_MS = 45_000, 3_000, 4
AWAY = -2
"""Epoch of a static member that has left for a while."""
FIRST_EPOCH = 1
STALE_TOPOLOGY, MISSING_SOURCE, BADLY_PARTITIONED, MISSING_INTERNAL, SHUTDOWN, DELAYED = range(6)


class Part(NamedTuple):
    """A subtopology: it has as many tasks as its source has partitions, and state if it has a changelog."""

    id: str
    source: str
    changelog: str | None = None


class Topology(NamedTuple):
    epoch: int
    parts: tuple[Part, ...]


class Beat(NamedTuple):
    """A StreamsGroupHeartbeat; what is None (or a timeout of -1) is not said."""

    member_id: str
    epoch: int
    instance: str | None = None
    process: str | None = None
    rebalance_ms: int = -1
    topology: Topology | None = None
    owned: Tasks | None = None
    stops_all: bool = False


@dataclass
class Member:
    """One member. `since` has the epoch in which it was given each task, those in `revoking` too."""

    id: str
    instance: str | None = None
    process: str = ""
    rebalance_ms: int = -1
    topology_epoch: int = -1
    epoch: int = 0
    previous_epoch: int = 0
    is_reconciled: bool = True
    assigned: Tasks = NOTHING
    revoking: Tasks = NOTHING
    since: dict[Task, int] = field(default_factory=dict)
    session_due_ms: int = 0
    revocation_due_ms: int | None = None


@dataclass
class StreamsGroup:
    """One group. `topics` has the identity and the number of partitions of those that there are. Times in ms."""

    assign: Callable[[], dict[str, Tasks]]
    topics: dict[str, tuple[int, int]] = field(default_factory=dict)
    standbys: int = 0
    exists: bool = False
    epoch: int = FIRST_EPOCH
    assignment_epoch: int = FIRST_EPOCH
    assigned_ms: int | None = None
    topology: Topology | None = None
    members: dict[str, Member] = field(default_factory=dict)
    target: dict[str, Tasks] = field(default_factory=dict)
    seen_before: tuple[Any, ...] = ()
    """Of what the epoch was made: topics, whether they fit, number of standby tasks."""
    delay_due_ms: int | None = None
    has_looked: bool = False
    """Since the group was made a member has seen how its topology fits: the very first look is not kept."""
    stopped_by: str | None = None

    # --- requests -------------------------------------------------------------------------------------------

    def heartbeat(self, beat: Beat, now_ms: int) -> tuple[int, Tasks | None, list[int]]:
        """Return the member's epoch, its tasks where it is told them, and the statuses."""
        joins = beat.epoch == 0
        refuse_unless(self.fits_together(beat), "INVALID_REQUEST")
        refuse_unless(self.exists or joins, "GROUP_ID_NOT_FOUND")
        if beat.epoch < 0:
            self.leave(beat)
            return beat.epoch, None, []
        before = self.joining(beat) if joins else self.known(beat.member_id, beat.instance)
        if not joins:
            self.check_epoch(before, beat)
        after = replace(
            before, topology_epoch=beat.topology.epoch if beat.topology else before.topology_epoch
        )
        after.instance = beat.instance or before.instance
        after.process = beat.process or before.process
        after.rebalance_ms = beat.rebalance_ms if beat.rebalance_ms != -1 else before.rebalance_ms
        topology = self.topology_with(beat.topology)
        misfit = self.misfit(topology)
        if misfit is None:
            every = tasks_of(topology, self.topics)
            refuse_unless({task[1:] for task in beat.owned or ()} <= every, "INVALID_REQUEST")

        seen = self.seen_now(topology, misfit)
        if self.matters(before, after) or seen != self.seen_before:
            self.epoch, self.seen_before = self.epoch + 1, seen
        if not self.members and self.delay_due_ms is None:
            self.delay_due_ms = now_ms + INITIAL_DELAY_MS
        self.exists, self.topology, self.has_looked = True, topology, self.topology is not None
        former = self.static(after.instance)
        taken = self.taken(after)
        if former is not None and former.id != after.id:
            del self.members[former.id]
            self.target[after.id] = self.target.pop(former.id, NOTHING)
        self.members[after.id] = after
        is_delayed = self.settle_target(now_ms)
        target = NOTHING if self.delay_due_ms is not None else self.target.get(after.id, NOTHING)
        self.reconcile(after, target, taken, beat.owned, now_ms)
        after.session_due_ms = now_ms + SESSION_MS
        if beat.stops_all:
            self.stopped_by = self.stopped_by or after.id
        statuses = [STALE_TOPOLOGY] * (after.topology_epoch < topology.epoch) + [DELAYED] * is_delayed
        statuses += [] if misfit is None else [misfit]
        statuses += [SHUTDOWN] * (self.stopped_by is not None)
        return after.epoch, after.assigned if joins or after.assigned != before.assigned else None, statuses

    def leave(self, beat: Beat) -> None:
        """A member leaves for good, or a static one for a while: that one keeps what it has, as if since ever."""
        member = self.known(beat.member_id, beat.instance)
        if beat.stops_all:
            self.stopped_by = self.stopped_by or member.id
        if beat.epoch == AWAY:
            member.epoch, member.revoking, member.revocation_due_ms = AWAY, NOTHING, None
            member.is_reconciled = True
            member.since = dict.fromkeys(member.assigned, 0)
        else:
            self.remove(member)

    def commit(
        self,
        member_id: str,
        epoch: int,
        places: Iterable[tuple[str, int]],
        *,
        says_epochs: bool,
        in_transaction: bool,
    ) -> None:
        """See that offsets may be committed; `says_epochs` for versions that carry member epochs."""
        if epoch < 0 and (not self.members or (in_transaction and not member_id)):
            return
        refuse_unless(member_id in self.members, "UNKNOWN_MEMBER_ID")
        refuse_unless(says_epochs or in_transaction, "UNSUPPORTED_VERSION")
        member = self.members[member_id]
        assert self.topology is not None
        readers = {part.source: part.id for part in self.topology.parts}
        tasks = [("active", readers.get(topic, ""), partition) for topic, partition in places]
        is_recent = epoch < member.epoch and all(member.since.get(task, epoch + 1) <= epoch for task in tasks)
        code = "STALE_MEMBER_EPOCH" if says_epochs else "ILLEGAL_GENERATION"
        refuse_unless(epoch == member.epoch or is_recent, code)

    # --- members --------------------------------------------------------------------------------------------

    def fits_together(self, beat: Beat) -> bool:
        """A topology and a timeout come with joining; a new member has no tasks; one away for a while has an instance."""
        if beat.epoch == 0 and (beat.rebalance_ms == -1 or beat.owned != NOTHING):
            return False
        if beat.epoch == AWAY and beat.instance is None:
            return False
        return beat.epoch >= AWAY and (beat.epoch == 0) == (beat.topology is not None)

    def joining(self, beat: Beat) -> Member:
        """The member as it was: known, or that of its instance id if it has left for a while, or a new one."""
        former = self.static(beat.instance)
        if former is not None and former.id != beat.member_id:
            refuse_unless(former.epoch == AWAY, "UNRELEASED_INSTANCE_ID")
            return replace(former, id=beat.member_id, epoch=0, previous_epoch=0)
        return self.members.get(beat.member_id) or Member(beat.member_id)

    def check_epoch(self, member: Member, beat: Beat) -> None:
        """A member may be one answer behind, if it runs nothing but what it was given."""
        if beat.epoch != member.epoch:
            is_behind = beat.epoch < member.epoch and beat.epoch == member.previous_epoch
            refuse_unless(
                is_behind and beat.owned is not None and beat.owned <= member.assigned, "FENCED_MEMBER_EPOCH"
            )

    def matters(self, before: Member, after: Member) -> bool:
        """Tell if the group must be assigned anew: of a static member only what the tasks depend on counts.

        A member that replaces another one, and was in the group by itself, has left as what it was.
        """
        former = self.static(after.instance)
        if former is not None and former.id != after.id and after.id in self.members:
            return True
        if former is not None:
            return (before.topology_epoch, before.process) != (after.topology_epoch, after.process)
        return after.id not in self.members or before != after

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

    def remove(self, member: Member) -> None:
        del self.members[member.id]
        self.target.pop(member.id, None)
        self.epoch += 1
        if not self.members:
            self.stopped_by, self.assignment_epoch, self.assigned_ms = None, self.epoch, None

    # --- topology and target --------------------------------------------------------------------------------

    def topology_with(self, brought: Topology | None) -> Topology:
        """The first topology stays; others may bring the same, or an older one."""
        if self.topology is None or brought is None:
            topology = self.topology or brought
            assert topology is not None
            return topology
        refuse_unless(brought.epoch < self.topology.epoch or brought == self.topology, "INVALID_REQUEST")
        return self.topology

    def misfit(self, topology: Topology) -> int | None:
        """Return the status that says why no tasks can run; None if they can."""
        if any(part.source not in self.topics for part in topology.parts):
            return MISSING_SOURCE
        kept = [(part.changelog, self.topics[part.source][1]) for part in topology.parts if part.changelog]
        if any(name in self.topics and self.topics[name][1] != count for name, count in kept):
            return BADLY_PARTITIONED
        return None if all(name in self.topics for name, _ in kept) else MISSING_INTERNAL

    def seen_now(self, topology: Topology, misfit: int | None) -> tuple[Any, ...]:
        names = {name for part in topology.parts for name in part[1:] if name is not None}
        existing = {name: self.topics[name] for name in names if name in self.topics}
        return existing, -1 if misfit is not None else topology.epoch, self.standbys

    def settle_target(self, now_ms: int) -> bool:
        """Assign if the epoch is ahead; returns if that has to wait, for more members or since it was done just now."""
        if self.delay_due_ms is not None:
            return True
        if self.epoch == self.assignment_epoch:
            return False
        if self.assigned_ms is not None and now_ms - self.assigned_ms < INTERVAL_MS:
            return True
        self.assign_now(now_ms)
        return False

    def assign_now(self, now_ms: int) -> None:
        self.target, self.assignment_epoch, self.assigned_ms = self.checked(self.assign()), self.epoch, now_ms

    def checked(self, target: dict[str, Tasks]) -> dict[str, Tasks]:
        """Return a target after a look at it: all tasks run once, and each process has one copy of a task at most."""
        assert target.keys() == self.members.keys()
        assert self.topology is not None
        topics, fits_epoch, standbys = self.seen_before
        every = set() if fits_epoch == -1 else tasks_of(self.topology, topics)
        assigned = [(member_id, task) for member_id, tasks in target.items() for task in tasks]
        assert sorted(task[1:] for _, task in assigned if task[0] == "active") == sorted(every)
        copies = Counter((self.members[member_id].process, task[1:]) for member_id, task in assigned)
        assert max(copies.values(), default=1) == 1
        others = len({member.process for member in self.members.values()}) - 1
        stateful = {part.id for part in self.topology.parts if part.changelog}
        standby = Counter(task[1:] for _, task in assigned if task[0] == "standby")
        expected = {task: min(standbys, others) for task in every if task[0] in stateful}
        assert standby == Counter(expected) - Counter()
        return target

    # --- reconciliation -------------------------------------------------------------------------------------

    def taken(self, member: Member) -> Callable[[Task], bool]:
        """Tell of a task if it cannot be given to a member now: it is active somewhere, or others have a copy there."""
        running = [
            (member.process, task)
            for member in self.members.values()
            for task in member.assigned | member.revoking
        ]
        own = member.assigned
        active = {task[1:] for _, task in running if task[0] == "active"}
        here = {task for where, task in running if where == member.process}

        def is_taken(task: Task) -> bool:
            if task in here or (task[0] == "active" and task[1:] in active):
                return True
            other: Task = ("standby" if task[0] == "active" else "active", *task[1:])
            return other in here and other not in own

        return is_taken

    def reconcile(
        self, member: Member, target: Tasks, taken: Callable[[Task], bool], owned: Tasks | None, now_ms: int
    ) -> None:
        """One step towards the target: first gives up what is not in it, then takes what is free.

        A copy changes its role in place: an active one at once, a standby one when it can be the active one.
        """
        if member.is_reconciled and member.epoch == self.assignment_epoch and not member.revoking:
            return
        epoch = member.epoch
        if member.revoking:
            if owned is None or owned & member.revoking:
                return
            epoch += 1
        own = member.assigned
        kept, free = own & target, frozenset(task for task in target - own if not taken(task))
        has_all = kept | free == target
        demoted = frozenset(task for task in free if task[0] == "standby" and ("active", *task[1:]) in own)
        promoted = frozenset(task for task in own if task[0] == "standby" and ("active", *task[1:]) in target)
        surplus, gained, kept = own - target - promoted, free - demoted, kept | demoted
        if surplus and (owned is None or owned & surplus):
            self.move(member, epoch, kept | promoted, surplus, now_ms, is_reconciled=False)
            return
        kept |= frozenset(task for task in promoted if ("active", *task[1:]) not in gained)
        member.since = {**member.since, **dict.fromkeys(gained, self.assignment_epoch)}
        self.move(member, self.assignment_epoch, kept | gained, NOTHING, now_ms, is_reconciled=has_all)

    def move(
        self,
        member: Member,
        epoch: int,
        assigned: Tasks,
        revoking: Tasks,
        now_ms: int,
        *,
        is_reconciled: bool,
    ) -> None:
        after = (epoch, assigned, revoking, is_reconciled)
        if after == (member.epoch, member.assigned, member.revoking, member.is_reconciled):
            return
        member.previous_epoch = member.epoch
        member.epoch, member.assigned, member.revoking, member.is_reconciled = after
        member.since = {task: since for task, since in member.since.items() if task in assigned | revoking}
        member.revocation_due_ms = now_ms + member.rebalance_ms if revoking else None

    # --- time -----------------------------------------------------------------------------------------------

    def next_due(self) -> tuple[int, str] | None:
        """Return when something happens by itself, and which member is gone then; none if it is the initial delay."""
        dues = [(member.session_due_ms, member.id) for member in self.members.values()]
        dues += [
            (member.revocation_due_ms, member.id)
            for member in self.members.values()
            if member.revocation_due_ms is not None
        ]
        if self.delay_due_ms is not None:
            dues.append((self.delay_due_ms, ""))
        return min(dues, default=None)

    def happens(self, due_ms: int, who: str) -> None:
        """A member was not heard of or has not given up what it must, or enough was waited for others."""
        if who:
            self.remove(self.members[who])
            return
        self.delay_due_ms = None
        if self.members and self.has_looked and self.epoch > self.assignment_epoch:
            self.assign_now(due_ms)

    def restart(self, now_ms: int) -> None:
        """Another coordinator knows all that is written; members have all of their time again."""
        self.delay_due_ms = self.stopped_by = None
        for member in self.members.values():
            member.session_due_ms = now_ms + SESSION_MS
            member.revocation_due_ms = now_ms + member.rebalance_ms if member.revoking else None

    # --- questions ------------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """The state, as StreamsGroupDescribe has it."""
        if not self.members:
            return "Empty"
        assert self.topology is not None
        if self.seen_before[1] != self.topology.epoch:
            return "NotReady"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        moved = (m.is_reconciled and m.epoch == self.assignment_epoch for m in self.members.values())
        return "Stable" if all(moved) else "Reconciling"

    def seen(self) -> Any:
        """The comparable state of the group."""
        members = {member.id: seen_of(member) for member in self.members.values()}
        return self.state, self.epoch, self.assignment_epoch, self.target, members


def tasks_of(topology: Topology, topics: dict[str, tuple[int, int]]) -> set[tuple[str, int]]:
    return {(part.id, number) for part in topology.parts for number in range(topics[part.source][1])}


def seen_of(member: Member) -> tuple[Any, ...]:
    """The comparable state of a member."""
    since = {task: since for task, since in member.since.items() if task[0] == "active"}
    return (
        member.instance, member.process, member.topology_epoch, member.epoch, member.previous_epoch,
        member.assigned, member.revoking, since,
    )  # fmt: skip
