"""The planner chooses the log to clean, how far, and the segments to join."""

import pytest

from barnabas.log.cleaner.planner import (
    CleanableRange,
    SegmentFacts,
    cleanable_range,
    dirtiest,
    first_dirty_offset,
    group_segments,
)

NOW_MS = 1_000_000
SEGMENTS = [
    SegmentFacts(0, 100, largest_timestamp=NOW_MS - 400, first_timestamp=NOW_MS - 450),
    SegmentFacts(10, 200, largest_timestamp=NOW_MS - 300, first_timestamp=NOW_MS - 350),
    SegmentFacts(20, 300, largest_timestamp=NOW_MS - 200, first_timestamp=NOW_MS - 250),
    SegmentFacts(30, 50, largest_timestamp=NOW_MS, first_timestamp=NOW_MS - 150),
]


def measure(*, dirty=0, stable=1_000, flushed=1_000, min_lag_ms=0, max_lag_ms=1 << 62, segments=SEGMENTS):
    return cleanable_range(
        segments,
        dirty_offset=dirty,
        last_stable_offset=stable,
        recovery_point=flushed,
        now_ms=NOW_MS,
        min_lag_ms=min_lag_ms,
        max_lag_ms=max_lag_ms,
    )


@pytest.mark.parametrize(
    ("checkpoint", "expected"), [(None, 5), (0, 5), (4, 5), (5, 5), (17, 17), (99, 99), (100, 5)]
)
def test_dirty_part_begins_at_a_checkpoint_within_the_log(checkpoint, expected):
    assert first_dirty_offset(checkpoint, 5, 99) == expected


@pytest.mark.parametrize(
    ("dirty", "cleanable", "ratio"),
    [(0, 600, 1.0), (5, 600, 1.0), (10, 500, 500 / 600), (20, 300, 0.5), (30, 0, 0.0), (35, 0, 0.0)],
)
def test_dirt_is_what_was_written_since(dirty, cleanable, ratio):
    dirt = measure(dirty=dirty)
    assert (dirt.cleanable_bytes, dirt.ratio, dirt.end_offset) == (cleanable, ratio, 30)


@pytest.mark.parametrize(
    ("stable", "end"), [(1_000, 30), (30, 30), (29, 20), (20, 20), (19, 10), (9, 0), (0, 0)]
)
def test_open_transactions_are_not_cleaned(stable, end):
    dirt = measure(stable=stable)
    assert dirt.end_offset == end
    assert dirt.cleanable_bytes == sum(segment.size for segment in SEGMENTS if segment.base_offset < end)


@pytest.mark.parametrize(("lag", "end"), [(0, 30), (200, 30), (201, 20), (300, 20), (301, 10), (401, 0)])
def test_young_segments_are_not_cleaned(lag, end):
    assert measure(min_lag_ms=lag).end_offset == end


@pytest.mark.parametrize(("flushed", "end"), [(1_000, 30), (30, 30), (29, 20), (20, 20), (10, 10), (0, 0)])
def test_segments_that_were_not_flushed_are_not_cleaned(flushed, end):
    assert measure(flushed=flushed).end_offset == end


@pytest.mark.parametrize(("lag", "overdue"), [(449, True), (450, False), (0, True)])
def test_old_dirt_is_overdue(lag, overdue):
    assert measure(max_lag_ms=lag).is_overdue is overdue
    assert measure(max_lag_ms=lag).is_due(1.0) is overdue


def test_a_log_is_due_above_its_ratio():
    assert measure(dirty=20).is_due(0.49)
    assert not measure(dirty=20).is_due(0.5)
    assert not measure(dirty=30).is_due(0.0)
    assert not measure(segments=SEGMENTS[-1:]).is_due(0.0)


def test_the_dirtiest_is_first():
    ranges = [CleanableRange(0, 1, 1, ratio, False) for ratio in (0.1, 0.9, 0.5)]
    assert dirtiest(enumerate(ranges)) == 1
    assert dirtiest([]) is None


def groups(segments, **limits):
    options = {"segment_bytes": 300, "index_bytes": 100, "end_offset": segments[-1].base_offset + 10} | limits
    return [[segment.base_offset for segment in group] for group in group_segments(segments, **options)]


def test_segments_are_joined_as_long_as_they_fit():
    segments = [SegmentFacts(10 * n, size) for n, size in enumerate([100, 200, 1, 299, 400, 5, 0, 5])]
    assert groups(segments) == [[0, 10], [20, 30], [40], [50, 60, 70]]


def test_segments_are_joined_as_long_as_their_indexes_fit():
    assert groups([SegmentFacts(n, 1, offset_index_size=40) for n in range(5)]) == [[0, 1], [2, 3], [4]]
    assert groups([SegmentFacts(n, 1, time_index_size=60) for n in range(3)]) == [[0], [1], [2]]


def test_segments_are_joined_as_long_as_offsets_are_in_reach():
    far = 1 << 31
    segments = [SegmentFacts(0, 1), SegmentFacts(far - 10, 1), SegmentFacts(far, 1)]
    assert groups(segments, end_offset=far + 1) == [[0, far - 10], [far]]
    assert groups([SegmentFacts(0, 1), SegmentFacts(5, 1)], end_offset=far) == [[0, 5]]
    assert groups([SegmentFacts(0, 1), SegmentFacts(5, 1)], end_offset=far + 1) == [[0], [5]]
    assert groups([SegmentFacts(0, 1), SegmentFacts(5, 0)], end_offset=far + 1) == [[0, 5]]
