"""Offsets that transactions have committed and that do not count yet, by producer id. Pure.

The rule: what is committed later wins. A transaction's offsets count from its end on, except where a plain commit for
the same place came after them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from barnabas.wire.generated.records.offset_commit import OffsetCommitValue
from barnabas.wire.topic_partitions import TopicPartition


class PendingOffsets:
    """Offsets of open transactions: by producer, group and place."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[int, dict[TopicPartition, OffsetCommitValue]]] = {}
        self._groups: dict[int, set[str]] = {}

    def add(
        self,
        producer_id: int,
        group_id: str,
        topic_partition: TopicPartition,
        value: OffsetCommitValue | None,
    ) -> None:
        """A transaction has committed an offset; None takes it back."""
        if value is not None:
            self._groups.setdefault(producer_id, set()).add(group_id)
            offsets = self._by_group.setdefault(group_id, {}).setdefault(producer_id, {})
            offsets[topic_partition] = value
        elif producer_id in (producers := self._by_group.get(group_id, {})):
            producers[producer_id].pop(topic_partition, None)
            self._forget_empty(group_id)

    def overrule(self, group_id: str, topic_partition: TopicPartition) -> None:
        """A plain commit or a removal came after them."""
        producers = self._by_group.get(group_id)
        if producers:
            for offsets in producers.values():
                offsets.pop(topic_partition, None)
            self._forget_empty(group_id)

    def overrule_all(self, group_id: str, committed: Mapping[TopicPartition, OffsetCommitValue]) -> None:
        """As `overrule`, for all of these; what others have is looked through where that is less."""
        for offsets in self._by_group.get(group_id, {}).values():
            fewer, more = sorted((offsets, committed), key=len)
            for topic_partition in [one for one in fewer if one in more]:
                del offsets[topic_partition]
        self._forget_empty(group_id)

    def _forget_empty(self, group_id: str) -> None:
        """Forget the transactions that have no offset of a group left: their end does not concern it any more."""
        producers = self._by_group.get(group_id, {})
        for producer_id in [number for number, offsets in producers.items() if not offsets]:
            del producers[producer_id]
            groups = self._groups[producer_id]
            groups.discard(group_id)
            if not groups:
                del self._groups[producer_id]
        if not producers:
            self._by_group.pop(group_id, None)

    def end(self, producer_id: int) -> Iterator[tuple[str, dict[TopicPartition, OffsetCommitValue]]]:
        """The transaction of a producer has ended: what it had committed, by group."""
        for group_id in self._groups.pop(producer_id, ()):
            producers = self._by_group[group_id]
            offsets = producers.pop(producer_id)
            if not producers:
                del self._by_group[group_id]
            yield group_id, offsets

    def has(self, group_id: str) -> bool:
        """Say whether a group's offsets may change when a transaction ends."""
        return group_id in self._by_group

    def of(self, group_id: str, topic_partition: TopicPartition) -> list[OffsetCommitValue]:
        """Return what open transactions have committed for a partition."""
        producers = self._by_group.get(group_id, {}).values()
        return [offsets[topic_partition] for offsets in producers if topic_partition in offsets]

    def each(self, group_id: str) -> Iterator[TopicPartition]:
        """Go through the partitions of which a group's offset may change, once for each transaction."""
        for offsets in self._by_group.get(group_id, {}).values():
            yield from offsets

    def groups(self) -> set[str]:
        """The groups that have such offsets."""
        return set(self._by_group)

    def topic_partitions(self, group_id: str) -> set[TopicPartition]:
        """Return the partitions of which a group's offset may change when a transaction ends."""
        return set(self.each(group_id))
