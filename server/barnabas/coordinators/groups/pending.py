"""Offsets in open transactions, which do not count yet, by producer id. Pure.

The rule: the later commit wins, whichever transaction ends first. A transaction's offsets count from its end on, unless
a plain commit for the same partition came after them, or a commit of another transaction that has ended. Until then the
partition's offset is unstable, even if it is overruled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from barnabas.wire.generated.records.offset_commit import OffsetCommitValue
from barnabas.wire.topic_partitions import TopicPartition

OVERRULED: Final = None
"""In place of an offset that is ignored when its transaction commits."""


class PendingOffsets:
    """Offsets of open transactions, by producer, group and partition."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[int, dict[TopicPartition, OffsetCommitValue | None]]] = {}
        self._groups: dict[int, set[str]] = {}
        self._with_overruled: set[tuple[str, int]] = set()
        self._contested: dict[tuple[str, TopicPartition], list[int]] = {}
        """Producers with offsets for the same partition, in the order of their commits."""

    def add(
        self,
        producer_id: int,
        group_id: str,
        topic_partition: TopicPartition,
        value: OffsetCommitValue | None,
    ) -> None:
        """Add an offset of a transaction; None removes it."""
        producers = self._by_group.setdefault(group_id, {})
        offsets = producers.setdefault(producer_id, {})
        self._groups.setdefault(producer_id, set()).add(group_id)
        if value is None:
            offsets.pop(topic_partition, None)
            self._leave((group_id, topic_partition), producer_id)
            self._forget_empty(group_id)
            return
        offsets[topic_partition] = value
        if len(producers) > 1:
            place = group_id, topic_partition
            order = self._contested.get(place) or [
                other for other, others in producers.items() if topic_partition in others
            ]
            if len(order) > 1 or order != [producer_id]:
                self._contested[place] = [*(other for other in order if other != producer_id), producer_id]

    def overrule(self, group_id: str, topic_partition: TopicPartition) -> None:
        """Overrule pending offsets of a partition by a later commit outside of their transactions."""
        for producer_id, offsets in self._by_group.get(group_id, {}).items():
            if topic_partition in offsets:
                offsets[topic_partition] = OVERRULED
                self._with_overruled.add((group_id, producer_id))
        self._contested.pop((group_id, topic_partition), None)

    def forget(self, group_id: str, topic_partition: TopicPartition) -> None:
        """Remove pending offsets of a partition after its offset was deleted."""
        producers = self._by_group.get(group_id)
        if producers:
            for offsets in producers.values():
                offsets.pop(topic_partition, None)
            self._contested.pop((group_id, topic_partition), None)
            self._forget_empty(group_id)

    def _forget_empty(self, group_id: str) -> None:
        """Remove the transactions without offsets of a group: their end does not affect it."""
        producers = self._by_group.get(group_id, {})
        for producer_id in [number for number, offsets in producers.items() if not offsets]:
            del producers[producer_id]
            self._with_overruled.discard((group_id, producer_id))
            groups = self._groups[producer_id]
            groups.discard(group_id)
            if not groups:
                del self._groups[producer_id]
        if not producers:
            self._by_group.pop(group_id, None)

    def end(
        self, producer_id: int, *, committed: bool
    ) -> Iterator[tuple[str, Mapping[TopicPartition, OffsetCommitValue]]]:
        """End a producer's transaction; yield its pending offsets by group, which count if it is `committed`."""
        for group_id in self._groups.pop(producer_id, ()):
            producers = self._by_group[group_id]
            offsets = producers.pop(producer_id)
            if not producers:
                del self._by_group[group_id]
            elif self._contested:
                self._settle(group_id, producer_id, offsets, committed=committed)
            if (group_id, producer_id) in self._with_overruled:
                self._with_overruled.discard((group_id, producer_id))
                offsets = {place: value for place, value in offsets.items() if value is not OVERRULED}
            yield group_id, offsets  # type: ignore[misc]  # there is a value in each

    def _settle(
        self, group_id: str, producer_id: int, places: Mapping[TopicPartition, object], *, committed: bool
    ) -> None:
        """Overrule the offsets in contested partitions that were committed before the transaction that has ended."""
        if len(self._contested) < len(places):
            places = {
                topic_partition: None for group, topic_partition in self._contested if group == group_id
            }
        for topic_partition in places:
            place = group_id, topic_partition
            order = self._contested.get(place, [])
            if committed and producer_id in order:
                for other in order[: order.index(producer_id)]:
                    self._by_group[group_id][other][topic_partition] = OVERRULED
                    self._with_overruled.add((group_id, other))
            self._leave(place, producer_id)

    def _leave(self, place: tuple[str, TopicPartition], producer_id: int) -> None:
        """Note that a producer no longer has an offset for a partition, which stays contested while several others have."""
        order = self._contested.get(place)
        if order is not None:
            rest = [other for other in order if other != producer_id]
            if len(rest) > 1:
                self._contested[place] = rest
            else:
                del self._contested[place]

    def has(self, group_id: str) -> bool:
        """Return whether the end of a transaction may change a group's offsets."""
        return group_id in self._by_group

    def of(self, group_id: str, topic_partition: TopicPartition) -> list[OffsetCommitValue]:
        """Return the offsets of open transactions for a partition that may count."""
        producers = self._by_group.get(group_id, {}).values()
        values = [offsets.get(topic_partition) for offsets in producers]
        return [value for value in values if value is not None]

    def each(self, group_id: str) -> Iterator[TopicPartition]:
        """Iterate over the partitions with pending offsets of a group, once for each transaction."""
        for offsets in self._by_group.get(group_id, {}).values():
            yield from offsets

    def groups(self) -> set[str]:
        """The groups with pending offsets."""
        return set(self._by_group)

    def topic_partitions(self, group_id: str) -> set[TopicPartition]:
        """Return the partitions with pending offsets of a group."""
        return set(self.each(group_id))
