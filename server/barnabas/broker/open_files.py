"""Limits on the open files of this process: in all, for segments, and for connections.

The rule: segments and connections do not take each other's share. A segment beyond its share is opened again for each
use, a connection beyond it is refused; some descriptors are reserved for short uses, such as indexes and checkpoints.
"""

from __future__ import annotations

import resource
from collections.abc import Callable

from barnabas.broker.startup import StartupError
from barnabas.system.files import raise_open_files

SEGMENTS_MAX = 16_384
"""More would only keep more indexes in memory."""

SPARED = 64
"""Open files that are for neither."""

OPEN_FILES_MIN = 2 * SPARED
"""With fewer, no descriptors would be left for clients."""


def allow_open_files(raise_limit: Callable[[], int] = raise_open_files) -> int:
    """Raise the soft limit (often 1024, for programs that use select) to the hard one; returns it.

    Raises StartupError for a limit that is too low for a broker.
    """
    allowed = raise_limit()
    if allowed != resource.RLIM_INFINITY and allowed < OPEN_FILES_MIN:
        raise StartupError(
            f"the limit of open files is {allowed}, and a broker needs at least {OPEN_FILES_MIN}, some thousands with many "
            "partitions or clients: raise it (ulimit -n, LimitNOFILE)"
        )
    return allowed


def open_segments_max(open_files_max: int) -> int:
    """Return the most segments that may hold files open: a third of all, as a connection that is refused costs more."""
    if open_files_max == resource.RLIM_INFINITY:
        return SEGMENTS_MAX
    return min(open_files_max // 3, SEGMENTS_MAX)


def connections_max(open_files_max: int) -> int | None:
    """Return the most connections that may be open, None for any number."""
    if open_files_max == resource.RLIM_INFINITY:
        return None
    return max(open_files_max - open_segments_max(open_files_max) - SPARED, open_files_max // 4)
