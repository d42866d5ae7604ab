"""Kafka's rate over samples, and the time to wait until it is within a limit. Pure.

The rule: samples, windows and throttle times are Kafka's to the millisecond (`SampledStat`, `Rate`, `QuotaUtils`), so that
clients get the same throughput; only the sum is kept, not added up for each value.
"""

from __future__ import annotations

from math import floor

THROTTLE_MS_MAX = 2**31 - 1
"""The longest throttle time that a response can tell, 24 days."""


class Rate:
    """Amount recorded per second, over `samples` samples of `window_ms`; times are of a monotonic clock.

    A sample covers `window_ms` from its first value on. A rate without values for `samples` windows may be dropped.
    """

    __slots__ = (
        "_current",
        "_expires_ms",
        "_last_ms",
        "_oldest_ms",
        "_others",
        "_samples",
        "_starts_ms",
        "_values",
        "_window_ms",
    )

    def __init__(self, samples: int, window_ms: int, now_ms: int) -> None:
        self._samples = samples
        self._window_ms = window_ms
        self._current = 0
        # One more than `samples`: one overlaps the beginning of the time that is looked at.
        self._starts_ms, self._last_ms, self._values = [now_ms], [now_ms], [0.0]
        self._others = 0.0  # the sum of all values but that of the current sample
        self._oldest_ms = now_ms
        self._expires_ms = now_ms + samples * window_ms  # no sample expires before

    def record(self, value: float, now_ms: int) -> None:
        """Add a value; a negative one cancels a recorded value that did not happen."""
        if now_ms - self._starts_ms[self._current] >= self._window_ms:
            self._begin_sample(now_ms)
        self._values[self._current] += value
        self._last_ms[self._current] = now_ms

    def _begin_sample(self, now_ms: int) -> None:
        self._current = (self._current + 1) % (self._samples + 1)
        if self._current == len(self._values):
            self._starts_ms.append(now_ms)
            self._last_ms.append(now_ms)
            self._values.append(0.0)
        else:
            self._reset(self._current, now_ms)
        self._sum_up()

    def _reset(self, index: int, now_ms: int) -> None:
        self._starts_ms[index] = self._last_ms[index] = now_ms
        self._values[index] = 0.0

    def _sum_up(self) -> None:
        self._others = sum(self._values) - self._values[self._current]
        self._oldest_ms = min(self._starts_ms)
        self._expires_ms = min(self._last_ms) + self._samples * self._window_ms

    def _forget_old(self, now_ms: int) -> None:
        for index, last_ms in enumerate(self._last_ms):
            if now_ms - last_ms >= self._samples * self._window_ms:
                self._reset(index, now_ms)
        self._sum_up()

    def window_ms(self, now_ms: int) -> int:
        """Return the time that the rate covers, in ms: the existing samples, and at least all but one of a full set."""
        if now_ms >= self._expires_ms:
            self._forget_old(now_ms)
        elapsed_ms = now_ms - self._oldest_ms
        missing = self._samples - 1 - elapsed_ms // self._window_ms
        return max(elapsed_ms + missing * self._window_ms if missing > 0 else elapsed_ms, 1)

    def per_second(self, now_ms: int) -> float:
        """Return how much was recorded in a second."""
        window_ms = self.window_ms(now_ms)
        return (self._others + self._values[self._current]) * 1000.0 / window_ms

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return for how long nothing must be recorded until the rate is at the limit, in ms; 0 if it is not above."""
        window_ms = self.window_ms(now_ms)
        rate = (self._others + self._values[self._current]) * 1000.0 / window_ms
        if rate <= limit:
            return 0
        return min(floor((rate - limit) / limit * window_ms + 0.5), THROTTLE_MS_MAX)

    def is_forgettable(self, now_ms: int) -> bool:
        """Return whether a new rate would be equal: it is 0."""
        return self.per_second(now_ms) == 0
