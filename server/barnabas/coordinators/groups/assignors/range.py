"""The range assignor: each topic's partitions in one run per member. Pure.

Members that read the same topics with the same number of partitions get the same partition numbers of each, as joins of
such topics need. Static members come first, by their instance ids, so that they keep their partitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barnabas.coordinators.groups.assignors.subscriber import Subscriber, readers_by_topic
from barnabas.wire.topic_partitions import TopicIdPartition, TopicIdPartitions


def assign_ranges(
    members: Sequence[Subscriber], partition_counts: Mapping[bytes, int]
) -> dict[str, TopicIdPartitions]:
    """Return runs of nearly the same length; the first members get one partition more if the division has a remainder."""
    ordered = [member.id for member in sorted(members, key=_place)]
    assigned: dict[str, set[TopicIdPartition]] = {member.id: set() for member in members}
    for topic_id, readers in readers_by_topic(members, ordered, partition_counts).items():
        count = partition_counts[topic_id]
        least, extra = divmod(count, len(readers))
        first = 0
        for position, member_id in enumerate(readers[:count]):
            after = first + least + (position < extra)
            assigned[member_id].update((topic_id, partition) for partition in range(first, after))
            first = after
    return {member_id: frozenset(topic_partitions) for member_id, topic_partitions in assigned.items()}


def _place(member: Subscriber) -> tuple[bool, str]:
    if member.instance_id is not None:
        return False, member.instance_id
    return True, member.id
