"""Counts of a voter's work, for its metrics: elections, records, commits. Pure.

The rule: only rising totals, from which a reader computes rates and averages over its own interval.
"""

from __future__ import annotations

from collections import deque

from barnabas.cluster.kraft.raft.values import Role

_ASKING = (Role.PROSPECTIVE, Role.CANDIDATE)


class RaftCounts:
    """Counts since the start; times are in seconds of any monotonic clock."""

    def __init__(self) -> None:
        self.appended = 0
        """Records that this leader has appended."""
        self.fetched = 0
        """Records that were fetched from a leader."""
        self.leaders = 0
        """Leaders that this node has learned of, itself among them."""
        self.elections = 0
        """Elections that this node has started, and that ended with a leader."""
        self.election_seconds = 0.0
        self.commits = 0
        """Batches of this leader that were committed."""
        self.commit_seconds = 0.0
        self._asking_since: float | None = None
        self._uncommitted: deque[tuple[int, float]] = deque()

    def has_appended(self, count: int, end_offset: int, now: float) -> None:
        """Count an appended batch of this leader."""
        self.appended += count
        self._uncommitted.append((end_offset, now))

    def has_committed(self, high_watermark: int, now: float) -> None:
        """Count the batches of this leader up to an offset."""
        while self._uncommitted and self._uncommitted[0][0] <= high_watermark:
            self.commits += 1
            self.commit_seconds += now - self._uncommitted.popleft()[1]

    def has_changed(self, role: Role, leader_id: int, *, is_another: bool, now: float) -> None:
        """Note a change of role or leader; `is_another` if the leader is not the last one."""
        if role is not Role.LEADER:
            self._uncommitted.clear()
        if role in _ASKING and self._asking_since is None:
            self._asking_since = now
        if leader_id < 0:
            return
        self.leaders += is_another
        if self._asking_since is not None:
            self.elections += 1
            self.election_seconds += now - self._asking_since
            self._asking_since = None
