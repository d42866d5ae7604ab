"""An observer that keeps its log in memory, for mere readers of a quorum (`barnabas metadata`).

The rule: only records that are not applied yet are held, within limits.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.cluster.kraft.decisions import (
    Append,
    Decision,
    DropSnapshot,
    InstallSnapshot,
    SnapshotId,
    Truncate,
    WritePiece,
)
from barnabas.cluster.kraft.observer import Observer
from barnabas.cluster.kraft.replica_values import PLACE
from barnabas.cluster.kraft.state import LogState, MetadataLogError, Snapshot, Step, snapshot_steps
from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import BatchHeader, iter_batches
from barnabas.wire.generated.fetch import FetchResponse
from barnabas.wire.generated.fetch_snapshot import FetchSnapshotResponse

HELD_BYTES_MAX: Final = 64 << 20
"""Limit, in bytes, of uncommitted records, and of one snapshot."""


class Read(NamedTuple):
    """Result of an answer: newly committed steps, whether to ask another node, and whether to wait before."""

    steps: tuple[Step, ...] = ()
    asks_elsewhere: bool = False
    must_wait: bool = False


class _Batch(NamedTuple):
    header: BatchHeader
    data: bytes


class MemoryObserver:
    """An observer with its log in memory. Lifecycle: send `observer.request`, `take` the answer, repeat.

    `state` has the committed records.
    """

    def __init__(self) -> None:
        self.observer = Observer()
        self.state = LogState()
        self._uncommitted: list[_Batch] = []
        self._pieces = bytearray()

    @property
    def is_caught_up(self) -> bool:
        """True if all records that were committed at the last answer have been applied."""
        return self.observer.is_caught_up and self.observer.high_watermark <= self.state.position.offset + 1

    def take(self, response: FetchResponse | FetchSnapshotResponse) -> Read:
        """Process an answer. Raises MetadataLogError for an invalid answer or a damaged snapshot."""
        taken = self.observer.take(response)
        for decision in taken.decisions:
            self._carry_out(decision)
        return Read(self._apply(), taken.asks_elsewhere, taken.must_wait)

    def _carry_out(self, decision: Decision) -> None:
        match decision:
            case Append(records):
                for position, header in iter_batches(records):
                    self._uncommitted.append(_Batch(header, records[position : position + header.size]))
                _require_room(sum(batch.header.size for batch in self._uncommitted))
            case Truncate(end_offset):
                self._uncommitted = [
                    batch for batch in self._uncommitted if batch.header.last_offset < end_offset
                ]
            case WritePiece(_, position, data):
                del self._pieces[position:]
                self._pieces += data
                _require_room(len(self._pieces))
            case DropSnapshot():
                self._pieces.clear()
            case InstallSnapshot(snapshot_id):
                snapshot = self._decode(snapshot_id)
                self.observer.installed(snapshot)
                self.state.load(snapshot)
                self._uncommitted.clear()

    def _decode(self, snapshot_id: SnapshotId) -> Snapshot:
        data = bytes(self._pieces)
        self._pieces.clear()
        batches = (
            (header, data[position : position + header.size]) for position, header in iter_batches(data)
        )
        place = f"snapshot {snapshot_id.end_offset}-{snapshot_id.epoch} of the quorum"
        (snapshot,) = (step for step in snapshot_steps(snapshot_id, place, batches) if step is not None)
        return snapshot

    def _apply(self) -> tuple[Step, ...]:
        steps: list[Step] = []
        count = 0
        for header, data in self._uncommitted:
            if header.last_offset >= self.observer.high_watermark:
                break
            steps += [self.state.step(header, record, PLACE) for record in iter_any_records(data)]
            count += 1
        del self._uncommitted[:count]
        return tuple(steps)


def _require_room(size: int) -> None:
    if size > HELD_BYTES_MAX:
        raise MetadataLogError(f"{PLACE}: more than {HELD_BYTES_MAX} bytes are not committed")
