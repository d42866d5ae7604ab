"""The uniform assignor: every member gets as many partitions as the others, and keeps what it has. Pure.

The rule, in this order: every slot has an owner who wants it; no move of one slot would make the loads more even;
a slot changes its owner only for one of these reasons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace

from barnabas.groups.assignors.subscriber import Subscriber
from barnabas.groups.topics import Slot, Slots


def assign_uniformly(
    members: Sequence[Subscriber], partition_counts: Mapping[bytes, int]
) -> dict[str, Slots]:
    """See the module. The same input always gives the same answer."""
    if not members:
        return {}
    ordered = sorted(members, key=lambda member: member.id)
    if all(member.topic_ids == ordered[0].topic_ids for member in ordered):
        wanted = [slot for slot in _slots(partition_counts) if slot[0] in ordered[0].topic_ids]
        owned = _assign_same(ordered, wanted)
    else:
        owned = _assign_different(ordered, partition_counts)
    return {member_id: frozenset(slots) for member_id, slots in owned.items()}


def _slots(partition_counts: Mapping[bytes, int]) -> list[Slot]:
    """All slots, the topics' low partitions first, so that neighbours in the list are of different topics."""
    slots = [(topic_id, p) for topic_id, count in partition_counts.items() for p in range(count)]
    return sorted(slots, key=lambda slot: (slot[1], slot[0]))


def _assign_same(members: Sequence[Subscriber], wanted: list[Slot]) -> dict[str, set[Slot]]:
    """All members read the same topics: each keeps up to its share, and the rest fills up the others."""
    least, extra = divmod(len(wanted), len(members))
    free = dict.fromkeys(wanted)
    owned: dict[str, set[Slot]] = {}
    # Who has most keeps most: the shares that are larger by one go to those who can fill them.
    for member in sorted(members, key=lambda member: -len(member.assigned)):
        kept = [slot for slot in sorted(member.assigned) if slot in free]
        share = least + (extra > 0 and len(kept) > least)
        extra -= share > least
        owned[member.id] = set(kept[:share])
        for slot in kept[:share]:
            del free[slot]
    # Those that kept more than `least` have their larger share already; the others share out what is left of those.
    rest = iter(free)
    for member in members:
        mine = owned[member.id]
        share = least
        if extra > 0 and len(mine) <= least:
            share, extra = least + 1, extra - 1
        while len(mine) < share:
            mine.add(next(rest))
    return owned


def _assign_different(
    members: Sequence[Subscriber], partition_counts: Mapping[bytes, int]
) -> dict[str, set[Slot]]:
    """Members read different topics: keep, give the rest to whoever has least, then even out topic by topic."""
    owned: dict[str, set[Slot]] = {member.id: set() for member in members}
    readers = {
        topic_id: [member.id for member in members if topic_id in member.topic_ids]
        for topic_id in partition_counts
    }
    taken: set[Slot] = set()
    for member in members:
        for slot in member.assigned:
            topic_id, partition = slot
            if (
                topic_id in member.topic_ids
                and partition < partition_counts.get(topic_id, 0)
                and slot not in taken
            ):
                taken.add(slot)
                owned[member.id].add(slot)
    # Topics with few readers first: their slots have the least choice.
    by_choice = sorted(
        (topic_id for topic_id in readers if readers[topic_id]), key=lambda t: (len(readers[t]), t)
    )
    for topic_id in by_choice:
        heap = [(len(owned[member_id]), member_id) for member_id in readers[topic_id]]
        heapify(heap)
        for partition in range(partition_counts[topic_id]):
            if (topic_id, partition) not in taken:
                load, member_id = heap[0]
                owned[member_id].add((topic_id, partition))
                heapreplace(heap, (load + 1, member_id))
    moved = True
    while moved:  # a move lowers the sum of the squared loads, so that this comes to an end
        moved = False
        for topic_id in by_choice:
            moved |= _even_out(topic_id, readers[topic_id], owned)
    return owned


def _even_out(topic_id: bytes, readers: Sequence[str], owned: dict[str, set[Slot]]) -> bool:
    """Move slots of one topic from those who have most to those who have least; whether any was moved."""
    movable = {
        member_id: sorted(slot for slot in owned[member_id] if slot[0] == topic_id) for member_id in readers
    }
    moved = False
    while True:
        givers = [member_id for member_id in readers if movable[member_id]]
        if not givers:
            return moved
        giver = max(givers, key=lambda member_id: len(owned[member_id]))
        taker = min(readers, key=lambda member_id: len(owned[member_id]))
        if len(owned[giver]) <= len(owned[taker]) + 1:
            return moved
        slot = movable[giver].pop()
        owned[giver].remove(slot)
        owned[taker].add(slot)
        movable[taker].append(slot)
        moved = True
