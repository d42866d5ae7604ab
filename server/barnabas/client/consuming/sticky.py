"""The sticky assignor: even shares first, then as few moves as that allows. Pure.

The rule: a member loses a partition only if it has more than its share, may not have the partition, or another
claims it with a newer generation. Two that claim it in the same generation both lose it, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barnabas.client.consuming.members import Assignment, Member
from barnabas.client.values import TopicPartition


def assign(members: Sequence[Member], counts: Mapping[str, int]) -> Assignment:
    """Return the partitions of each member, by member id."""
    ordered = sorted(members, key=lambda member: member.id)
    subscribers = {
        topic: [member.id for member in ordered if topic in member.topics] for topic in sorted(counts)
    }
    everything = [
        TopicPartition(topic, number)
        for topic in sorted(counts)
        if subscribers[topic]
        for number in range(counts[topic])
    ]
    assignment = _kept(ordered, counts)
    if is_alike := len({member.topics.intersection(counts) for member in ordered}) == 1:
        _trim(assignment, len(everything))
    taken = {place for places in assignment.values() for place in places}
    free = [place for place in everything if place not in taken]
    # partitions with few candidates first: others find room elsewhere
    for place in sorted(free, key=lambda place: len(subscribers[place.topic])):
        least = min(subscribers[place.topic], key=lambda member_id: (len(assignment[member_id]), member_id))
        assignment[least].append(place)
    if not is_alike:
        _balance(assignment, subscribers)
    return {member_id: sorted(places) for member_id, places in assignment.items()}


def claims_of(members: Sequence[Member], counts: Mapping[str, int]) -> dict[TopicPartition, list[str]]:
    """Return the members that have each partition, by the newest generation that is heard of."""
    claims: dict[TopicPartition, tuple[int, list[str]]] = {}
    for member in members:
        for place in member.owned:
            if place.topic not in member.topics or place.partition >= counts.get(place.topic, 0):
                continue
            generation, claimants = claims.get(place, (member.generation, []))
            if member.generation > generation:
                claims[place] = member.generation, [member.id]
            elif member.generation == generation:
                claims[place] = generation, [*claimants, member.id]
    return {place: claimants for place, (_, claimants) in claims.items()}


def _kept(members: Sequence[Member], counts: Mapping[str, int]) -> Assignment:
    """Return the partitions that members may keep."""
    assignment: Assignment = {member.id: [] for member in members}
    for place, claimants in sorted(claims_of(members, counts).items()):
        if len(claimants) == 1:
            assignment[claimants[0]].append(place)
    return assignment


def _trim(assignment: Assignment, count: int) -> None:
    """Take partitions above its share from each member, where all members read the same topics."""
    share, more = divmod(count, len(assignment))
    # members with the most keep the larger shares: that moves the least
    for member_id in sorted(assignment, key=lambda member: (-len(assignment[member]), member)):
        limit = share + (more > 0)
        if len(assignment[member_id]) >= limit and more > 0:
            more -= 1
        del assignment[member_id][limit:]


def _balance(assignment: Assignment, subscribers: Mapping[str, list[str]]) -> None:
    """Move partitions while one member has at least two more than another that may have them too.

    That ends: each move decreases the sum of the squares of all shares.
    """
    is_moving = True
    while is_moving:
        is_moving = False
        for giver in sorted(assignment, key=lambda member: (-len(assignment[member]), member)):
            for place in sorted(assignment[giver]):
                taker = min(subscribers[place.topic], key=lambda member: (len(assignment[member]), member))
                if len(assignment[giver]) > len(assignment[taker]) + 1:
                    assignment[giver].remove(place)
                    assignment[taker].append(place)
                    is_moving = True
