"""A group of the consumer protocol: its state beyond that of all groups with epochs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from barnabas.cluster.metadata.image import Settings, TopicInfo
from barnabas.coordinators.groups.commits import check_committer
from barnabas.coordinators.groups.consumer import records
from barnabas.coordinators.groups.consumer.member import ConsumerMember, Subscription
from barnabas.coordinators.groups.consumer.regex import Resolved
from barnabas.coordinators.groups.epoch_group import ReconciledGroup, uncount
from barnabas.coordinators.groups.group import Committer
from barnabas.coordinators.groups.settings import ConsumerSettings
from barnabas.coordinators.statemachine.context import EventContext
from barnabas.coordinators.statemachine.decision import Record
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.topic_partitions import TopicIdPartition


@dataclass(slots=True)
class ConsumerGroup(ReconciledGroup[ConsumerMember, TopicIdPartition]):
    """One group of the consumer protocol."""

    kind: ClassVar[str] = "consumer"

    owners: dict[TopicIdPartition, str] = field(default_factory=dict)
    """Member that has a partition, or is revoking it."""
    subscriptions: Counter[Subscription] = field(default_factory=Counter)
    """Number of members with each subscription; in a large group most have the same."""
    regexes: dict[str, Resolved] = field(default_factory=dict)
    classic_members: int = 0
    """Number of members of the classic protocol."""
    classic_protocols: Counter[str] = field(default_factory=Counter)
    """Number of these members that support a protocol."""
    has_partition_metadata: bool = False
    """True if Kafka before 4.1 has written partition metadata of the topics."""
    hashed: tuple[Mapping[str, TopicInfo], frozenset[str], int, int] | None = field(
        default=None, compare=False
    )
    """The last hash with its input: topics, subscribed names; and the number of partitions in it."""
    changed_ms: int = field(default=0, compare=False)
    """Time at which its epoch last rose, in ms; 0 if unknown."""
    obeyed: tuple[Mapping[tuple[int, str], Settings], ConsumerSettings] | None = field(
        default=None, compare=False
    )
    """Its last settings, with those of all resources from which they were merged."""
    rejoins_due_ms: dict[str, int] = field(default_factory=dict, compare=False)
    """Times in ms by which members of the classic protocol must have joined again."""

    # --- asking ---------------------------------------------------------------------------------------------

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Return the topics that a member is subscribed to, by name and by expression."""
        return topics_in(member.subscription, self.regexes)

    def subscribed_topics(self) -> set[str]:
        """The subscribed topics of all members."""
        return set().union(*(topics_in(subscription, self.regexes) for subscription in self.subscriptions))

    @property
    def topic_count(self) -> int:
        """Number of topics in the last hash."""
        return len(self.hashed[1]) if self.hashed is not None else 0

    @property
    def partition_count(self) -> int:
        """Number of partitions of the topics in the last hash."""
        return self.hashed[3] if self.hashed is not None else 0

    def subscriptions_after(
        self, gone: Iterable[str], comes: ConsumerMember | None = None
    ) -> set[Subscription]:
        """Return the members' subscriptions, without the removed members, and with a new or changed one."""
        counts = self.subscriptions.copy()
        for member_id in {*gone, comes.id} if comes is not None else set(gone):
            if (member := self.members.get(member_id)) is not None:
                counts[member.subscription] -= 1
        if comes is not None:
            counts[comes.subscription] += 1
        return {subscription for subscription, count in counts.items() if count}

    def assignor_name(self, members: Iterable[ConsumerMember]) -> str:
        """Return the assignor that most of these members ask for; without preferences the broker's first."""
        votes = Counter(member.server_assignor for member in members if member.server_assignor is not None)
        return votes.most_common(1)[0][0] if votes else self.settings.consumer_assignors[0]

    def prefers_another_assignor(self, before: ConsumerMember, after: ConsumerMember) -> bool:
        """Return whether most members ask for another assignor after a member's change (relevant since Kafka 4.4)."""
        if before.server_assignor == after.server_assignor:
            return False
        return self.assignor_name(self.members.values()) != self.assignor_name(self.members_with(after))

    # --- offsets --------------------------------------------------------------------------------------------

    def check_commit(self, committer: Committer, context: EventContext) -> None:
        """Check the committer; without members any commit is accepted.

        Raises UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION (classic members), and as `check_committer`.
        """
        epoch = committer.generation
        if epoch < 0 and not self.members:
            return
        if committer.transactional and epoch < 0 and not committer.member_id:
            return  # a producer that does not name its group
        member = self.member(committer.member_id)
        if member.classic is not None:
            if epoch != member.epoch:
                raise RequestError(ErrorCode.ILLEGAL_GENERATION)
            return
        topics = context.image.topics
        has = {**member.assigned, **member.revoking}
        sinces = (
            has.get((topics[topic].id, partition))
            for topic, partition in committer.topic_partitions
            if topic in topics
        )
        check_committer(member.epoch, committer, sinces)

    # --- replaying records -----------------------------------------------------------------------------------

    def add_assigned(self, member: ConsumerMember) -> None:
        """Record a member's assigned and revoked partitions as its own, and add its subscription."""
        self.subscriptions[member.subscription] += 1
        if member.classic is not None:
            self.classic_members += 1
            self.classic_protocols.update(member.classic.names)
        for topic_partition in (*member.assigned, *member.revoking):
            self.owners[topic_partition] = member.id

    def remove_assigned(self, member: ConsumerMember) -> None:
        """Undo `add_assigned`."""
        self.subscriptions[member.subscription] -= 1
        if not self.subscriptions[member.subscription]:
            del self.subscriptions[member.subscription]
        if member.classic is not None:
            self.classic_members -= 1
            uncount(self.classic_protocols, member.classic.names)
        for topic_partition in (*member.assigned, *member.revoking):
            if self.owners.get(topic_partition) == member.id:
                del self.owners[topic_partition]

    def drop_member(self, member_id: str) -> None:
        """Remove a member, if the group has it."""
        ReconciledGroup.drop_member(self, member_id)
        self.rejoins_due_ms.pop(member_id, None)

    # --- ending ---------------------------------------------------------------------------------------------

    def tombstones(self) -> list[Record]:
        """Return the records that end the group, with its members, in the order that replay needs."""
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
    """Return the subscribed topics, by name and by expression."""
    names, regex = subscription
    resolved = regexes.get(regex)
    return names | resolved.topics if resolved else names
