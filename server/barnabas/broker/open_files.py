"""How many files this process may hold open, and how many of them are for segments.

The rule: half of what the system allows stays for sockets; a segment that finds no place is opened anew for each use.
"""

from __future__ import annotations

import resource

SEGMENTS_MAX = 16_384
"""More would only keep more indexes in memory."""


def allow_open_files() -> int:
    """Raise the soft limit (often 1024, for the sake of programs that use select) to the hard one; returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):  # some systems have a limit above the limit
            return soft
    return hard


def open_segments_max(open_files_max: int) -> int:
    """How many segments may hold their file open at a time."""
    if open_files_max == resource.RLIM_INFINITY:
        return SEGMENTS_MAX
    return min(open_files_max // 2, SEGMENTS_MAX)
