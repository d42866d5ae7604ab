"""Remote segments of a partition by leader epoch: the segment of an offset, and unreferenced segments.

The rule: as in Kafka's RemoteLogMetadataCache. A segment is listed under each of its leader epochs, clipped to the epoch's
range; once it is copied, it replaces earlier ones of the epoch that begin at or after its start and end no later, and those
become unreferenced: listed, so that they are deleted, and not read. Pure, for one thread.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from uuid import UUID

from barnabas.tiered.segment import RemoteSegment, SegmentState, SegmentUpdate

_ALLOWED = {
    None: {SegmentState.COPY_STARTED},
    SegmentState.COPY_STARTED: {
        SegmentState.COPY_STARTED,
        SegmentState.COPY_FINISHED,
        SegmentState.DELETE_STARTED,
    },
    SegmentState.COPY_FINISHED: {SegmentState.COPY_FINISHED, SegmentState.DELETE_STARTED},
    SegmentState.DELETE_STARTED: {SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED},
}
"""State -> the states that may follow it; None is that of a segment without a record."""


class LineageError(Exception):
    """A record that does not follow from the records before it; nothing is changed by it."""


class UnknownSegmentError(LineageError):
    """An update of a segment that has no record, or has been deleted."""


class PartitionSegments:
    """The remote segments of a partition, by the records of `__remote_log_metadata`."""

    def __init__(self) -> None:
        self._segments: dict[UUID, RemoteSegment] = {}
        self._epochs: dict[int, _Epoch] = {}
        self._transactional: list[RemoteSegment] | None = None

    def __len__(self) -> int:
        return len(self._segments)

    def clear(self) -> None:
        """Remove all records."""
        self._segments.clear()
        self._epochs.clear()
        self._transactional = None

    def get(self, segment_id: UUID) -> RemoteSegment | None:
        """Return a segment that is not deleted, in any state."""
        return self._segments.get(segment_id)

    def apply(self, record: RemoteSegment | SegmentUpdate) -> RemoteSegment:
        """Apply a record, and return the present state of the segment.

        Raises:
            UnknownSegmentError: the segment of an update has no record, or has been deleted.
            LineageError: the state may not follow the segment's present one.
        """
        self._transactional = None
        current = self._segments.get(record.segment_id)
        if isinstance(record, RemoteSegment):
            if record.state is not SegmentState.COPY_STARTED:
                raise LineageError(f"segment {record.segment_id} begins with the state {record.state.name}")
            _check(record, current)
            return self._begin(record)
        if current is None:
            raise UnknownSegmentError(
                f"there is no segment {record.segment_id} to become {record.state.name}"
            )
        _check(record, current)
        if record.state is SegmentState.COPY_STARTED:
            raise LineageError(f"an update cannot begin the copy of segment {record.segment_id}")
        segment = replace(
            current,
            broker_id=record.broker_id,
            event_timestamp=record.event_timestamp,
            state=record.state,
            custom_metadata=record.custom_metadata,
        )
        return self._follow(segment)

    def segment_for(self, epoch: int, offset: int) -> RemoteSegment | None:
        """Return the copied segment that holds an offset of a leader epoch, None if none does."""
        entry = self._epochs.get(epoch)
        segment_id = entry.floor(offset) if entry is not None else None
        if segment_id is None:
            return None
        segment = self._segments[segment_id]
        return segment if offset <= end_in_epoch(segment, epoch) else None

    def next_with_transactions(self, epoch: int, offset: int) -> RemoteSegment | None:
        """Return the first copied segment with a transaction index, from that of an offset on (KIP-1058).

        The search ends if no segment of the epoch has the next offset: the caller continues with a later epoch.
        """
        segment = self.segment_for(epoch, offset)
        while segment is not None and segment.is_transaction_index_empty:
            segment = self.segment_for(epoch, segment.end_offset + 1)
        return segment

    def with_transactions(self) -> list[RemoteSegment]:
        """Return the copied segments with a transaction index, in the order of their start offsets; not to be changed."""
        if self._transactional is None:
            self._transactional = _sorted(
                segment
                for segment in self._segments.values()
                if segment.state is SegmentState.COPY_FINISHED and not segment.is_transaction_index_empty
            )
        return self._transactional

    def highest_offset(self, epoch: int) -> int | None:
        """Return the highest offset of a leader epoch that was ever copied, None for none.

        It stays when its segment is deleted.
        """
        entry = self._epochs.get(epoch)
        return entry.highest_offset if entry is not None else None

    def segments(self, epoch: int | None = None) -> list[RemoteSegment]:
        """Return the segments that are not deleted, in the order of their start offsets.

        Args:
            epoch: only those listed under a leader epoch, the unreferenced included; None for all.

        """
        if epoch is None:
            return _sorted(self._segments.values())
        entry = self._epochs.get(epoch)
        return _sorted(self._segments[segment_id] for segment_id in entry.all()) if entry is not None else []

    def unreferenced(self) -> list[RemoteSegment]:
        """Return the segments that no leader epoch reads: of unfinished copies and deletions, and replaced ones."""
        referenced = {segment_id for entry in self._epochs.values() for segment_id in entry.ids}
        return _sorted(segment for key, segment in self._segments.items() if key not in referenced)

    def size(self, epochs: Iterable[int] | None = None) -> int:
        """Return the bytes of the copied segments, each counted once.

        Args:
            epochs: only segments that are listed under one of these leader epochs; None for all.

        """
        ids: Iterable[UUID] = self._segments
        if epochs is not None:
            ids = {key for epoch in epochs if epoch in self._epochs for key in self._epochs[epoch].all()}
        segments = (self._segments[segment_id] for segment_id in ids)
        return sum(segment.size for segment in segments if segment.state is SegmentState.COPY_FINISHED)

    def _begin(self, segment: RemoteSegment) -> RemoteSegment:
        for epoch, _ in segment.leader_epochs:
            self._epoch(epoch).unreferenced.add(segment.segment_id)
        self._segments[segment.segment_id] = segment
        return segment

    def _follow(self, segment: RemoteSegment) -> RemoteSegment:
        segment_id = segment.segment_id
        for epoch, start in segment.leader_epochs:
            entry = self._epoch(epoch)
            if segment.state is SegmentState.COPY_FINISHED:
                entry.refer(start, segment_id, end_in_epoch(segment, epoch))
            elif segment.state is SegmentState.DELETE_STARTED:
                entry.retire(start, segment_id)
            else:
                entry.unreferenced.discard(segment_id)
        if segment.state is SegmentState.DELETE_FINISHED:
            del self._segments[segment_id]
        else:
            self._segments[segment_id] = segment
        return segment

    def _epoch(self, epoch: int) -> _Epoch:
        return self._epochs.setdefault(epoch, _Epoch())


@dataclass(slots=True)
class _Epoch:
    """Segments of a leader epoch: those that are read, by their start offsets in it, and the others."""

    starts: list[int] = field(default_factory=list)
    ids: list[UUID] = field(default_factory=list)
    unreferenced: set[UUID] = field(default_factory=set)
    highest_offset: int | None = None

    def all(self) -> list[UUID]:
        return [*self.ids, *self.unreferenced]

    def floor(self, offset: int) -> UUID | None:
        position = bisect_right(self.starts, offset)
        return self.ids[position - 1] if position else None

    def refer(self, start: int, segment_id: UUID, end: int) -> None:
        position = bisect_left(self.starts, start)
        reaches_end = self.highest_offset is None or self.highest_offset <= end
        # A copy that reaches less far takes the place of the one with the same start alone. Kafka then forgets that one,
        # and never deletes it; here it is unreferenced, like the others.
        until = (
            len(self.starts) if reaches_end else position + (self.starts[position : position + 1] == [start])
        )
        self.unreferenced.update(self.ids[position:until])
        self.starts[position:until], self.ids[position:until] = [start], [segment_id]
        self.unreferenced.discard(segment_id)
        self.highest_offset = end if self.highest_offset is None else max(self.highest_offset, end)

    def retire(self, start: int, segment_id: UUID) -> None:
        position = bisect_left(self.starts, start)
        if self.starts[position : position + 1] == [start] and self.ids[position] == segment_id:
            del self.starts[position], self.ids[position]
        self.unreferenced.add(segment_id)


def end_in_epoch(segment: RemoteSegment, epoch: int) -> int:
    """Return the last offset of a leader epoch in a segment: before the start of the next epoch, or the segment's end."""
    later = (offset - 1 for following, offset in segment.leader_epochs if following > epoch)
    return next(later, segment.end_offset)


def _check(record: RemoteSegment | SegmentUpdate, current: RemoteSegment | None) -> None:
    state = current.state if current is not None else None
    if record.state not in _ALLOWED[state]:
        before = "no record" if state is None else state.name
        raise LineageError(f"segment {record.segment_id} cannot become {record.state.name} after {before}")


def _sorted(segments: Iterable[RemoteSegment]) -> list[RemoteSegment]:
    return sorted(segments, key=lambda segment: segment.start_offset)
