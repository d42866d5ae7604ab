"""Counts of what was appended to a replica, and of its bytes that readers see: for waiting fetches, and for metrics.

The rule: all counts are since the replica was made, and none goes back, but for the committed bytes where the role
changes: no waiter waits across that.
"""

from __future__ import annotations

from collections import deque
from typing import Final

UNCOMMITTED_APPENDS_MAX: Final = 1000
"""So many appends are distinguished while they wait for followers; more than that count as one."""


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
        """Count an append of so many bytes."""
        self.appended_bytes += size
        self.appended_records += record_count

    def replicated(self, size: int, record_count: int) -> None:
        """Count an append of what a leader has sent."""
        self.appended(size, record_count)
        self.replicated_bytes += size
        self.replicated_records += record_count

    def note_uncommitted(self, end_offset: int) -> None:
        """Note that what was appended up to here is not below the high watermark yet."""
        if len(self._uncommitted) >= UNCOMMITTED_APPENDS_MAX:
            self._uncommitted.pop()
        self._uncommitted.append((end_offset, self.appended_bytes))

    def committed(self, high_watermark: int, end_offset: int) -> None:
        """Count as committed what is below the high watermark."""
        uncommitted = self._uncommitted
        if high_watermark == end_offset:
            self.committed_bytes = self.appended_bytes
            if uncommitted:
                uncommitted.clear()
        else:
            while uncommitted and uncommitted[0][0] <= high_watermark:
                self.committed_bytes = uncommitted.popleft()[1]

    def restart(self, end_offset: int, uncommitted_bytes: int) -> None:
        """Begin with a role: all is committed but so many bytes, up to `end_offset`."""
        self._uncommitted.clear()
        self.committed_bytes = self.appended_bytes - uncommitted_bytes
        if uncommitted_bytes:
            self.note_uncommitted(end_offset)
