"""A streams group: its topology, its members, and the target of their tasks. Pure.

    Empty -> NotReady (the topology does not fit the topics) -> Assigning -> Reconciling -> Stable

The rule: only the replay of a record changes the state here, except for unwritten state, which each broker determines
itself: the fit of the topology, the member that requested a shutdown, whether the group waits for more members, the
count of changes of endpoints, and the offsets of tasks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from barnabas.coordinators.groups.commits import check_committer
from barnabas.coordinators.groups.epoch_group import ReconciledGroup
from barnabas.coordinators.groups.group import Committer
from barnabas.coordinators.groups.streams import records
from barnabas.coordinators.groups.streams.member import StreamsMember
from barnabas.coordinators.groups.streams.offsets import NO_OFFSETS, TaskOffsets
from barnabas.coordinators.groups.streams.tasks import ACTIVE, TakenTasks, Task, TaskId
from barnabas.coordinators.groups.streams.topology import Configured
from barnabas.coordinators.statemachine.context import EventContext
from barnabas.coordinators.statemachine.decision import Record
from barnabas.wire.generated.records.streams_group_topology import StreamsGroupTopologyValue


@dataclass(slots=True)
class StreamsGroup(ReconciledGroup[StreamsMember, Task]):
    """One streams group."""

    kind: ClassVar[str] = "streams"

    epoch: int = 1
    assignment_epoch: int = 1
    validated_epoch: int = -1
    """Epoch of the topology that was last found to fit the topics, -1 if it did not."""
    settings_used: dict[str, str] = field(default_factory=dict)
    topology: StreamsGroupTopologyValue | None = None
    active: dict[TaskId, str] = field(default_factory=dict)
    """Process that runs a task, or is revoking it."""
    copies: dict[tuple[str, Task], int] = field(default_factory=dict)
    """Number of standby or warm-up copies of a task that a process has."""
    offsets: dict[str, TaskOffsets] = field(default_factory=dict, compare=False)
    """Offsets of tasks as reported by members."""
    configured: Configured | None = field(default=None, compare=False)
    endpoints_epoch: int = field(default=0, compare=False)
    shutdown_by: str | None = field(default=None, compare=False)
    waits_for_members: bool = field(default=False, compare=False)
    """True while tasks are not assigned, as the first member has just joined and others may follow."""

    # --- asking ---------------------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """True if the topology fits the topics."""
        return self.topology is not None and self.validated_epoch == self.topology.epoch

    @property
    def topic_count(self) -> int:
        """Number of subtopologies: each reads at least one topic."""
        return len(self.topology.subtopologies) if self.topology is not None else 0

    def subscribed_topics(self) -> set[str]:
        """The topics that the application reads; none without members."""
        if self.topology is None or not self.members:
            return set()
        parts = self.topology.subtopologies
        read = {name for part in parts for name in part.source_topics}
        return read | {topic.name for part in parts for topic in part.repartition_source_topics}

    def taken(self, member: StreamsMember) -> TakenTasks:
        """Return the tasks that cannot be assigned to a member now."""
        return TakenTasks(self.active, self.copies, member.process_id, member.assigned)

    def offsets_of(self, member_id: str) -> TaskOffsets:
        """Return the offsets of tasks that a member has reported."""
        return self.offsets.get(member_id, NO_OFFSETS)

    # --- offsets --------------------------------------------------------------------------------------------

    def check_commit(self, committer: Committer, context: EventContext) -> None:
        """Check a commit; without members any is accepted.

        Raises UNKNOWN_MEMBER_ID, and the errors of `check_committer`.
        """
        del context
        if committer.generation < 0 and not self.members:
            return
        if committer.transactional and committer.generation < 0 and not committer.member_id:
            return  # a producer that does not name its group
        member = self.member(committer.member_id)
        has = {
            (subtopology, partition): since
            for tasks in (member.assigned, member.revoking)
            for (role, subtopology, partition), since in tasks.items()
            if role == ACTIVE
        }
        parts = self.topology.subtopologies if self.topology is not None else []
        readers = {
            name: part.subtopology_id
            for part in parts
            for name in (*part.source_topics, *(topic.name for topic in part.repartition_source_topics))
        }
        sinces = (
            has.get((readers.get(topic, ""), partition)) for topic, partition in committer.topic_partitions
        )
        check_committer(member.epoch, committer, sinces)

    # --- replaying records -----------------------------------------------------------------------------------

    def add_assigned(self, member: StreamsMember) -> None:
        """Record a member's tasks, including those that it must revoke, as its process's."""
        for task in (*member.assigned, *member.revoking):
            copy = (member.process_id, task)
            if task[0] == ACTIVE:
                self.active[task[1:]] = member.process_id
            else:
                self.copies[copy] = self.copies.get(copy, 0) + 1

    def remove_assigned(self, member: StreamsMember) -> None:
        """Undo `add_assigned`."""
        for task in (*member.assigned, *member.revoking):
            copy = (member.process_id, task)
            if task[0] != ACTIVE:
                self.copies[copy] -= 1
                if not self.copies[copy]:
                    del self.copies[copy]
            elif self.active.get(task[1:]) == member.process_id:
                del self.active[task[1:]]

    def drop_member(self, member_id: str) -> None:
        """Remove a member, if the group has it, with its reported offsets."""
        ReconciledGroup.drop_member(self, member_id)
        self.offsets.pop(member_id, None)

    # --- ending ---------------------------------------------------------------------------------------------

    def tombstones(self) -> list[Record]:
        """Return the tombstones of the group and its members."""
        out: list[Record] = []
        for member_id in self.members.keys() | self.target.keys():
            out += records.member_tombstones(self.id, member_id)
        return out + records.group_tombstones(self.id)
