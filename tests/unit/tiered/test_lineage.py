"""Records of remote segments that the lineage refuses, and overlapping copies; property/tiered tests the others."""

import pytest

from barnabas.tiered.lineage import LineageError, PartitionSegments, UnknownSegmentError
from barnabas.tiered.segment import SegmentState
from tests.support.remote_segments import remote_segment, update

STARTED, FINISHED = SegmentState.COPY_STARTED, SegmentState.COPY_FINISHED
DELETING, DELETED = SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED


@pytest.fixture
def segments() -> PartitionSegments:
    return PartitionSegments()


ALLOWED = {(STARTED, FINISHED), (STARTED, DELETING), (FINISHED, FINISHED), (FINISHED, DELETING), (DELETING, DELETING),
           (DELETING, DELETED)}  # fmt: skip
WAYS = {STARTED: (), FINISHED: (FINISHED,), DELETING: (DELETING,), DELETED: (DELETING, DELETED)}


@pytest.mark.parametrize("state", SegmentState)
@pytest.mark.parametrize("target", SegmentState)
def test_update_outside_the_states_order_changes_nothing(segments, state, target) -> None:
    segment = segments.apply(remote_segment())
    for step in WAYS[state]:
        segments.apply(update(segment, step))
    before = segments.segments(0)
    if (state, target) in ALLOWED:
        assert segments.apply(update(segment, target)).state is target
        return
    with pytest.raises(UnknownSegmentError if state is DELETED else LineageError):
        segments.apply(update(segment, target))
    assert segments.segments(0) == segments.segments() == before


@pytest.mark.parametrize("state", [FINISHED, DELETING, DELETED])
def test_first_record_of_a_segment_starts_its_copy(segments, state) -> None:
    with pytest.raises(LineageError):
        segments.apply(remote_segment(state=state))
    with pytest.raises(UnknownSegmentError):
        segments.apply(update(remote_segment(), state))
    assert segments.segments() == []
    begun = segments.apply(remote_segment())
    with pytest.raises(LineageError):
        segments.apply(remote_segment(state=state))
    assert segments.segments() == [begun]


def test_repeated_start_is_taken_and_late_one_is_refused(segments) -> None:
    segment = segments.apply(remote_segment())
    assert segments.apply(segment) == segment
    finished = segments.apply(update(segment, FINISHED))
    with pytest.raises(LineageError, match="cannot become COPY_STARTED after COPY_FINISHED"):
        segments.apply(segment)
    assert segments.segment_for(0, 0) == finished


def test_copy_replaces_earlier_ones_with_its_start(segments) -> None:
    spans = ((0, 99), (100, 199), (0, 49), (0, 300))
    longer, later, shorter, wider = [remote_segment(*span, number=n) for n, span in enumerate(spans)]
    for segment in (longer, later, shorter):
        segments.apply(segments.apply(segment) and update(segment, FINISHED))
    assert [segments.segment_for(0, offset) for offset in (10, 60)] == [
        segments.get(shorter.segment_id),
        None,
    ]
    assert [segment.segment_id for segment in segments.unreferenced()] == [longer.segment_id]
    segments.apply(segments.apply(wider) and update(wider, FINISHED))
    assert segments.segment_for(0, 150) == segments.get(wider.segment_id)
    assert {segment.segment_id for segment in segments.unreferenced()} == {
        segment.segment_id for segment in (longer, later, shorter)
    }
