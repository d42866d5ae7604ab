"""Setup of the interpreter and the C library below it, for a process that runs brokers."""

from __future__ import annotations

import gc
import sys

from barnabas.system.memory import set_up_heap

SWITCH_SECONDS = 0.0005
"""Time that another thread may hold the interpreter while the event loop waits for it."""
MAPPED_BYTES = 2 << 20
"""Size from which on the C library maps memory separately, which then grows without being copied."""
KEPT_BYTES = 16 << 20
"""Bytes of free memory that are kept at the end of the heap."""


def prepare() -> None:
    """Set up the interpreter; call it before the first thread begins."""
    sys.setswitchinterval(SWITCH_SECONDS)
    set_up_heap(MAPPED_BYTES, KEPT_BYTES)


def settle_garbage_collector() -> None:
    """Switch the collector on for new objects only: to find the 2,000 garbage objects of the start would take 12 ms."""
    gc.freeze()
    gc.enable()
    # Young objects are looked at in small portions, of some milliseconds each, and old ones as seldom as before.
    gc.set_threshold(5_000, 2, 3_000)
