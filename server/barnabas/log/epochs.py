"""The leader epochs of a partition, with the start offset of each (KIP-101, KIP-279).

The rule: epochs rise strictly and their start offsets do not fall. Entries that contradict a new one are dropped.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1


class LeaderEpochs:
    """The content of `leader-epoch-checkpoint`; the log writes it whenever a method returns True."""

    __slots__ = ("_epochs", "_starts")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)

    @property
    def entries(self) -> list[tuple[int, int]]:
        """All epochs as (epoch, start offset)."""
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest(self) -> int:
        """The latest epoch, or UNDEFINED_EPOCH."""
        return self._epochs[-1] if self._epochs else UNDEFINED_EPOCH

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that `epoch` begins at `start_offset`; returns whether that changes the content."""
        if epoch < 0 or start_offset < 0:
            return False
        epochs, starts = self._epochs, self._starts
        if epochs and epoch == epochs[-1] and start_offset >= starts[-1]:
            return False
        while epochs and (epochs[-1] >= epoch or starts[-1] >= start_offset):
            epochs.pop()
            starts.pop()
        epochs.append(epoch)
        starts.append(start_offset)
        return True

    def epoch_at(self, offset: int) -> int:
        """Return the epoch in which `offset` was or will be written, or UNDEFINED_EPOCH."""
        n = bisect_right(self._starts, offset)
        return self._epochs[n - 1] if n else UNDEFINED_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest known epoch up to `epoch`, and the start offset of the next epoch.

        For the latest epoch that is the end of the log. For an epoch before all known ones, the result is that epoch and
        the first known start; for one after all of them, and for -1, it is (UNDEFINED_EPOCH, UNDEFINED_OFFSET).
        """
        if epoch == UNDEFINED_EPOCH:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        n = bisect_right(self._epochs, epoch)
        if n == len(self._epochs):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        return (self._epochs[n - 1] if n else epoch), self._starts[n]

    def truncate_from_end(self, end_offset: int) -> bool:
        """Remove the epochs that begin at `end_offset` or later; returns whether there were any."""
        changed = False
        while self._starts and self._starts[-1] >= end_offset:
            self._epochs.pop()
            self._starts.pop()
            changed = True
        return changed

    def truncate_from_start(self, start_offset: int) -> bool:
        """Remove the epochs before `start_offset`; the epoch at that offset begins there."""
        n = bisect_right(self._starts, start_offset)
        if not n or (n == 1 and self._starts[0] == start_offset):
            return False
        del self._epochs[: n - 1]
        del self._starts[: n - 1]
        self._starts[0] = start_offset
        return True

    def clear(self) -> bool:
        """Remove all epochs; returns whether there were any."""
        had_any = bool(self._epochs)
        self._epochs.clear()
        self._starts.clear()
        return had_any
