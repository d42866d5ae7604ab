"""The kinds of change of a cluster: each with what it is made of, what it does to an image, and what it concerns. Pure.

The rule: one class per kind, immutable. Stores keep changes in formats of their own (`encoding`, `zookeeper.writes`). Those
of credentials, quotas and ACLs are in `access_changes`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from barnabas.cluster.image import (
    NO_TOPIC_ID,
    TOPIC,
    BrokerInfo,
    Change,
    Draft,
    PartitionInfo,
    Subjects,
    TopicInfo,
    comparable,
    has_similar,
)


@dataclass(frozen=True, slots=True)
class TopicCreated(Change):
    """A new topic, or an id for one that had none."""

    topic: TopicInfo

    def apply(self, draft: Draft) -> None:
        """Add the topic, its id, and its name among those that are similar."""
        name = self.topic.name
        draft.partitions.pop(name, None)
        draft.topics.put(name, self.topic)
        if self.topic.id != NO_TOPIC_ID:
            draft.names.put(self.topic.id, name)
        if has_similar(name):
            key = comparable(name)
            known = draft.similar.now.get(key, ())
            if name not in known:  # it is there already where a topic gets its id later
                draft.similar.put(key, (*known, name))

    def mark(self, subjects: Subjects) -> None:
        """Mark the topic."""
        subjects.topics[self.topic.name] = None


@dataclass(frozen=True, slots=True)
class PartitionsAdded(Change):
    """A topic has got more partitions, after those it had."""

    name: str
    partitions: tuple[PartitionInfo, ...]

    def apply(self, draft: Draft) -> None:
        """Append the partitions."""
        draft.partitions_of(self.name).extend(self.partitions)

    def mark(self, subjects: Subjects) -> None:
        """Mark the topic."""
        subjects.topics[self.name] = None


@dataclass(frozen=True, slots=True)
class PartitionChanged(Change):
    """One partition of a topic has other leaders or replicas."""

    name: str
    index: int
    partition: PartitionInfo

    def apply(self, draft: Draft) -> None:
        """Replace the partition."""
        draft.partitions_of(self.name)[self.index] = self.partition

    def mark(self, subjects: Subjects) -> None:
        """Mark the topic."""
        subjects.topics[self.name] = None


@dataclass(frozen=True, slots=True)
class TopicDeleted(Change):
    """A topic is gone, and its settings with it."""

    name: str

    def apply(self, draft: Draft) -> None:
        """Remove the topic, its id and its settings."""
        name = self.name
        draft.partitions.pop(name, None)
        draft.names.put(draft.topics.now[name].id, None)
        draft.topics.put(name, None)
        draft.configs.put((TOPIC, name), None)
        if has_similar(name):
            key = comparable(name)
            draft.similar.put(key, tuple(other for other in draft.similar.now[key] if other != name) or None)

    def mark(self, subjects: Subjects) -> None:
        """Mark the topic."""
        subjects.topics[self.name] = None


@dataclass(frozen=True, slots=True)
class ConfigChanged(Change):
    """A resource's own settings, all of them, are now these."""

    resource_type: int
    resource_name: str
    settings: tuple[tuple[str, str], ...] = field(repr=False)
    """Passwords may be among them: they are in no message."""

    def apply(self, draft: Draft) -> None:
        """Replace the settings of the resource."""
        draft.configs.put((self.resource_type, self.resource_name), dict(self.settings) or None)

    def mark(self, subjects: Subjects) -> None:
        """Mark the resource's settings."""
        subjects.configs[self.resource_type, self.resource_name] = None


@dataclass(frozen=True, slots=True)
class BrokerRegistered(Change):
    """A broker has come, or come back with other endpoints."""

    broker: BrokerInfo

    def apply(self, draft: Draft) -> None:
        """Add the broker, or replace what was known of it."""
        draft.brokers.put(self.broker.id, self.broker)


@dataclass(frozen=True, slots=True)
class BrokerUnregistered(Change):
    """A broker has gone: it was shut down, or its session has expired."""

    broker_id: int

    def apply(self, draft: Draft) -> None:
        """Remove the broker."""
        draft.brokers.put(self.broker_id, None)


@dataclass(frozen=True, slots=True)
class ControllerChanged(Change):
    """Another broker is the controller, -1 for none; its epoch grows with each election."""

    controller_id: int
    epoch: int = 0

    def apply(self, draft: Draft) -> None:
        """Replace the controller."""
        draft.controller_id, draft.controller_epoch = self.controller_id, self.epoch


@dataclass(frozen=True, slots=True)
class ProducerIdsAllocated(Change):
    """Producer ids below `next_id` may have been handed out."""

    next_id: int

    def apply(self, draft: Draft) -> None:
        """Set the next producer id."""
        draft.next_producer_id = self.next_id


@dataclass(frozen=True, slots=True)
class LogDirsRegistered(Change):
    """The log dirs in which a broker may have something, by their directory ids (KIP-858)."""

    broker_id: int
    directory_ids: frozenset[bytes]

    def apply(self, draft: Draft) -> None:
        """Replace the broker's log dirs."""
        draft.log_dirs.put(self.broker_id, self.directory_ids)


@dataclass(frozen=True, slots=True)
class FeaturesChanged(Change):
    """The levels at which features are finalized, all of them, are now these; the epoch counts such changes."""

    levels: tuple[tuple[str, int], ...]
    epoch: int

    def apply(self, draft: Draft) -> None:
        """Replace the levels and the epoch."""
        draft.features, draft.features_epoch = dict(self.levels), self.epoch
