"""The simple assignor of share groups: every slot goes to as many members as it takes to keep all of them busy. Pure.

The rule, in this order: every slot has somebody who wants it; members that want the same topics get as many slots as
the others; nobody changes a slot without need. Several members may have the same slot: they share its records.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from barnabas.groups.assignors.subscriber import Subscriber
from barnabas.groups.topics import Slot, Slots


def assign_shared(members: Sequence[Subscriber], slots: Collection[Slot]) -> dict[str, Slots]:
    """The slots by member id, with every member in it; topics that the same members want are shared out together."""
    owned: dict[str, set[Slot]] = {member.id: set() for member in members}
    ordered = sorted(members, key=lambda member: member.id)
    by_readers: dict[tuple[str, ...], list[Slot]] = {}
    for slot in sorted(slots, key=lambda slot: (slot[1], slot[0])):
        readers = tuple(member.id for member in ordered if slot[0] in member.topic_ids)
        if readers:
            by_readers.setdefault(readers, []).append(slot)
    before = {member.id: member.assigned for member in members}
    for readers, wanted in sorted(by_readers.items()):
        for member_id, mine in _share_out(readers, wanted, before).items():
            owned[member_id] |= mine
    return {member_id: frozenset(mine) for member_id, mine in owned.items()}


def _share_out(
    readers: Sequence[str], slots: Sequence[Slot], before: dict[str, Slots]
) -> dict[str, set[Slot]]:
    """Give each slot to the same number of members, and each member nearly the same number of slots."""
    copies = -(-len(readers) // len(slots))
    places = dict.fromkeys(slots, copies)
    least, extra = divmod(copies * len(slots), len(readers))
    owned: dict[str, set[Slot]] = {}
    # Who has most keeps most: the shares that are larger by one go to those who can fill them.
    for member_id in sorted(
        readers, key=lambda member_id: (-len(before[member_id] & places.keys()), member_id)
    ):
        kept = [slot for slot in slots if slot in before[member_id] and places[slot]]
        share = least + (extra > 0 and len(kept) > least)
        extra -= share > least
        owned[member_id] = set(kept[:share])
        for slot in kept[:share]:
            places[slot] -= 1
    for member_id in sorted(readers, key=lambda member_id: (len(owned[member_id]), member_id)):
        mine = owned[member_id]
        share = least
        if extra > 0 and len(mine) <= least:
            share, extra = least + 1, extra - 1
        # Where most places are left first, so that the last ones find a slot that they do not have yet.
        for slot in sorted((slot for slot in slots if slot not in mine), key=lambda slot: -places[slot]):
            if len(mine) >= share:
                break
            if places[slot]:
                mine.add(slot)
                places[slot] -= 1
    # What nobody has may be left when those with room had it already: then somebody gets one more.
    for slot in slots:
        if places[slot] == copies:
            owned[min(readers, key=lambda member_id: (len(owned[member_id]), member_id))].add(slot)
    return owned
