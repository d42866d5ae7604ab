"""Schedule of the snapshots of a metadata log (KIP-630): when one is due, and which are removed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.cluster.kraft.decisions import SnapshotId


class SnapshotTimer:
    """Decides when a snapshot is due: after this many bytes of records, or ms; 0 ms for bytes alone."""

    def __init__(self, bytes_max: int, interval_ms: int, now_ms: int) -> None:
        self._bytes_max = bytes_max
        self._interval_ms = interval_ms
        self.reset(0, now_ms)

    def reset(self, bytes_applied: int, now_ms: int) -> None:
        """Restart the counts after a snapshot was made or loaded; `bytes_applied` is the total so far."""
        self._bytes_at, self._begun_ms = bytes_applied, now_ms

    def is_due(self, bytes_applied: int, now_ms: int) -> bool:
        """Return whether a snapshot of the records applied so far is due."""
        if bytes_applied - self._bytes_at >= self._bytes_max:
            return True
        is_late = 0 < self._interval_ms <= now_ms - self._begun_ms
        return is_late and bytes_applied > self._bytes_at


class StoredSnapshot(NamedTuple):
    """A snapshot on the disk: its size in bytes, and the time of the last record in it."""

    id: SnapshotId
    size: int
    last_ms: int


def is_oldest_beyond(
    snapshots: Sequence[StoredSnapshot], log_bytes: int, *, bytes_max: int, age_ms_max: int, now_ms: int
) -> bool:
    """Return whether the oldest snapshot is to be removed, and the log before the second; -1 is no limit.

    The newest snapshot always stays.
    """
    if len(snapshots) < 2:
        return False
    total = log_bytes + sum(snapshot.size for snapshot in snapshots)
    return 0 <= bytes_max < total or 0 <= age_ms_max < now_ms - snapshots[0].last_ms
