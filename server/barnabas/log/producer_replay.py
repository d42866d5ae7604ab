"""Producers of a log at an earlier offset, read from its batches outside the thread that owns the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.log.config import UNBOUNDED
from barnabas.log.openfiles import OpenFiles
from barnabas.log.producers import ProducerState
from barnabas.log.replay import replay_producers
from barnabas.log.segment import Segment
from barnabas.log.snapshots import ProducerSnapshots

if TYPE_CHECKING:
    from barnabas.log.partition_log import PartitionLog


class ProducerReplay:
    """Replay of closed segments. Created by the owner of the log; `run` may be called in any thread."""

    def __init__(self, log: PartitionLog, offset: int) -> None:
        self._disk, self._dir, self._offset = log.disk, log.dir, offset
        self._start = log.local_log_start_offset
        self._snapshots = tuple(log.store.snapshots.offsets)
        self._segments = [
            (segment.base_offset, segment.size) for segment in log.segments if segment.base_offset < offset
        ]

    def run(self) -> ProducerState:
        """Replay the batches after the newest good snapshot, up to the offset. Raises OSError, RecordsError."""
        pool = OpenFiles(len(self._segments) + 1)
        segments = [Segment(self._disk, pool, self._dir, base, size) for base, size in self._segments]
        producers = ProducerState(expiration_ms=UNBOUNDED)
        ProducerSnapshots(self._disk, self._dir, self._snapshots).peek(producers, self._start, self._offset)
        replay_producers(segments, producers, self._offset)
        return producers
