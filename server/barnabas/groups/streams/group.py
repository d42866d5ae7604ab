"""A streams group: what is known of it. Pure.

    Empty -> NotReady (the topology does not fit the topics) -> Assigning -> Reconciling -> Stable

The rule: the state here changes only when a record is replayed, except for what each broker finds out for itself: how
the topology fits, who has asked for a shutdown, whether more members are waited for, and the count of changes of endpoints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from barnabas.cluster.image import TopicInfo
from barnabas.errors import RequestError
from barnabas.groups.commits import check_committer
from barnabas.groups.member_lookup import member_of, members_with, static_member_of
from barnabas.groups.settings import GroupSettings
from barnabas.groups.streams import records
from barnabas.groups.streams.member import StreamsMember
from barnabas.groups.streams.tasks import ACTIVE, NO_TASKS, TakenTasks, Task, TaskId, Tasks
from barnabas.groups.streams.topology import Configured
from barnabas.statemachine.decision import Record
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.records.streams_group_topology import StreamsGroupTopologyValue


@dataclass(slots=True)
class StreamsGroup:
    """One group. Lifecycle: made by the first record of it, gone with the tombstone of its epoch."""

    kind: ClassVar[str] = "streams"

    id: str
    settings: GroupSettings
    epoch: int = 1
    topics_hash: int = 0
    validated_epoch: int = -1
    """The epoch of the topology that was last found to fit, -1 if it did not."""
    settings_used: dict[str, str] = field(default_factory=dict)
    assignment_epoch: int = 1
    assigned_ms: int = 0
    """When the target was made; 0 if that is not known."""
    topology: StreamsGroupTopologyValue | None = None
    members: dict[str, StreamsMember] = field(default_factory=dict)
    static_ids: dict[str, str] = field(default_factory=dict)
    """The member that has an instance id."""
    target: dict[str, Tasks] = field(default_factory=dict)
    active: dict[TaskId, str] = field(default_factory=dict)
    """Which process runs a task, also while it is giving it up."""
    copies: dict[tuple[str, TaskId], int] = field(default_factory=dict)
    """How many copies of a task a process has, in any role."""
    configured: Configured | None = field(default=None, compare=False)
    topics_seen: Mapping[str, TopicInfo] | None = field(default=None, compare=False)
    endpoints_epoch: int = field(default=0, compare=False)
    shutdown_by: str | None = field(default=None, compare=False)
    waits_for_members: bool = field(default=False, compare=False)
    """The first member has come a short time ago: tasks are assigned when others have had a chance to come too."""

    # --- asking ---------------------------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        """The state, as clients are told."""
        if not self.members:
            return "Empty"
        if self.topology is None or self.validated_epoch != self.topology.epoch:
            return "NotReady"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    @property
    def protocol_type(self) -> str:
        """What the members do with the group."""
        return "streams"

    @property
    def is_unused(self) -> bool:
        """Whether nobody is in it."""
        return not self.members

    def member(self, member_id: str) -> StreamsMember:
        """A member. Raises UNKNOWN_MEMBER_ID."""
        return member_of(self.id, self.members, member_id)

    def static_member(self, instance_id: str, member_id: str) -> StreamsMember:
        """The member that has an instance id. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        return static_member_of(self.members, self.static_ids, instance_id, member_id)

    def target_of(self, member: StreamsMember) -> Tasks:
        """What a member shall run; one that replaces a static member takes over what that one should have run."""
        if member.id not in self.target and member.instance_id is not None:
            return self.target.get(self.static_ids.get(member.instance_id, ""), NO_TASKS)
        return self.target.get(member.id, NO_TASKS)

    def members_with(self, member: StreamsMember) -> list[StreamsMember]:
        """All members, with this one as it is now, and without the one whose instance id it has taken over."""
        return members_with(self.members, self.static_ids, member)

    def subscribed_topics(self) -> set[str]:
        """The topics that the application reads, while it has members."""
        if self.topology is None or not self.members:
            return set()
        parts = self.topology.subtopologies
        read = {name for part in parts for name in part.source_topics}
        return read | {topic.name for part in parts for topic in part.repartition_source_topics}

    def taken(self, process_id: str) -> TakenTasks:
        """What no member of this process may be given now."""
        return TakenTasks(self.active, self.copies, process_id)

    # --- offsets --------------------------------------------------------------------------------------------

    def check_commit(
        self,
        member_id: str,
        epoch: int,
        topic_partitions: Iterable[tuple[str, int]],
        api_version: int,
        *,
        transactional: bool = False,
    ) -> None:
        """Whether this committer may commit offsets here; without members, anybody may. Raises as `check_committer`."""
        if epoch < 0 and not self.members:
            return
        if transactional and epoch < 0 and not member_id:  # a producer that says nothing of its group
            return
        member = self.member(member_id)
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
        sinces = [has.get((readers.get(topic, ""), partition)) for topic, partition in topic_partitions]
        check_committer(member.epoch, epoch, sinces, api_version, transactional=transactional)

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Whether this one may ask for committed offsets. Raises UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH."""
        if member_id is None and epoch < 0:
            return
        if epoch != self.member(member_id or "").epoch:
            raise RequestError(ErrorCode.STALE_MEMBER_EPOCH)

    # --- replaying records -----------------------------------------------------------------------------------

    def put_member(self, member: StreamsMember) -> None:
        """There is a new member, or one has changed."""
        self._release(member.id)
        self.members[member.id] = member
        for task in _all(member):
            task_id = task[1:]
            if task[0] == ACTIVE:
                self.active[task_id] = member.process_id
            copy = (member.process_id, task_id)
            self.copies[copy] = self.copies.get(copy, 0) + 1
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.id

    def drop_member(self, member_id: str) -> None:
        """A member is gone, if it was there."""
        self._release(member_id)
        self.members.pop(member_id, None)

    def _release(self, member_id: str) -> None:
        member = self.members.get(member_id)
        if member is None:
            return
        for task in _all(member):
            task_id = task[1:]
            if task[0] == ACTIVE and self.active.get(task_id) == member.process_id:
                del self.active[task_id]
            copy = (member.process_id, task_id)
            self.copies[copy] -= 1
            if not self.copies[copy]:
                del self.copies[copy]
        if member.instance_id is not None and self.static_ids.get(member.instance_id) == member_id:
            del self.static_ids[member.instance_id]

    # --- ending ---------------------------------------------------------------------------------------------

    def tombstones(self) -> list[Record]:
        """What ends the group, with its members."""
        out: list[Record] = []
        for member_id in self.members.keys() | self.target.keys():
            out += records.member_tombstones(self.id, member_id)
        return out + records.group_tombstones(self.id)


def _all(member: StreamsMember) -> list[Task]:
    return [*member.assigned, *member.revoking]
