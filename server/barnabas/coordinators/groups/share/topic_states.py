"""Partitions of a share group that have a state at the share coordinator, as recorded by the group. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from barnabas.coordinators.groups.topics import by_topic
from barnabas.wire.topic_partitions import TopicIdPartition, TopicIdPartitions

Partitions = frozenset[int]


@dataclass(frozen=True, slots=True)
class TopicStates:
    """Partitions by topic id: being initialized, or initialized; topics with a state being deleted; names."""

    initializing: Mapping[bytes, Partitions] = field(default_factory=dict)
    initialized: Mapping[bytes, Partitions] = field(default_factory=dict)
    deleting: frozenset[bytes] = frozenset()
    names: Mapping[bytes, str] = field(default_factory=dict)

    @property
    def topic_partitions(self) -> TopicIdPartitions:
        """The partitions that members can fetch."""
        return partitions_in(self.initialized)

    @property
    def size(self) -> int:
        """Number of these topics and partitions together."""
        states = (self.initializing, self.initialized)
        return len(self.deleting) + sum(len(each) + sum(map(len, each.values())) for each in states)

    @property
    def topic_ids(self) -> frozenset[bytes]:
        """The topics with any state."""
        return frozenset(self.initialized) | frozenset(self.initializing)

    def begun(self, topic_partitions: Iterable[TopicIdPartition], names: Mapping[bytes, str]) -> TopicStates:
        """Return a copy in which these partitions are being initialized."""
        topics = _united(self.initializing, topic_partitions)
        return replace(
            self,
            initializing=topics,
            deleting=self.deleting - frozenset(topics),
            names={**self.names, **names},
        )

    def finished(self, topic_partitions: Iterable[TopicIdPartition]) -> TopicStates:
        """Return a copy in which these partitions are initialized."""
        topic_partitions = frozenset(topic_partitions)
        return replace(
            self,
            initializing=_without(self.initializing, topic_partitions),
            initialized=_united(self.initialized, topic_partitions),
        )

    def failed(self, topic_partitions: Iterable[TopicIdPartition]) -> TopicStates:
        """Return a copy after the initialization of these partitions failed."""
        return replace(self, initializing=_without(self.initializing, frozenset(topic_partitions)))

    def being_deleted(self, topic_ids: frozenset[bytes]) -> TopicStates:
        """Return a copy in which the states of these topics are being deleted."""
        kept = {topic_id: p for topic_id, p in self.initialized.items() if topic_id not in topic_ids}
        return replace(self, initialized=kept, deleting=self.deleting | topic_ids)

    def without(self, topic_ids: frozenset[bytes]) -> TopicStates:
        """Return a copy without these topics: they, or their states, were deleted."""

        def rest(topics: Mapping[bytes, Partitions]) -> dict[bytes, Partitions]:
            return {topic_id: p for topic_id, p in topics.items() if topic_id not in topic_ids}

        return TopicStates(
            rest(self.initializing),
            rest(self.initialized),
            self.deleting - topic_ids,
            {topic_id: name for topic_id, name in self.names.items() if topic_id not in topic_ids},
        )


NO_TOPIC_STATES = TopicStates()


def partitions_in(topics: Mapping[bytes, Partitions]) -> TopicIdPartitions:
    """Return partitions by topic id as a flat set."""
    return frozenset((topic_id, p) for topic_id, partitions in topics.items() for p in partitions)


def _united(
    topics: Mapping[bytes, Partitions], topic_partitions: Iterable[TopicIdPartition]
) -> dict[bytes, Partitions]:
    return _grouped(partitions_in(topics) | frozenset(topic_partitions))


def _without(
    topics: Mapping[bytes, Partitions], topic_partitions: TopicIdPartitions
) -> dict[bytes, Partitions]:
    return _grouped(partitions_in(topics) - topic_partitions)


def _grouped(topic_partitions: TopicIdPartitions) -> dict[bytes, Partitions]:
    return {topic_id: frozenset(partitions) for topic_id, partitions in by_topic(topic_partitions)}
