"""Counts of a replica's appended and visible bytes, for waiting fetches and metrics.

The rule: counts begin with the replica, and never fall, except the committed bytes at a change of role: no waiter waits
across that.
"""

from __future__ import annotations

from collections import deque
from typing import Final

UNCOMMITTED_APPENDS_MAX: Final = 1000
"""Number of appends that are distinguished while they wait for followers; more than that count as one."""


class Growth:
    """Counts of one replica."""

    __slots__ = (
        "_uncommitted",
        "appended_bytes",
        "appended_records",
        "committed_bytes",
        "replicated_bytes",
        "replicated_records",
    )

    def __init__(self) -> None:
        self.appended_bytes = 0
        self.appended_records = 0
        self.replicated_bytes = 0
        """As many of `appended_bytes` as came from a leader, not from producers."""
        self.replicated_records = 0
        self.committed_bytes = 0
        """As many of `appended_bytes` as are below the high watermark."""
        self._uncommitted: deque[tuple[int, int]] = deque()  # (log end offset, appended_bytes) of each append

    def appended(self, size: int, record_count: int) -> None:
        """Count an append of this many bytes."""
        self.appended_bytes += size
        self.appended_records += record_count

    def replicated(self, size: int, record_count: int) -> None:
        """Count an append of a leader's records."""
        self.appended(size, record_count)
        self.replicated_bytes += size
        self.replicated_records += record_count

    def note_uncommitted(self, end_offset: int) -> None:
        """Note that the records appended up to here are above the high watermark."""
        if len(self._uncommitted) >= UNCOMMITTED_APPENDS_MAX:
            self._uncommitted.pop()
        self._uncommitted.append((end_offset, self.appended_bytes))

    def committed(self, high_watermark: int, end_offset: int) -> None:
        """Count the records below the high watermark as committed."""
        uncommitted = self._uncommitted
        if high_watermark == end_offset:
            self.committed_bytes = self.appended_bytes
            if uncommitted:
                uncommitted.clear()
        else:
            while uncommitted and uncommitted[0][0] <= high_watermark:
                self.committed_bytes = uncommitted.popleft()[1]

    def restart(self, end_offset: int, uncommitted_bytes: int) -> None:
        """Begin with a role: all is committed except this many bytes, up to `end_offset`."""
        self._uncommitted.clear()
        self.committed_bytes = self.appended_bytes - uncommitted_bytes
        if uncommitted_bytes:
            self.note_uncommitted(end_offset)
