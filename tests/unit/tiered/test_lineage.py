"""Which remote segment holds an offset, and what is left of those that none reads."""

import pytest

from barnabas.tiered.lineage import LineageError, PartitionSegments, UnknownSegmentError
from barnabas.tiered.segment import SegmentState
from tests.support.remote_segments import remote_segment, update

STARTED, FINISHED = SegmentState.COPY_STARTED, SegmentState.COPY_FINISHED
DELETING, DELETED = SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED


@pytest.fixture
def segments() -> PartitionSegments:
    return PartitionSegments()


def copied(segments, *args, **options):
    segment = segments.apply(remote_segment(*args, **options))
    return segments.apply(update(segment, FINISHED))


def test_segment_is_read_once_its_copy_is_finished(segments) -> None:
    segment = segments.apply(remote_segment(10, 19))
    assert segments.segment_for(0, 10) is None
    assert segments.highest_offset(0) is None
    assert segments.segments(0) == segments.segments() == segments.unreferenced() == [segment]
    finished = segments.apply(update(segment, FINISHED, b"custom"))
    assert finished.custom_metadata == b"custom"
    assert [segments.segment_for(0, offset) for offset in (9, 10, 19, 20)] == [None, finished, finished, None]
    assert segments.segment_for(1, 10) is None
    assert segments.highest_offset(0) == 19
    assert segments.unreferenced() == []


def test_size_counts_each_copied_segment_once(segments) -> None:
    copied(segments, 0, 29, ((0, 0), (1, 10)), number=1, size=1000)
    copied(segments, 30, 39, ((1, 30),), number=2, size=200)
    segments.apply(remote_segment(40, 49, ((1, 40),), number=3, size=50))
    assert segments.size() == segments.size((0, 1, 2)) == 1200
    assert segments.size((0,)) == 1000
    assert segments.size(()) == 0


def test_next_transaction_index_skips_segments_without_one(segments) -> None:
    copied(segments, 0, 9, number=1, is_transaction_index_empty=True)
    copied(segments, 10, 19, number=2, is_transaction_index_empty=True)
    third = copied(segments, 20, 29, number=3)
    assert segments.next_with_transactions(0, 5) == third
    assert segments.next_with_transactions(0, 30) is None
    assert segments.next_with_transactions(1, 5) is None


def test_copied_segments_with_transaction_index_are_listed(segments) -> None:
    copied(segments, 0, 9, number=1, is_transaction_index_empty=True)
    later = copied(segments, 20, 29, number=2)
    earlier = copied(segments, 10, 19, number=3)
    assert segments.with_transactions() == [earlier, later]
    segments.apply(remote_segment(30, 39, number=4))
    assert segments.with_transactions() == [earlier, later]
    segments.clear()
    assert segments.with_transactions() == []


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
