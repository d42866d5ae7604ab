"""Setup of the interpreter and the C library below it, for a process that runs brokers."""

from __future__ import annotations

import ctypes
import gc
import sys
from contextlib import suppress

SWITCH_SECONDS = 0.0005
"""Time that another thread may keep the interpreter while the event loop wants it."""
MAPPED_BYTES = 2 << 20
"""From this size on the C library maps memory by itself, which then grows without being copied."""
KEPT_BYTES = 16 << 20
"""Bytes of free memory at the end of the heap that are kept for what comes next."""
_M_ARENA_MAX, _M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -8, -3, -1


def prepare() -> None:
    """Set up the interpreter; call it before the first thread begins."""
    sys.setswitchinterval(SWITCH_SECONDS)
    _set_up_heap()


def settle_garbage_collector() -> None:
    """Switch it on for what comes: what start-up made stays, but for some 2,000 objects, and finding those takes 12 ms."""
    gc.freeze()
    gc.enable()
    # Young objects are looked at in small portions, of some milliseconds each, and old ones as seldom as before.
    gc.set_threshold(5_000, 2, 3_000)


def give_back_memory() -> None:
    """Return what is free in the middle of the heap to the operating system; best in a thread.

    128 MB take 3 ms, in which nobody else can allocate. Without effect where the C library is not glibc.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _set_up_heap() -> None:
    """Have all threads allocate from one heap, and large blocks apart; without effect where the C library is not glibc.

    By default each thread has a heap of its own, and what is free in one of them is of no use to the others. And blocks
    of up to 32 MB come from it once such a block has been freed; when these grow they are copied, for 5 to 10 ms in which
    nobody else gets the interpreter.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES)
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
