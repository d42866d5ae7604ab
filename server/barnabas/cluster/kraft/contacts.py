"""Choice of the controller to ask next, and of the time. Pure.

The rule: the leader is asked while it answers; otherwise the bootstrap controllers in turn, with a longer pause after
each failure. A leader that gives no usable answer for the fetch timeout is doubted: another node may have a newer
leader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from barnabas.cluster.kraft.decisions import Taken
from barnabas.cluster.kraft.replica_values import Leader
from barnabas.config.quorum import Address

BACKOFF_MS_MAX: Final = 1_000


class Contacts:
    """Controllers to ask. Lifecycle: `choose` and wait until `ready_at_ms`, ask, then `answered` or `failed`, and so on.

    Times are in ms of any clock that only rises.
    """

    def __init__(
        self,
        bootstrap: Sequence[Address],
        *,
        first: int = 0,
        backoff_ms: int = 20,
        fetch_timeout_ms: int = 2_000,
    ) -> None:
        """`bootstrap` is asked in turn from index `first` on; a random `first` spreads observers."""
        self._bootstrap = tuple(bootstrap)
        self._turn = first
        self._backoff_ms = backoff_ms
        self._fetch_timeout_ms = fetch_timeout_ms
        self._trusts_leader = True
        self._failures = 0
        self._useful_at_ms: int | None = None
        self.ready_at_ms = 0

    def choose(self, leader: Leader, now_ms: int) -> Address:
        """Return the address to ask next."""
        if self._useful_at_ms is None:
            self._useful_at_ms = now_ms
        if self._trusts_leader and now_ms - self._useful_at_ms > self._fetch_timeout_ms:
            self._doubt(now_ms)
        if self._trusts_leader and leader.host:
            return leader.host, leader.port
        return self._bootstrap[self._turn % len(self._bootstrap)]

    def answered(self, taken: Taken, now_ms: int) -> None:
        """Note an answer: whether it was usable, and when to send the next request."""
        if not taken.asks_elsewhere and not taken.must_wait:
            self._failures = 0
            self._useful_at_ms = now_ms
            self._trusts_leader = True
            self.ready_at_ms = now_ms
            return
        if taken.asks_elsewhere:
            self._turn += 1
            self._trusts_leader = True
        self.ready_at_ms = now_ms + (self._pause_ms() if taken.must_wait else 0)

    def elected(self, now_ms: int) -> None:
        """Note a new leader, which is asked immediately."""
        self._failures = 0
        self._useful_at_ms = self.ready_at_ms = now_ms
        self._trusts_leader = True

    def failed(self, now_ms: int) -> None:
        """Note a failure: the node was not reached, timed out, or gave an invalid answer."""
        self._doubt(now_ms)
        self.ready_at_ms = now_ms + self._pause_ms()

    def _doubt(self, now_ms: int) -> None:
        self._trusts_leader = False
        self._turn += 1
        self._useful_at_ms = now_ms

    def _pause_ms(self) -> int:
        rounds = self._failures // len(self._bootstrap)
        pause_ms = min(self._backoff_ms << min(rounds, 10), BACKOFF_MS_MAX)
        self._failures += 1
        return pause_ms
