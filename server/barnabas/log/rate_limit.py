"""How fast work in the background may read and write: compaction, moves between log dirs.

The rule: one limit for all threads that do the same kind of work. Whoever has used more than its share sleeps before it
goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.log.workers import Workers

NAP_SECONDS_MAX = 0.1


class RateLimit:
    """To be shared by threads. `bytes_per_second` may be changed at any time; None or not positive: no limit."""

    def __init__(self, bytes_per_second: float | None, workers: Workers) -> None:
        self.bytes_per_second = bytes_per_second
        self._clock = workers.monotonic
        self._sleep = workers.sleep
        self._lock = threading.Lock()
        self._paid_until = workers.monotonic()

    def use(self, count: int, is_cancelled: Callable[[], bool]) -> None:
        """So many bytes were read or written. Sleeps as long as that is too fast, unless it is cancelled.

        Raises what `is_cancelled` raises.
        """
        if is_cancelled() or not self.bytes_per_second or self.bytes_per_second <= 0:
            return
        with self._lock:
            self._paid_until = max(self._paid_until, self._clock()) + count / self.bytes_per_second
            until = self._paid_until
        while (seconds := until - self._clock()) > 0:
            self._sleep(min(seconds, NAP_SECONDS_MAX))
            if is_cancelled():
                return
