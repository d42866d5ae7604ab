"""Choice of the replica for a consumer (KIP-392), as by Kafka's RackAwareReplicaSelector. Pure.

The rule: a replica in the consumer's rack is chosen: the leader if it is in that rack, else the most advanced. The caller
passes only in-sync replicas that have the consumer's offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple


class ReadReplica(NamedTuple):
    """A follower with the consumer's records; `caught_up_ms` is when it last had all records."""

    end_offset: int
    caught_up_ms: int
    broker_id: int


def preferred_replica(
    rack: str, leader_id: int, followers: Iterable[ReadReplica], rack_of: Callable[[int], str | None]
) -> int | None:
    """Return the broker that a consumer in `rack` should read from; None for the leader itself."""
    if not rack or rack_of(leader_id) == rack:
        return None
    near = [follower for follower in followers if rack_of(follower.broker_id) == rack]
    return max(near).broker_id if near else None
