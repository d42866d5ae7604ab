"""Assignors, which spread partitions over the members of a group. Pure.

The rule: an assignor sees members and partition counts, and gives every partition of every subscribed topic to exactly
one member that is subscribed to it. It does not decide when a member may take over a partition: that is reconciliation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from barnabas.coordinators.groups.assignors.range import assign_ranges
from barnabas.coordinators.groups.assignors.subscriber import Subscriber
from barnabas.coordinators.groups.assignors.uniform import assign_uniformly
from barnabas.wire.topic_partitions import TopicIdPartitions

Assignor = Callable[[Sequence[Subscriber], Mapping[bytes, int]], dict[str, TopicIdPartitions]]
"""Members and the number of partitions by topic id; returns the partitions by member id, with every member in it."""

ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniformly, "range": assign_ranges}
