"""How fast the cleaner may read and write (log.cleaner.io.max.bytes.per.second).

The rule: one limit for all threads that clean. Whoever has used more than its share sleeps before it goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

NAP_SECONDS_MAX = 0.1


class RateLimit:
    """A throttle for `LogCleaner`, to be shared by its threads.

    `bytes_per_second` may be changed at any time; if it is not positive there is no limit.
    """

    def __init__(
        self,
        bytes_per_second: float,
        check_cancelled: Callable[[], object],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`check_cancelled` raises when the thread that calls it should stop."""
        self.bytes_per_second = bytes_per_second
        self._check_cancelled = check_cancelled
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._paid_until = clock()

    def __call__(self, count: int) -> None:
        """So many bytes were read or written. Raises what `check_cancelled` raises."""
        self._check_cancelled()
        if self.bytes_per_second <= 0:
            return
        with self._lock:
            self._paid_until = max(self._paid_until, self._clock()) + count / self.bytes_per_second
            until = self._paid_until
        while (seconds := until - self._clock()) > 0:
            self._sleep(min(seconds, NAP_SECONDS_MAX))
            self._check_cancelled()
