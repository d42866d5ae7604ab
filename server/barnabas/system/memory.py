"""The heap of the C library: glibc can be told how to use it; on others, which lack these calls, nothing happens."""

from __future__ import annotations

import ctypes
from contextlib import suppress

_M_ARENA_MAX, _M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -8, -3, -1


def set_up_heap(mapped_bytes: int, kept_bytes: int) -> None:
    """Let all threads allocate from one heap, blocks of `mapped_bytes` outside of it; keep `kept_bytes` free at its end.

    By default each thread has its own heap, and memory that is free in one of them is of no use to the others. And blocks
    of up to 32 MB are taken from it once such a block has been freed; when these grow they are copied, for 5 to 10 ms in
    which no other thread gets the interpreter.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, mapped_bytes)
        mallopt(_M_TRIM_THRESHOLD, kept_bytes)


def give_back_memory() -> None:
    """Return free memory in the middle of the heap to the operating system; best in a thread.

    128 MB take 3 ms, in which no other thread can allocate.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
