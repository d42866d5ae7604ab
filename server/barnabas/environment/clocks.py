"""Clocks in milliseconds. Compiled: each request reads a clock several times."""

from __future__ import annotations

import time
from collections.abc import Callable


def wall_clock_ms() -> int:
    """Return milliseconds since 1970."""
    return int(time.time() * 1000)  # faster than nanoseconds, whose division is one of long numbers


def in_milliseconds(clock: Callable[[], float]) -> Callable[[], int]:
    """Return a clock of whole milliseconds, from a clock of seconds."""
    return lambda: int(clock() * 1000)
