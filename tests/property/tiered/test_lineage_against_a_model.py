"""Random histories of a partition's remote segments: the lineage beside a list that is searched from end to end."""

from dataclasses import dataclass, field

import pytest

from barnabas.tiered.lineage import PartitionSegments, end_in_epoch
from barnabas.tiered.segment import RemoteSegment, SegmentState
from tests.support.effort import drawing, examples
from tests.support.remote_segments import History

FINISHED, DELETED = SegmentState.COPY_FINISHED, SegmentState.DELETE_FINISHED


@dataclass
class Model:
    """Every segment, which epochs read it, and the highest offset of each epoch."""

    segments: dict[object, RemoteSegment] = field(default_factory=dict)
    readers: set[tuple[int, object]] = field(default_factory=set)
    highest: dict[int, int] = field(default_factory=dict)

    def apply(self, segment: RemoteSegment) -> None:
        key = segment.segment_id
        for epoch, start in segment.leader_epochs:
            self.readers.discard((epoch, key))
            if segment.state is FINISHED:
                end = end_in_epoch(segment, epoch)
                reaches_end = self.highest.get(epoch, -1) <= end
                for reader, other in [*self.readers]:
                    if reader == epoch:
                        begin = dict(self.segments[other].leader_epochs)[epoch]
                        if begin == start or (reaches_end and begin > start):
                            self.readers.discard((reader, other))
                self.readers.add((epoch, key))
                self.highest[epoch] = max(end, self.highest.get(epoch, -1))
        self.segments[key] = segment
        if segment.state is DELETED:
            del self.segments[key]

    def segment_for(self, epoch: int, offset: int) -> RemoteSegment | None:
        candidates = [self.segments[key] for reader, key in self.readers if reader == epoch]
        before = [segment for segment in candidates if dict(segment.leader_epochs)[epoch] <= offset]
        if not before:
            return None
        nearest = max(before, key=lambda segment: dict(segment.leader_epochs)[epoch])
        return nearest if offset <= end_in_epoch(nearest, epoch) else None


@pytest.mark.parametrize("run", range(examples(40)))
def test_lineage_answers_as_the_model(run) -> None:
    history, segments, model = History(drawing(run)), PartitionSegments(), Model()
    for _ in range(60):
        segment = segments.apply(record := history.next())
        assert segment.custom_metadata == record.custom_metadata
        history.applied(segment)
        model.apply(segment)
        assert segments.with_transactions() == sorted(
            (
                each
                for each in model.segments.values()
                if each.state is FINISHED and not each.is_transaction_index_empty
            ),
            key=lambda each: each.start_offset,
        )
    everything = list(model.segments.values())
    assert sorted(everything, key=repr) == sorted(segments.segments(), key=repr)
    assert segments.size() == sum(segment.size for segment in everything if segment.state is FINISHED)
    referenced = {key for _, key in model.readers}
    assert {segment.segment_id for segment in segments.unreferenced()} == model.segments.keys() - referenced
    for epoch in range(history.epoch + 2):
        assert segments.highest_offset(epoch) == model.highest.get(epoch)
        listed = {segment.segment_id for segment in everything if epoch in dict(segment.leader_epochs)}
        assert {segment.segment_id for segment in segments.segments(epoch)} == listed
        sizes = [each.size for each in everything if each.state is FINISHED and each.segment_id in listed]
        assert segments.size((epoch, epoch)) == sum(sizes)
        for offset in range(history.offset + 2):
            segment = model.segment_for(epoch, offset)
            assert segments.segment_for(epoch, offset) == segment, (epoch, offset)
            while segment is not None and segment.is_transaction_index_empty:
                segment = model.segment_for(epoch, segment.end_offset + 1)
            assert segments.next_with_transactions(epoch, offset) == segment
    segments.clear()
    assert [segments.highest_offset(epoch) for epoch in range(history.epoch + 1)] == [None] * (
        history.epoch + 1
    )
