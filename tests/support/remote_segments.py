"""Segments of a remote store, their local files, and random histories of their records."""

from __future__ import annotations

from pathlib import Path
from random import Random
from uuid import UUID

from barnabas.tiered.segment import RemoteSegment, SegmentState, SegmentUpdate, TopicIdPartition
from barnabas.tiered.storage import SegmentFiles

TOPIC_ID = UUID("4c0bd5a1-37f0-4d39-8a4f-9d8c3b3a1f55")
PARTITION = TopicIdPartition("orders", 3, TOPIC_ID)
STEPS = {
    SegmentState.COPY_STARTED: (
        SegmentState.COPY_FINISHED,
        SegmentState.COPY_FINISHED,
        SegmentState.DELETE_STARTED,
    ),
    SegmentState.COPY_FINISHED: (SegmentState.COPY_FINISHED, SegmentState.DELETE_STARTED),
    SegmentState.DELETE_STARTED: (SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED),
}


def remote_segment(
    start: int = 0,
    end: int = 99,
    epochs: tuple[tuple[int, int], ...] | None = None,
    *,
    number: int = 1,
    state: SegmentState = SegmentState.COPY_STARTED,
    size: int = 1000,
    is_transaction_index_empty: bool = False,
    custom_metadata: bytes | None = None,
) -> RemoteSegment:
    """A segment of `PARTITION`; `number` is its id."""
    return RemoteSegment(
        PARTITION,
        UUID(int=number),
        start,
        end,
        broker_id=1,
        max_timestamp=1_700_000_000_000,
        event_timestamp=1_700_000_001_000,
        leader_epochs=epochs or ((0, start),),
        size=size,
        state=state,
        is_transaction_index_empty=is_transaction_index_empty,
        custom_metadata=custom_metadata,
    )


def update(
    segment: RemoteSegment, state: SegmentState, custom_metadata: bytes | None = None
) -> SegmentUpdate:
    """The record of a segment's next state."""
    return SegmentUpdate(segment.partition, segment.segment_id, 2, 1_700_000_002_000, state, custom_metadata)


def local_files(folder: Path, log: bytes, *, has_transactions: bool = True) -> SegmentFiles:
    """Write the files of a closed segment: `log` is the content of the log, the other files have distinct contents."""
    for suffix, content in {
        "log": log,
        "index": b"offset index" * 5,
        "timeindex": b"time index" * 7,
        "snapshot": b"producers",
        "txnindex": b"aborted" * 3,
    }.items():
        (folder / f"local.{suffix}").write_bytes(content)
    return SegmentFiles(
        log=folder / "local.log",
        offset_index=folder / "local.index",
        time_index=folder / "local.timeindex",
        producer_snapshot=folder / "local.snapshot",
        leader_epochs=b"0\n1\n0 0\n",
        transaction_index=folder / "local.txnindex" if has_transactions else None,
    )


class History:
    """Random records of a partition: copies in the order of offsets, by several leaders, with overlaps and deletions."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.segments: dict[UUID, RemoteSegment] = {}
        self.epoch = 0
        self.offset = 0

    def next(self) -> RemoteSegment | SegmentUpdate:
        """Draw a record that may follow those drawn before; `applied` follows it."""
        if not self.segments or self.random.random() < 0.4:
            return self._segment()
        segment = self.random.choice(list(self.segments.values()))
        state = self.random.choice(STEPS[segment.state])
        return update(segment, state, self.random.choice((None, b"custom")))

    def applied(self, segment: RemoteSegment) -> None:
        """Update a segment of the history to its state after a record."""
        if segment.state is SegmentState.DELETE_FINISHED:
            self.segments.pop(segment.segment_id, None)
        else:
            self.segments[segment.segment_id] = segment

    def _segment(self) -> RemoteSegment:
        random = self.random
        if random.random() < 0.5:  # another leader, or the same one, may begin again at an earlier offset
            self.epoch += random.choice((0, 0, 0, 1, 2))
            starts = [segment.start_offset for segment in [*self.segments.values()][-4:]]
            self.offset = random.choice((max(0, self.offset - random.choice((0, 5, 10, 25))), *starts))
        start = self.offset
        epochs = [(self.epoch, start)]
        offset = start
        for _ in range(random.choice((0, 0, 1, 2))):
            self.epoch += 1
            offset += random.randint(1, 5)
            epochs.append((self.epoch, offset))
        self.offset = offset + random.randint(1, 10)
        return remote_segment(
            start,
            self.offset - 1,
            tuple(epochs),
            number=random.getrandbits(128),
            size=random.randint(1, 1000),
            is_transaction_index_empty=random.random() < 0.5,
        )
