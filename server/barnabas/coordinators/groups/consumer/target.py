"""Computation of the target assignment of a consumer group, from an immutable input. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.cluster.metadata.image import ClusterImage
from barnabas.coordinators.groups.assignors import ASSIGNORS
from barnabas.coordinators.groups.assignors.subscriber import Subscriber
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.consumer.member import ConsumerMember
from barnabas.coordinators.groups.topics import topic_ids
from barnabas.wire.topic_partitions import NO_PARTITIONS, TopicIdPartitions

COMPUTED_ASIDE_FROM = 2_000
"""From this number of members plus partitions on (some milliseconds), an assignment is computed outside the event."""


@dataclass(frozen=True, slots=True)
class TargetNeeded:
    """Effect of an event: an assignment to compute for an epoch of a group, from an immutable input."""

    group_id: str
    epoch: int
    members: tuple[ConsumerMember, ...]
    group: ConsumerGroup
    """The group at that time: its expressions, and its members' last target."""
    image: ClusterImage
    partition_counts: Mapping[bytes, int]

    @property
    def is_large(self) -> bool:
        """True if the computation is too long for a turn of the event loop."""
        return len(self.members) + sum(self.partition_counts.values()) >= COMPUTED_ASIDE_FROM

    def compute(self) -> dict[str, TopicIdPartitions]:
        """Return the partitions by member id."""
        group, ids = self.group, _IdsOf(self.image)
        subscribers = [
            Subscriber(
                member.id,
                ids[group.topics_of(member)],
                member.instance_id,
                group.target.get(member.id, NO_PARTITIONS),
            )
            for member in self.members
        ]
        return ASSIGNORS[group.assignor_name(self.members)](subscribers, self.partition_counts)


class _IdsOf(dict[frozenset[str], frozenset[bytes]]):
    """Ids of topics by their names, cached: most members subscribe to the same names."""

    def __init__(self, image: ClusterImage) -> None:
        super().__init__()
        self._image = image

    def __missing__(self, names: frozenset[str]) -> frozenset[bytes]:
        self[names] = ids = topic_ids(names, self._image)
        return ids
