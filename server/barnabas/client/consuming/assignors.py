"""Assignors of the classic protocol, which assign partitions to the members of a group. Pure.

The rule: members and topics are processed in the order of their names, so that all leaders of a group decide alike. Range
and roundrobin assign like Kafka's, without regard to racks; the sticky ones retain as much as possible (`sticky`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle
from typing import NamedTuple

from barnabas.client.consuming import sticky
from barnabas.client.consuming.members import Assignment, Member
from barnabas.client.values import TopicPartition

Assign = Callable[[Sequence[Member], Mapping[str, int]], Assignment]
"""Assigns the partitions of topics, given how many each has."""


class Assignor(NamedTuple):
    """A method of assignment, and its use of the protocol."""

    assign: Assign
    java_class: str
    is_cooperative: bool = False
    """True if members keep their partitions while the group rebalances (KIP-429)."""
    has_memory: bool = False
    """True if members of an eager group must report their former partitions."""


def assign_range(members: Sequence[Member], counts: Mapping[str, int]) -> Assignment:
    """Assign each member of a topic a range of its partitions, equal for equal topics."""
    assignment: Assignment = {member.id: [] for member in members}
    for topic in sorted(counts):
        subscribers = sorted(
            (member for member in members if topic in member.topics), key=lambda member: member.order
        )
        if not subscribers:
            continue
        size, more = divmod(counts[topic], len(subscribers))
        start = 0
        for index, member in enumerate(subscribers):
            end = start + size + (index < more)
            assignment[member.id] += [TopicPartition(topic, number) for number in range(start, end)]
            start = end
    return assignment


def assign_round_robin(members: Sequence[Member], counts: Mapping[str, int]) -> Assignment:
    """Assign the partitions of all topics to the members in turn."""
    assignment: Assignment = {member.id: [] for member in members}
    ring = cycle(sorted(members, key=lambda member: member.order))
    for topic in sorted(counts):
        if not any(topic in member.topics for member in members):
            continue
        for number in range(counts[topic]):
            member = next(member for member in ring if topic in member.topics)
            assignment[member.id].append(TopicPartition(topic, number))
    return assignment


def assign_sticky(members: Sequence[Member], counts: Mapping[str, int]) -> Assignment:
    """Share out evenly; each partition stays with its member wherever possible."""
    return sticky.assign(members, counts)


def assign_cooperative_sticky(members: Sequence[Member], counts: Mapping[str, int]) -> Assignment:
    """Share out as `assign_sticky`; a partition that moves is unassigned until its former member has revoked it."""
    claims = sticky.claims_of(members, counts)
    return {
        member_id: [place for place in places if set(claims.get(place, ())) <= {member_id}]
        for member_id, places in assign_sticky(members, counts).items()
    }


_JAVA = "org.apache.kafka.clients.consumer."
ASSIGNORS = {
    "range": Assignor(assign_range, f"{_JAVA}RangeAssignor"),
    "roundrobin": Assignor(assign_round_robin, f"{_JAVA}RoundRobinAssignor"),
    "sticky": Assignor(assign_sticky, f"{_JAVA}StickyAssignor", has_memory=True),
    "cooperative-sticky": Assignor(
        assign_cooperative_sticky, f"{_JAVA}CooperativeStickyAssignor", is_cooperative=True
    ),
}
"""The assignors by the names that groups know them by."""


def is_cooperative(names: Iterable[str]) -> bool:
    """Return whether members with these assignors keep their partitions while the group rebalances."""
    return all(ASSIGNORS[name].is_cooperative for name in names)
