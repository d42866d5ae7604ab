"""For which partitions the share coordinator has a state, as the group coordinator keeps count of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from barnabas.groups.topics import Slot, Slots, by_topic

Partitions = frozenset[int]


@dataclass(frozen=True, slots=True)
class KnownTopics:
    """Partitions by topic id whose state is being made, is there, or is being deleted (by topic); and the topics' names."""

    initializing: Mapping[bytes, Partitions] = field(default_factory=dict)
    initialized: Mapping[bytes, Partitions] = field(default_factory=dict)
    deleting: frozenset[bytes] = frozenset()
    names: Mapping[bytes, str] = field(default_factory=dict)

    @property
    def slots(self) -> Slots:
        """The slots that can be fetched from."""
        return slots_in(self.initialized)

    @property
    def topic_ids(self) -> frozenset[bytes]:
        """The topics of which something is known."""
        return frozenset(self.initialized) | frozenset(self.initializing)

    def begun(self, slots: Iterable[Slot], names: Mapping[bytes, str]) -> KnownTopics:
        """The state of these is being made."""
        topics = _united(self.initializing, slots)
        return replace(
            self,
            initializing=topics,
            deleting=self.deleting - frozenset(topics),
            names={**self.names, **names},
        )

    def finished(self, slots: Iterable[Slot]) -> KnownTopics:
        """The state of these is there."""
        slots = frozenset(slots)
        return replace(
            self,
            initializing=_without(self.initializing, slots),
            initialized=_united(self.initialized, slots),
        )

    def failed(self, slots: Iterable[Slot]) -> KnownTopics:
        """The state of these could not be made."""
        return replace(self, initializing=_without(self.initializing, frozenset(slots)))

    def being_deleted(self, topic_ids: frozenset[bytes]) -> KnownTopics:
        """The state of all partitions of these topics is going to be deleted."""
        kept = {topic_id: p for topic_id, p in self.initialized.items() if topic_id not in topic_ids}
        return replace(self, initialized=kept, deleting=self.deleting | topic_ids)

    def without(self, topic_ids: frozenset[bytes]) -> KnownTopics:
        """These topics are gone, or their state is."""

        def rest(topics: Mapping[bytes, Partitions]) -> dict[bytes, Partitions]:
            return {topic_id: p for topic_id, p in topics.items() if topic_id not in topic_ids}

        return KnownTopics(
            rest(self.initializing),
            rest(self.initialized),
            self.deleting - topic_ids,
            {topic_id: name for topic_id, name in self.names.items() if topic_id not in topic_ids},
        )


NOTHING_KNOWN = KnownTopics()


def slots_in(topics: Mapping[bytes, Partitions]) -> Slots:
    """The slots of partitions by topic id."""
    return frozenset((topic_id, p) for topic_id, partitions in topics.items() for p in partitions)


def _united(topics: Mapping[bytes, Partitions], slots: Iterable[Slot]) -> dict[bytes, Partitions]:
    return _grouped(slots_in(topics) | frozenset(slots))


def _without(topics: Mapping[bytes, Partitions], slots: Slots) -> dict[bytes, Partitions]:
    return _grouped(slots_in(topics) - slots)


def _grouped(slots: Slots) -> dict[bytes, Partitions]:
    return {topic_id: frozenset(partitions) for topic_id, partitions in by_topic(slots)}
