"""Choice of brokers for the replicas of new partitions. Pure.

The rule, which is Apache Kafka's: first replicas are assigned to the brokers in turn from a random start; further replicas
follow at a distance that grows by one with each round, so that the partitions of one leader have their followers on all
brokers. With racks, brokers of different racks alternate, and a rack gets a second replica only when each has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest

Racks = Mapping[int, str | None]
"""Brokers with their racks."""


class RacksMissingError(ValueError):
    """Some brokers have a rack, and some do not."""


def assign(
    racks: Racks, partitions: int, replication_factor: int, *, start: int, shift: int, first: int = 0
) -> list[tuple[int, ...]]:
    """Return the replicas of `partitions` new partitions, numbered from `first`; not more replicas than brokers.

    `start` is the index of the broker for the first replica of partition 0, `shift` the distance of its followers: both
    random for a new topic. Raises RacksMissingError.
    """
    brokers = _in_order(racks)
    rack_count = len(set(racks.values()) - {None})
    return [
        _replicas(
            brokers,
            racks,
            rack_count,
            replication_factor,
            (index + start) % len(brokers),
            shift + index // len(brokers) - first // len(brokers) + (first > 0 and first % len(brokers) == 0),
        )
        for index in range(first, first + partitions)
    ]


def _in_order(racks: Racks) -> list[int]:
    """Return the brokers by id; with racks one broker of each rack in turn, while the rack has any left."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        rack = racks[broker]
        if rack is not None:
            by_rack.setdefault(rack, []).append(broker)
    if not by_rack:
        return sorted(racks)
    if sum(map(len, by_rack.values())) < len(racks):
        raise RacksMissingError(
            f"brokers {sorted(broker for broker, rack in racks.items() if rack is None)} have no rack, and others have one"
        )
    turns = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for turn in turns for broker in turn if broker is not None]


def _replicas(
    brokers: list[int], racks: Racks, rack_count: int, replication_factor: int, leader: int, shift: int
) -> tuple[int, ...]:
    chosen = [brokers[leader]]
    seen = {racks[brokers[leader]]}
    shift *= max(rack_count, 1)
    step = 0
    while len(chosen) < replication_factor:
        distance = 1 + (shift + step) % (len(brokers) - 1)
        step += 1
        broker = brokers[(leader + distance) % len(brokers)]
        rack = racks[broker]
        if broker in chosen or (rack_count and rack in seen and len(seen) < rack_count):
            continue
        chosen.append(broker)
        seen.add(rack)
    return tuple(chosen)
