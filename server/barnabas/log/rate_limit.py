"""Rate limit of reads and writes in the background: compaction, moves between log dirs.

The rule: all threads of one kind of work share one limit. A thread that has exceeded it sleeps before it continues; the
others pause now and then. A thread that writes small batches releases the interpreter for each, but too briefly for the
event loop to wake up and take it: without pauses the loop waits up to 47 ms.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.log.workers import Workers

NAP_SECONDS_MAX = 0.1
BUSY_SECONDS_MAX = 0.0005
PAUSE_SECONDS = 1e-6
"""With the system's overhead some 55 us: enough for another thread to wake up."""


class _Pauses(threading.local):
    """Time of this thread's last pause, or of its start."""

    last: float | None = None


class RateLimit:
    """A limit to be shared by threads. `bytes_per_second` may be changed at any time; None or not positive: no limit."""

    def __init__(self, bytes_per_second: float | None, workers: Workers) -> None:
        self.bytes_per_second = bytes_per_second
        self._clock = workers.monotonic
        self._sleep = workers.sleep
        self._lock = threading.Lock()
        self._pauses = _Pauses()
        self._paid_until = workers.monotonic()

    def use(self, count: int, is_cancelled: Callable[[], bool]) -> None:
        """Count bytes that were read or written. Sleeps as long as that is too fast, unless cancelled.

        Raises the errors of `is_cancelled`.
        """
        if is_cancelled():
            return
        seconds = self._pay(count)
        if seconds < PAUSE_SECONDS:
            self._pause()
            return
        until = self._clock() + seconds
        while seconds > 0:
            self._sleep(min(seconds, NAP_SECONDS_MAX))
            if is_cancelled():
                return
            seconds = until - self._clock()

    def _pay(self, count: int) -> float:
        """Return the seconds that a thread must sleep after it has used this many bytes."""
        rate = self.bytes_per_second
        if not rate or rate <= 0:
            return 0.0
        with self._lock:
            now = self._clock()
            self._paid_until = max(self._paid_until, now) + count / rate
            return self._paid_until - now

    def _pause(self) -> None:
        """Release the interpreter to another thread, if this one has been busy for long."""
        pauses, now = self._pauses, self._clock()
        if pauses.last is None:
            pauses.last = now
        elif now - pauses.last >= BUSY_SECONDS_MAX:
            self._sleep(PAUSE_SECONDS)
            pauses.last = self._clock()
