"""The heap of the C library: glibc can be told how to use it; others have no such calls, and nothing happens then."""

from __future__ import annotations

import ctypes
from contextlib import suppress

_M_ARENA_MAX, _M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -8, -3, -1


def set_up_heap(mapped_bytes: int, kept_bytes: int) -> None:
    """Have all threads allocate from one heap, and blocks of `mapped_bytes` apart; keep `kept_bytes` free at its end.

    By default each thread has a heap of its own, and what is free in one of them is of no use to the others. And blocks
    of up to 32 MB come from it once such a block has been freed; when these grow they are copied, for 5 to 10 ms in which
    no other thread gets the interpreter.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, mapped_bytes)
        mallopt(_M_TRIM_THRESHOLD, kept_bytes)


def give_back_memory() -> None:
    """Return what is free in the middle of the heap to the operating system; best in a thread.

    128 MB take 3 ms, in which no other thread can allocate.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
