"""Readiness of accepted sockets for reading, without a turn of the event loop.

The rule: Trio's own set of sockets reports only at the end of a turn. This one contains each socket for as long as it is
open, level-triggered, so one system call of a microsecond shows whether one socket, and no other, is ready.
"""

from __future__ import annotations

import time

from barnabas.system.readiness import READABLE, new_readable_set


class ReadySockets:
    """A set of all accepted sockets. Closing a socket removes it."""

    def __init__(self) -> None:
        self._set = new_readable_set()

    def add(self, descriptor: int) -> None:
        """Watch a socket until it is closed. Raises OSError."""
        self._set.register(descriptor, READABLE)

    def is_only_one(self, descriptor: int, seconds: float) -> bool:
        """Return whether this socket, and no other, is readable; polls for up to `seconds` while none is."""
        poll = self._set.poll
        ready = poll(0, 2)
        if not ready and seconds > 0.0:
            clock = time.perf_counter
            ends = clock() + seconds
            while not ready and clock() < ends:
                ready = poll(0, 2)
        return len(ready) == 1 and ready[0][0] == descriptor
