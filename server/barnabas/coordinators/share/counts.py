"""Counts of events in share groups, for metrics (KIP-932, KIP-1103, KIP-1191). Pure.

The rule: counts of groups are kept for at most GROUPS_MAX of them; the group with the oldest count is dropped for a new
one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

GROUPS_MAX = 1_000


@dataclass(slots=True)
class Spread:
    """Number and sum of values."""

    count: int = 0
    total: float = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.count += 1
        self.total += value


@dataclass(slots=True)
class GroupCounts:
    """Counts of one group: fetches, in percent and milliseconds, and its dead letter queue."""

    fetch_ratio: Spread = field(default_factory=Spread)
    acquire_ms: Spread = field(default_factory=Spread)
    letters: int = 0
    letter_appends: int = 0
    failed_letter_appends: int = 0


@dataclass(slots=True)
class ShareCounts:
    """Counts of all groups of this broker."""

    acknowledged: Counter[int] = field(default_factory=Counter)
    """Records by verdict, as in the protocol."""
    loads_ms: Spread = field(default_factory=Spread)
    writes_ms: Spread = field(default_factory=Spread)
    groups: dict[str, GroupCounts] = field(default_factory=dict)

    def of_group(self, group_id: str) -> GroupCounts:
        """Return the counts of a group, to be incremented."""
        counts = self.groups.pop(group_id, None)
        if counts is None:
            counts = GroupCounts()
            if len(self.groups) >= GROUPS_MAX:
                del self.groups[next(iter(self.groups))]
        self.groups[group_id] = counts
        return counts
