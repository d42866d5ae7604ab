"""A group of the consumer protocol: what is known of it, and how records change that. Pure.

    Empty -> Assigning (the epoch is ahead of the target) -> Reconciling (members are behind the target) -> Stable

The rule: the state here changes only when a record is replayed. What is decided meanwhile is records and nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from barnabas.cluster.image import TopicInfo
from barnabas.errors import RequestError
from barnabas.groups.commits import check_committer
from barnabas.groups.consumer import records
from barnabas.groups.consumer.member import ConsumerMember, Subscription
from barnabas.groups.consumer.regex import Resolved
from barnabas.groups.member_lookup import member_of, static_member_of
from barnabas.groups.settings import GroupSettings
from barnabas.statemachine.decision import Record
from barnabas.topic_partitions import NO_PARTITIONS, TopicIdPartition, TopicIdPartitions
from barnabas.wire.generated.errors import ErrorCode


@dataclass(slots=True)
class ConsumerGroup:
    """One group. Lifecycle: made by the first record of it, gone with the tombstone of its epoch."""

    kind: ClassVar[str] = "consumer"

    id: str
    settings: GroupSettings
    epoch: int = 0
    topics_hash: int = 0
    assignment_epoch: int = 0
    assigned_ms: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    static_ids: dict[str, str] = field(default_factory=dict)
    target: dict[str, TopicIdPartitions] = field(default_factory=dict)
    owners: dict[TopicIdPartition, str] = field(default_factory=dict)
    """Who has a partition, also while it is giving it up."""
    subscriptions: Counter[Subscription] = field(default_factory=Counter)
    """By how many members each is used; of many members most want the same."""
    regexes: dict[str, Resolved] = field(default_factory=dict)
    has_partition_metadata: bool = False
    """Whether Kafka before 4.1 has written what the topics were like."""
    topics_seen: Mapping[str, TopicInfo] | None = field(default=None, compare=False)
    """The topics for which the hash was last compared: only another mapping needs another look."""
    hashed: tuple[Mapping[str, TopicInfo], frozenset[str], int] | None = field(default=None, compare=False)
    """The last hash that was made, with what it was made of."""
    assigning_epoch: int = field(default=0, compare=False)
    """The epoch for which an assignment is being computed aside, 0 for none."""
    rejoins_due_ms: dict[str, int] = field(default_factory=dict, compare=False)
    """By when members of the classic protocol that were told to must have joined again."""

    # --- asking ---------------------------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        """The state, as clients are told."""
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    @property
    def protocol_type(self) -> str:
        """What the members do with the group."""
        return "consumer"

    @property
    def is_unused(self) -> bool:
        """Whether nobody is in it."""
        return not self.members

    def member(self, member_id: str) -> ConsumerMember:
        """A member. Raises UNKNOWN_MEMBER_ID."""
        return member_of(self.id, self.members, member_id)

    def static_member(self, instance_id: str, member_id: str) -> ConsumerMember:
        """The member that has an instance id. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        return static_member_of(self.members, self.static_ids, instance_id, member_id)

    def target_of(self, member: ConsumerMember) -> TopicIdPartitions:
        """What a member shall have; one that replaces a static member takes over what that one should have had."""
        if member.id not in self.target and member.instance_id is not None:
            return self.target.get(self.static_ids.get(member.instance_id, ""), NO_PARTITIONS)
        return self.target.get(member.id, NO_PARTITIONS)

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """The topics that a member is subscribed to, by name and by expression."""
        return topics_in(member.subscription, self.regexes)

    def subscribed_topics(self) -> set[str]:
        """The topics of all members."""
        return set().union(*(topics_in(subscription, self.regexes) for subscription in self.subscriptions))

    def subscriptions_after(
        self, gone: Iterable[str], comes: ConsumerMember | None = None
    ) -> set[Subscription]:
        """What the members want when these are gone, by their ids, and this one has come or has changed."""
        counts = self.subscriptions.copy()
        for member_id in {*gone, comes.id} if comes is not None else set(gone):
            if (member := self.members.get(member_id)) is not None:
                counts[member.subscription] -= 1
        if comes is not None:
            counts[comes.subscription] += 1
        return {subscription for subscription, count in counts.items() if count}

    def assignor_name(self, members: Iterable[ConsumerMember]) -> str:
        """The assignor that most of these members ask for; the broker's first one when none of them cares."""
        votes = Counter(member.server_assignor for member in members if member.server_assignor is not None)
        return votes.most_common(1)[0][0] if votes else self.settings.consumer_assignors[0]

    # --- offsets --------------------------------------------------------------------------------------------

    def check_commit(
        self,
        member_id: str,
        epoch: int,
        topic_partitions: Iterable[TopicIdPartition],
        api_version: int,
        *,
        transactional: bool = False,
    ) -> None:
        """Whether this committer may commit offsets for these partitions; without members, anybody may.

        Raises UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION (classic members), and as `check_committer`.
        """
        if epoch < 0 and not self.members:
            return
        member = self.member(member_id)
        if member.classic is not None:
            if epoch != member.epoch:
                raise RequestError(ErrorCode.ILLEGAL_GENERATION)
            return
        has = {**member.assigned, **member.revoking}
        sinces = [has.get(topic_partition) for topic_partition in topic_partitions]
        check_committer(member.epoch, epoch, sinces, api_version, transactional=transactional)

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Whether this one may ask for committed offsets. Raises as `check_commit`."""
        if member_id is None and epoch < 0:
            return
        member = self.member(member_id or "")
        if epoch != member.epoch:
            classic = member.classic is not None
            raise RequestError(ErrorCode.ILLEGAL_GENERATION if classic else ErrorCode.STALE_MEMBER_EPOCH)

    # --- replaying records -----------------------------------------------------------------------------------

    def put_member(self, member: ConsumerMember) -> None:
        """There is a new member, or one has changed."""
        self._release(member.id)
        self.members[member.id] = member
        self.subscriptions[member.subscription] += 1
        for topic_partitions in (member.assigned, member.revoking):
            for topic_partition in topic_partitions:
                self.owners[topic_partition] = member.id
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.id

    def drop_member(self, member_id: str) -> None:
        """A member is gone, if it was there."""
        self._release(member_id)
        self.members.pop(member_id, None)
        self.rejoins_due_ms.pop(member_id, None)

    def _release(self, member_id: str) -> None:
        """Take away what a member has: its partitions, its instance id, and what it wanted."""
        member = self.members.get(member_id)
        if member is None:
            return
        self.subscriptions[member.subscription] -= 1
        if not self.subscriptions[member.subscription]:
            del self.subscriptions[member.subscription]
        for topic_partitions in (member.assigned, member.revoking):
            for topic_partition in topic_partitions:
                if self.owners.get(topic_partition) == member_id:
                    del self.owners[topic_partition]
        if member.instance_id is not None and self.static_ids.get(member.instance_id) == member_id:
            del self.static_ids[member.instance_id]

    def forget_current(self, member_id: str) -> None:
        """A member has nothing any more."""
        member = self.members.get(member_id)
        if member is not None:
            self.put_member(replace(member, assigned={}, revoking={}, epoch=-1, previous_epoch=-1))

    # --- ending ---------------------------------------------------------------------------------------------

    def tombstones(self) -> list[Record]:
        """What ends the group, with its members, in the order that replay needs."""
        out: list[Record] = []
        for member_id in self.members.keys() | self.target.keys():
            out += records.member_tombstones(self.id, member_id)
        out += [records.regex_tombstone(self.id, regex) for regex in self.regexes]
        out.append(records.target_epoch_tombstone(self.id))
        if self.has_partition_metadata:
            out.append(records.partition_metadata_tombstone(self.id))
        out.append(records.epoch_tombstone(self.id))
        return out


def topics_in(subscription: Subscription, regexes: Mapping[str, Resolved]) -> frozenset[str]:
    """The topics that are meant, by name and by expression."""
    names, regex = subscription
    resolved = regexes.get(regex)
    return names | resolved.topics if resolved else names
