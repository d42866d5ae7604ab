"""Choice of the replica that a consumer should read from (KIP-392), as Kafka's RackAwareReplicaSelector makes it. Pure.

The rule: a replica in the consumer's rack, the leader if it is there; of several the one that has most. Only replicas that
are in sync and have the consumer's offset are asked of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple


class ReadReplica(NamedTuple):
    """A follower that has what a consumer asks for; `caught_up_ms` is when it last had everything."""

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
