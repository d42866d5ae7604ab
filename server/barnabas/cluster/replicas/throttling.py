"""Limits of replication, so that moving replicas leaves bandwidth for clients (KIP-73).

The rule: only replicas out of sync ever wait; the traffic of in-sync replicas counts as well. A waiting partition is
omitted from a fetch, or answered without records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from barnabas.cluster.replication.quota import Rate, throttled_partitions

if TYPE_CHECKING:
    from barnabas.cluster.replicas.replica import Replica
    from barnabas.log.config import LogConfig


class ReplicationThrottle:
    """Limit of bytes that this broker sends as a leader, or fetches as a follower, for throttled replicas.

    One for each direction.
    """

    def __init__(
        self,
        broker_id: int,
        replicas_of: Callable[[LogConfig], Sequence[str]],
        rate_max: Callable[[], int | None],
        *,
        samples: int,
        sample_ms: int,
        clock_ms: Callable[[], int],
    ) -> None:
        """`replicas_of` is the topic's setting that names throttled replicas.

        `rate_max` is in bytes in a second, None for no limit; `clock_ms` a monotonic time.
        """
        self._broker_id = broker_id
        self._replicas_of = replicas_of
        self._rate_max = rate_max
        self._clock_ms = clock_ms
        self._rate = Rate(samples=samples, sample_ms=sample_ms)
        self._known: dict[str, tuple[Sequence[str], frozenset[int] | None]] = {}

    def holds(self, replica: Replica) -> bool:
        """Return whether records of a replica must wait, unless the follower that fetches them is in sync."""
        if not self._is_throttled(replica):
            return False
        rate_max = self._rate_max()
        return rate_max is not None and self._rate.per_second(self._clock_ms()) > rate_max

    def used(self, replica: Replica, size: int) -> None:
        """Count sent or fetched bytes."""
        if self._is_throttled(replica):
            self._rate.count(size, self._clock_ms())

    def _is_throttled(self, replica: Replica) -> bool:
        names = self._replicas_of(replica.log.config)
        if not names:
            return False
        throttled = self._known.get(replica.topic)
        if throttled is None or throttled[0] is not names:
            throttled = self._known[replica.topic] = names, throttled_partitions(names, self._broker_id)
        return throttled[1] is None or replica.index in throttled[1]
