"""A clock for a whole broker that can be advanced, stopped and accelerated: all of its deadlines and its wall clock.

The rule: it is monotonic. Clients of this broker use real time: only the broker's time is advanced.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio

SECONDS_MAX = 100 * 365 * 86400.0
"""The largest single step."""
FACTOR_MAX = 100_000.0


class VirtualClock(trio.abc.Clock):
    """Trio's clock, the monotonic clock and the wall clock of a broker, as one.

    It runs like the system's until it is changed. Pass it to `trio.run(clock=...)`.
    """

    def __init__(
        self,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._real = monotonic
        self._factor = 1.0
        self._is_frozen = False
        self._ends = 0
        self._real_s = self._virtual_s = monotonic()
        self._wall_ms = wall_ns() / 1e6 - self._virtual_s * 1000
        self._begun_s = self._virtual_s

    # --- for Trio -----------------------------------------------------------------------------------------------

    def start_clock(self) -> None:
        """Begin: it runs already."""

    def current_time(self) -> float:
        """Return the time in seconds."""
        speed = self._speed
        return self._virtual_s + (self._real() - self._real_s) * speed if speed else self._virtual_s

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return for how many real seconds to sleep until a deadline."""
        left_s = deadline - self.current_time()
        if left_s <= 0:
            return 0.0
        speed = self._speed
        return left_s / speed if speed else math.inf

    @property
    def _speed(self) -> float:
        """Speed of the clock, 0 while it stands still."""
        speed = 0.0 if self._is_frozen else self._factor
        return max(speed, 1.0) if self._ends else speed

    # --- for the broker -----------------------------------------------------------------------------------------

    def monotonic(self) -> float:
        """Return the same time, for measuring."""
        return self.current_time()

    def wall_clock_ms(self) -> int:
        """Return milliseconds since 1970."""
        return int(self._wall_ms + self.current_time() * 1000)

    @contextmanager
    def passing(self) -> Iterator[None]:
        """Make time pass at least as fast as real time, even if the clock stands still: for the end of a test."""
        self._settle()
        self._ends += 1
        try:
            yield
        finally:
            self._settle()
            self._ends -= 1

    # --- for tests ----------------------------------------------------------------------------------------------

    @property
    def is_frozen(self) -> bool:
        """True while the clock stands still."""
        return self._is_frozen

    @property
    def factor(self) -> float:
        """Speed of the clock, as a multiple of real time, when it does not stand still."""
        return self._factor

    @property
    def ahead_ms(self) -> float:
        """Milliseconds that the clock is ahead of the real time since it began; behind, where they are negative."""
        return (self.current_time() - self._begun_s - (self._real() - self._begun_s)) * 1000

    def advance(self, seconds: float) -> None:
        """Advance the clock immediately. Raises ValueError for a time that is not from 0 to SECONDS_MAX."""
        if not 0 <= seconds <= SECONDS_MAX:
            raise ValueError(f"{seconds} is not a number of seconds from 0 to {SECONDS_MAX:.0f}")
        self._settle()
        self._virtual_s += seconds

    def freeze(self) -> None:
        """Stand still until `resume`; `advance` moves it all the same."""
        self._settle()
        self._is_frozen = True

    def resume(self) -> None:
        """Run again."""
        self._settle()
        self._is_frozen = False

    def let_go(self) -> None:
        """Run as the system's clock does, so that all tasks that use it can end."""
        self.resume()
        self.run_at(1.0)

    def run_at(self, factor: float) -> None:
        """Run `factor` times as fast as real time. Raises ValueError."""
        if not 0 < factor <= FACTOR_MAX:
            raise ValueError(f"{factor} is not a factor from above 0 to {FACTOR_MAX:.0f}")
        self._settle()
        self._factor = factor

    def _settle(self) -> None:
        """Restart counting at the present time."""
        self._virtual_s, self._real_s = self.current_time(), self._real()
