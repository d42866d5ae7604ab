"""The records of a share partition that are in flight: runs of offsets in the same state, one after the other. Pure.

The runs have no gaps from the start offset on, and adjacent runs differ. A change of an offset range first splits the
runs at its edges, and afterwards joins equal adjacent runs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum

Span = tuple[int, int]
"""First and last offset."""


class RecordState(IntEnum):
    """State of a record, with the numbers of Kafka's state records."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """On its way to a dead letter queue (KIP-1191): no member gets it again, and the start offset stays before it."""
    ARCHIVED = 4

    @property
    def is_terminal(self) -> bool:
        """True if nothing more happens to the record."""
        return self in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


AVAILABLE, ACQUIRED = RecordState.AVAILABLE, RecordState.ACQUIRED


@dataclass(slots=True)
class Run:
    """Offsets `first` to `last`, all in the same state.

    `deliveries` counts how often they were delivered; `batch` is the span of their first delivery. While acquired they
    belong to `member` until `lock_due_ms`; `target` is the state that is being persisted.
    """

    first: int
    last: int
    state: RecordState
    deliveries: int
    batch: Span
    member: str = ""
    lock_due_ms: int = 0
    target: RecordState | None = None

    def __len__(self) -> int:
        return self.last - self.first + 1

    @property
    def outlook(self) -> RecordState:
        """The state that it is in, or will be in when that is written down."""
        return self.state if self.target is None else self.target

    def may_join(self, other: Run) -> bool:
        """Return whether `other`, the next run, differs only in its offsets."""
        return (
            self.state is other.state
            and self.deliveries == other.deliveries
            and self.batch == other.batch
            and self.member == other.member
            and self.lock_due_ms == other.lock_due_ms
            and self.target is other.target
        )


def _first(run: Run) -> int:
    return run.first


class InFlight:
    """The runs of one share partition; empty when nothing is in flight."""

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: list[Run] = []

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def __bool__(self) -> bool:
        return bool(self._runs)

    @property
    def first(self) -> int:
        """The first offset in flight; the flight must not be empty."""
        return self._runs[0].first

    @property
    def last(self) -> int:
        """The last offset in flight; the flight must not be empty."""
        return self._runs[-1].last

    def append(self, run: Run) -> None:
        """Put a run after the last one."""
        assert not self._runs or run.first == self.last + 1
        assert run.first <= run.last
        self._runs.append(run)

    def between(self, first: int, last: int) -> list[Run]:
        """Return the runs that have any of these offsets."""
        if first > last or not self._runs:
            return []
        runs = self._runs[self._index(first) : self._index(last) + 1]
        return [run for run in runs if run.first <= last and run.last >= first]

    def cut(self, first: int, last: int) -> list[Run]:
        """Return the runs of exactly these offsets: runs that extend beyond them are split."""
        if first > last or not self._runs:
            return []
        self._cut_at(first)
        self._cut_at(last + 1)
        return self.between(first, last)

    def drop_before(self, offset: int) -> None:
        """Drop the state of records before `offset`."""
        if self._runs:
            self._cut_at(offset)
            self._runs = [run for run in self._runs if run.first >= offset]

    def close_up(self) -> None:
        """Join neighbours that no longer differ."""
        runs: list[Run] = []
        for run in self._runs:
            if runs and runs[-1].may_join(run):
                runs[-1].last = run.last
            else:
                runs.append(run)
        self._runs = runs

    def _index(self, offset: int) -> int:
        return max(bisect_right(self._runs, offset, key=_first) - 1, 0)

    def _cut_at(self, offset: int) -> None:
        """See that a run begins at `offset`, if it is in flight."""
        index = self._index(offset)
        run = self._runs[index]
        if run.first < offset <= run.last:
            self._runs.insert(index + 1, replace(run, first=offset))
            run.last = offset - 1
