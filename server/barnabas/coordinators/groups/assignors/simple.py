"""The simple assignor of share groups: a partition goes to as many members as are needed to give each member work. Pure.

The rule, in this order: every partition goes to a member that is subscribed to its topic; members with the same
subscription get equally many; no partition moves without need. Several members may have the same partition: they share
its records.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from heapq import heapify, heappop, heappush

from barnabas.coordinators.groups.assignors.subscriber import Subscriber, readers_by_topic
from barnabas.wire.topic_partitions import TopicIdPartition, TopicIdPartitions


def assign_shared(
    members: Sequence[Subscriber], topic_partitions: Collection[TopicIdPartition]
) -> dict[str, TopicIdPartitions]:
    """Return the partitions by member id, with every member in it; topics with the same readers are assigned together."""
    owned: dict[str, set[TopicIdPartition]] = {member.id: set() for member in members}
    ordered = sorted(members, key=lambda member: member.id)
    topic_ids = {topic_id for topic_id, _ in topic_partitions}
    readers_of = readers_by_topic(members, [member.id for member in ordered], sorted(topic_ids))
    by_readers: dict[tuple[str, ...], list[TopicIdPartition]] = {}
    wanted_with = {
        topic_id: by_readers.setdefault(tuple(readers), []) for topic_id, readers in readers_of.items()
    }
    for topic_partition in sorted(
        topic_partitions, key=lambda topic_partition: (topic_partition[1], topic_partition[0])
    ):
        if topic_partition[0] in wanted_with:
            wanted_with[topic_partition[0]].append(topic_partition)
    before = {member.id: member.assigned for member in members}
    for readers, partitions in sorted(by_readers.items()):
        for member_id, mine in _share_out(readers, partitions, before).items():
            owned[member_id] |= mine
    return {member_id: frozenset(mine) for member_id, mine in owned.items()}


def _share_out(
    readers: Sequence[str], partitions: Sequence[TopicIdPartition], before: dict[str, TopicIdPartitions]
) -> dict[str, set[TopicIdPartition]]:
    """Give each partition to the same number of members, and each member nearly the same number of partitions."""
    copies = -(-len(readers) // len(partitions))
    copies_left = dict.fromkeys(partitions, copies)
    places = {partition: place for place, partition in enumerate(partitions)}
    least, extra = divmod(copies * len(partitions), len(readers))
    owned: dict[str, set[TopicIdPartition]] = {}
    # members that had most keep most: the shares that are larger by one go to members that can fill them
    for member_id in sorted(
        readers, key=lambda member_id: (-len(before[member_id] & copies_left.keys()), member_id)
    ):
        had = before[member_id] & copies_left.keys()
        kept = [partition for partition in sorted(had, key=places.__getitem__) if copies_left[partition]]
        share = least + (extra > 0 and len(kept) > least)
        extra -= share > least
        owned[member_id] = set(kept[:share])
        for partition in kept[:share]:
            copies_left[partition] -= 1
    # partitions with most copies left first, so that the last members still find partitions that they lack
    free = [(-copies, places[partition], partition) for partition, copies in copies_left.items() if copies]
    heapify(free)
    for member_id in sorted(readers, key=lambda member_id: (len(owned[member_id]), member_id)):
        mine = owned[member_id]
        share = least
        if extra > 0 and len(mine) <= least:
            share, extra = least + 1, extra - 1
        seen = []
        while free and len(mine) < share:
            _, place, partition = heappop(free)
            if partition not in mine:
                mine.add(partition)
                copies_left[partition] -= 1
            if copies_left[partition]:
                seen.append((-copies_left[partition], place, partition))
        for entry in seen:
            heappush(free, entry)
    # a partition may be unassigned if all members with room had it already: then a member gets one more
    for partition in partitions:
        if copies_left[partition] == copies:
            owned[min(readers, key=lambda member_id: (len(owned[member_id]), member_id))].add(partition)
    return owned
