"""The uniform assignor: every member gets equally many partitions, and keeps those that it has. Pure.

The rule, in this order: every partition has an owner that is subscribed to its topic; no move of one partition would make
the loads more even; a partition changes its owner only for one of these reasons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from barnabas.coordinators.groups.assignors.subscriber import Subscriber, readers_by_topic
from barnabas.wire.topic_partitions import TopicIdPartition, TopicIdPartitions


def assign_uniformly(
    members: Sequence[Subscriber], partition_counts: Mapping[bytes, int]
) -> dict[str, TopicIdPartitions]:
    """Assign as the head of the module describes. The same input always gives the same result."""
    if not members:
        return {}
    ordered = sorted(members, key=lambda member: member.id)
    if all(member.topic_ids == ordered[0].topic_ids for member in ordered):
        subscribed = [
            topic_partition
            for topic_partition in _partitions_of(partition_counts)
            if topic_partition[0] in ordered[0].topic_ids
        ]
        owned = _assign_same(ordered, subscribed)
    else:
        owned = _assign_different(ordered, partition_counts)
    return {member_id: frozenset(topic_partitions) for member_id, topic_partitions in owned.items()}


def _partitions_of(partition_counts: Mapping[bytes, int]) -> list[TopicIdPartition]:
    """Return all partitions, low numbers first, so that neighbours in the list belong to different topics."""
    topic_partitions = [(topic_id, p) for topic_id, count in partition_counts.items() for p in range(count)]
    return sorted(topic_partitions, key=lambda topic_partition: (topic_partition[1], topic_partition[0]))


def _assign_same(
    members: Sequence[Subscriber], subscribed: list[TopicIdPartition]
) -> dict[str, set[TopicIdPartition]]:
    """Assign if all members read the same topics: each keeps partitions up to its share, the others get the rest."""
    least, extra = divmod(len(subscribed), len(members))
    free = dict.fromkeys(subscribed)
    owned: dict[str, set[TopicIdPartition]] = {}
    # members that had most keep most: the shares that are larger by one go to members that can fill them
    for member in sorted(members, key=lambda member: -len(member.assigned)):
        kept = [topic_partition for topic_partition in sorted(member.assigned) if topic_partition in free]
        share = least + (extra > 0 and len(kept) > least)
        extra -= share > least
        owned[member.id] = set(kept[:share])
        for topic_partition in kept[:share]:
            del free[topic_partition]
    # members that kept more than `least` have their larger share already; the others get the remaining larger shares
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
) -> dict[str, set[TopicIdPartition]]:
    """Assign if members read different topics: keep partitions, give the rest to the least loaded, then even out."""
    owned: dict[str, set[TopicIdPartition]] = {member.id: set() for member in members}
    readers = readers_by_topic(members, [member.id for member in members], partition_counts)
    taken: set[TopicIdPartition] = set()
    for member in members:
        for topic_partition in member.assigned:
            topic_id, partition = topic_partition
            if (
                topic_id in member.topic_ids
                and partition < partition_counts.get(topic_id, 0)
                and topic_partition not in taken
            ):
                taken.add(topic_partition)
                owned[member.id].add(topic_partition)
    # topics with few readers first: their partitions have the least choice
    by_choice = sorted(readers, key=lambda t: (len(readers[t]), t))
    for topic_id in by_choice:
        heap = [(len(owned[member_id]), member_id) for member_id in readers[topic_id]]
        heapify(heap)
        for partition in range(partition_counts[topic_id]):
            if (topic_id, partition) not in taken:
                load, member_id = heap[0]
                owned[member_id].add((topic_id, partition))
                heapreplace(heap, (load + 1, member_id))
    moved = True
    while moved:  # each move lowers the sum of the squared loads, so the loop terminates
        moved = False
        for topic_id in by_choice:
            moved |= _even_out(topic_id, readers[topic_id], owned)
    return owned


def _even_out(topic_id: bytes, readers: Sequence[str], owned: dict[str, set[TopicIdPartition]]) -> bool:
    """Move partitions of one topic from the most to the least loaded members; returns whether any was moved."""
    loads = [len(owned[member_id]) for member_id in readers]
    if max(loads) <= min(loads) + 1:
        return False
    movable = {
        member_id: sorted(
            topic_partition for topic_partition in owned[member_id] if topic_partition[0] == topic_id
        )
        for member_id in readers
    }
    # loads and positions of all members that may give or take; entries with outdated loads are dropped when they are
    # reached
    givers = [(-loads[n], n) for n, member_id in enumerate(readers) if movable[member_id]]
    takers = [(loads[n], n) for n in range(len(readers))]
    heapify(givers)
    heapify(takers)
    moved = False
    while True:
        while givers and (-givers[0][0] != loads[givers[0][1]] or not movable[readers[givers[0][1]]]):
            heappop(givers)
        while takers[0][0] != loads[takers[0][1]]:
            heappop(takers)
        if not givers:
            return moved
        giver, taker = givers[0][1], takers[0][1]
        if loads[giver] <= loads[taker] + 1:
            return moved
        topic_partition = movable[readers[giver]].pop()
        owned[readers[giver]].remove(topic_partition)
        owned[readers[taker]].add(topic_partition)
        movable[readers[taker]].append(topic_partition)
        for n, change in ((giver, -1), (taker, 1)):
            loads[n] += change
            heappush(givers, (-loads[n], n))
            heappush(takers, (loads[n], n))
        moved = True
