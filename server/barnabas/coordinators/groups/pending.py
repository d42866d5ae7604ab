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
        self._groups.setdefault(producer_id, set()).add(group_id)
        offsets = self._by_group.setdefault(group_id, {}).setdefault(producer_id, {})
        if value is None:
            offsets.pop(topic_partition, None)
        else:
            offsets[topic_partition] = value

    def overrule(self, group_id: str, topic_partition: TopicPartition) -> None:
        """A plain commit or a removal came after them."""
        for offsets in self._by_group.get(group_id, {}).values():
            offsets.pop(topic_partition, None)

    def overrule_all(self, group_id: str, committed: Mapping[TopicPartition, OffsetCommitValue]) -> None:
        """As `overrule`, for all of these; what others have is looked through where that is less."""
        for offsets in self._by_group.get(group_id, {}).values():
            fewer, more = sorted((offsets, committed), key=len)
            for topic_partition in [one for one in fewer if one in more]:
                del offsets[topic_partition]

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
        return any(self._by_group.get(group_id, {}).values())

    def groups(self) -> set[str]:
        """The groups that have such offsets."""
        return set(self._by_group)

    def topic_partitions(self, group_id: str) -> set[TopicPartition]:
        """Return the partitions of which a group's offset may change when a transaction ends."""
        return {
            topic_partition
            for offsets in self._by_group.get(group_id, {}).values()
            for topic_partition in offsets
        }
