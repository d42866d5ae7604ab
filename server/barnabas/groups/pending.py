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
        self._by_group: dict[str, dict[int, dict[Place, OffsetCommitValue]]] = {}
        self._groups: dict[int, set[str]] = {}

    def add(self, producer_id: int, group_id: str, place: Place, value: OffsetCommitValue | None) -> None:
        """A transaction has committed an offset; None takes it back."""
        self._groups.setdefault(producer_id, set()).add(group_id)
        offsets = self._by_group.setdefault(group_id, {}).setdefault(producer_id, {})
        if value is None:
            offsets.pop(place, None)
        else:
            offsets[place] = value

    def overrule(self, group_id: str, place: Place) -> None:
        """A plain commit or a removal came after them."""
        for offsets in self._by_group.get(group_id, {}).values():
            offsets.pop(place, None)

    def end(self, producer_id: int) -> Iterator[tuple[str, Place, OffsetCommitValue]]:
        """The transaction of a producer has ended: what it had committed."""
        for group_id in self._groups.pop(producer_id, ()):
            producers = self._by_group[group_id]
            offsets = producers.pop(producer_id)
            if not producers:
                del self._by_group[group_id]
            for place, value in offsets.items():
                yield group_id, place, value

    def groups(self) -> set[str]:
        """The groups that have such offsets."""
        return set(self._by_group)

    def places(self, group_id: str) -> set[Place]:
        """Where a group's offset may change when a transaction ends."""
        return {place for offsets in self._by_group.get(group_id, {}).values() for place in offsets}
