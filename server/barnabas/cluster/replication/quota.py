"""Rate of replication, and whether it exceeds the quota (KIP-73). Pure.

The rule: a rate is the count of the last samples, divided by the time since the oldest of them began, as in Kafka. Sent
bytes count even if they exceed the quota: it is then exceeded until time has passed.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence

EVERY_REPLICA = "*"
_REPLICA = re.compile(r"0*(\d{1,10}):0*(\d{1,10})", re.ASCII)
"""More digits, which may be more than `int` takes, are of no partition and no broker."""


class Rate:
    """Bytes in a second, over `samples` of `sample_ms`; `now_ms` is a monotonic time."""

    def __init__(self, *, samples: int, sample_ms: int) -> None:
        self._samples = samples
        self._sample_ms = sample_ms
        self._counted: deque[list[int]] = deque()  # [start, count]

    def count(self, size: int, now_ms: int) -> None:
        """Add bytes that were sent or received."""
        self._forget(now_ms)
        if not self._counted or now_ms - self._counted[-1][0] >= self._sample_ms:
            self._counted.append([now_ms, 0])
        self._counted[-1][1] += size

    def per_second(self, now_ms: int) -> float:
        """Return the rate; at least one whole sample period is assumed to have passed."""
        self._forget(now_ms)
        if not self._counted:
            return 0.0
        elapsed_ms = max(now_ms - self._counted[0][0], self._sample_ms)
        return sum(size for _, size in self._counted) * 1000 / elapsed_ms

    def _forget(self, now_ms: int) -> None:
        while self._counted and now_ms - self._counted[0][0] >= self._samples * self._sample_ms:
            self._counted.popleft()


def throttled_partitions(replicas: Sequence[str], broker_id: int) -> frozenset[int] | None:
    """Return the partitions of a topic that are throttled on a broker, None for all of them.

    `replicas` is `leader.replication.throttled.replicas` or the follower's: items like `partition:broker`, or `*`.
    """
    if EVERY_REPLICA in replicas:
        return None
    partitions = set()
    for item in replicas:
        named = _REPLICA.fullmatch(item.strip())
        if named is not None and int(named[2]) == broker_id:
            partitions.add(int(named[1]))
    return frozenset(partitions)
