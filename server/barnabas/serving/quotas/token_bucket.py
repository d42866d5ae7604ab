"""The token bucket of KIP-599: a burst of many windows is allowed, and must be paid for before the next burst. Pure."""

from __future__ import annotations

from math import floor, inf

from barnabas.serving.quotas.rate import THROTTLE_MS_MAX


class TokenBucket:
    """Tokens that events use up, and that are refilled at the rate of a limit, up to a burst of `burst_s` seconds.

    A new bucket is full. Limits are in tokens per second, and may differ from call to call; times are in ms. An event
    that begins while the bucket is not overdrawn may overdraw it: `throttle_ms` is the time until it is refilled.
    """

    __slots__ = ("_burst_s", "_limit", "_tokens", "_updated_ms")

    def __init__(self, burst_s: float, now_ms: int) -> None:
        self._burst_s = burst_s
        self._limit = 0.0
        self._tokens = inf
        self._updated_ms = now_ms

    def tokens(self, limit: float, now_ms: int) -> float:
        """Return how many tokens there are, below 0 if the bucket is overdrawn."""
        gained = limit * ((now_ms - self._updated_ms) / 1000.0) if now_ms > self._updated_ms else 0.0
        self._tokens = min(limit * self._burst_s, self._tokens + gained)
        self._updated_ms = now_ms
        self._limit = limit
        return self._tokens

    def take(self, count: float, limit: float, now_ms: int) -> None:
        """Use up tokens, even more than there are."""
        self._tokens = self.tokens(limit, now_ms) - count

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return the time in ms until the bucket is no longer overdrawn; 0 if it is not."""
        tokens = self.tokens(limit, now_ms)
        return 0 if tokens >= 0 else min(floor(-tokens / limit * 1000.0 + 0.5), THROTTLE_MS_MAX)

    def is_forgettable(self, now_ms: int) -> bool:
        """Return whether a new bucket would be equal: this bucket is full."""
        return self.tokens(self._limit, now_ms) >= self._limit * self._burst_s
