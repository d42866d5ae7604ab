"""Offsets that transactions have committed and that do not count yet, by producer id. Pure.

The rule: what is committed later wins, whichever transaction ends first. A transaction's offsets count from its end on,
except where a plain commit for the same place came after them, or those of another transaction that has ended. Until its
end an offset may change, and is unstable, also where it has been overruled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from barnabas.wire.generated.records.offset_commit import OffsetCommitValue
from barnabas.wire.topic_partitions import TopicPartition

OVERRULED: Final = None
"""In place of an offset that does not count when its transaction commits."""


class PendingOffsets:
    """Offsets of open transactions: by producer, group and place."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[int, dict[TopicPartition, OffsetCommitValue | None]]] = {}
        self._groups: dict[int, set[str]] = {}
        self._with_overruled: set[tuple[str, int]] = set()
        self._contested: dict[tuple[str, TopicPartition], list[int]] = {}
        """Producers of places that several have committed, the one that was last at the end."""

    def add(
        self,
        producer_id: int,
        group_id: str,
        topic_partition: TopicPartition,
        value: OffsetCommitValue | None,
    ) -> None:
        """Add an offset that a transaction commits; None removes it."""
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
        """Drop pending offsets of a partition, since its offset was deleted after them."""
        producers = self._by_group.get(group_id)
        if producers:
            for offsets in producers.values():
                offsets.pop(topic_partition, None)
            self._contested.pop((group_id, topic_partition), None)
            self._forget_empty(group_id)

    def _forget_empty(self, group_id: str) -> None:
        """Forget the transactions that have no offset of a group left: their end does not concern it any more."""
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
        """Of contested places, overrule what was committed before the transaction that has ended."""
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
        """A producer has no offset of a place any more; the place is contested while several others have one."""
        order = self._contested.get(place)
        if order is not None:
            rest = [other for other in order if other != producer_id]
            if len(rest) > 1:
                self._contested[place] = rest
            else:
                del self._contested[place]

    def has(self, group_id: str) -> bool:
        """Say whether a group's offsets may change when a transaction ends."""
        return group_id in self._by_group

    def of(self, group_id: str, topic_partition: TopicPartition) -> list[OffsetCommitValue]:
        """Return what open transactions have committed for a partition, and may count."""
        producers = self._by_group.get(group_id, {}).values()
        values = [offsets.get(topic_partition) for offsets in producers]
        return [value for value in values if value is not None]

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
