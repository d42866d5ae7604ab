"""Offsets that transactions have committed and that do not count yet, by producer id. Pure.

The rule: what is committed later wins. A transaction's offsets count from its end on, except where a plain commit for
the same place came after them.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.groups.offsets import Place
from barnabas.wire.generated.records.offset_commit import OffsetCommitValue


class PendingOffsets:
    """Offsets of open transactions: by producer, group and place."""

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[str, dict[Place, OffsetCommitValue]]] = {}

    def add(self, producer_id: int, group_id: str, place: Place, value: OffsetCommitValue | None) -> None:
        """A transaction has committed an offset; None takes it back."""
        offsets = self._by_producer.setdefault(producer_id, {}).setdefault(group_id, {})
        if value is None:
            offsets.pop(place, None)
        else:
            offsets[place] = value

    def overrule(self, group_id: str, place: Place) -> None:
        """A plain commit or a removal came after them."""
        for groups in self._by_producer.values():
            groups.get(group_id, {}).pop(place, None)

    def end(self, producer_id: int) -> Iterator[tuple[str, Place, OffsetCommitValue]]:
        """The transaction of a producer has ended: what it had committed."""
        for group_id, offsets in self._by_producer.pop(producer_id, {}).items():
            for place, value in offsets.items():
                yield group_id, place, value

    def groups(self) -> set[str]:
        """The groups that have such offsets."""
        return {group_id for groups in self._by_producer.values() for group_id in groups}

    def places(self, group_id: str) -> set[Place]:
        """Where a group's offset may change when a transaction ends."""
        return {place for groups in self._by_producer.values() for place in groups.get(group_id, {})}
