"""How a process that runs brokers sets up the interpreter and the C library below it."""

from __future__ import annotations

import ctypes
import gc
import sys
from contextlib import suppress

SWITCH_SECONDS = 0.0005
"""How long another thread may keep the interpreter while the event loop wants it."""
_M_ARENA_MAX = -8


def prepare() -> None:
    """Set up the interpreter; call it before the first thread begins."""
    sys.setswitchinterval(SWITCH_SECONDS)
    _have_one_heap()


def settle_garbage_collector() -> None:
    """Switch it on for what comes: what start-up made stays, but for some 2,000 objects, and finding those takes 12 ms."""
    gc.freeze()
    gc.enable()
    # Young objects are looked at in small portions, of some milliseconds each, and old ones as seldom as before.
    gc.set_threshold(5_000, 2, 3_000)


def _have_one_heap() -> None:
    """Have all threads allocate from one heap; without effect where the C library is not glibc.

    By default each thread has a heap of its own, and what is free in one of them is of no use to the others.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
