"""Retention drops segments by age, by size and by the log start."""

import pytest

from barnabas.log.config import LogConfig
from barnabas.log.retention import SegmentAge, plan_retention

NOW_MS = 1_000_000


def age(base_offset, end_offset, size, largest_timestamp_ms):
    return SegmentAge(base_offset, end_offset, size, lambda: largest_timestamp_ms)


SEGMENTS = [
    age(0, 10, 100, NOW_MS - 500),
    age(10, 20, 100, NOW_MS - 400),
    age(20, 30, 100, NOW_MS - 300),
    age(30, 40, 50, NOW_MS - 200),
]
KEEP = {"retention_ms": -1}


def count(segments=SEGMENTS, *, start=0, high_watermark=40, **settings):
    return plan_retention(
        segments,
        config=LogConfig(**settings),
        now_ms=NOW_MS,
        log_start_offset=start,
        high_watermark=high_watermark,
    ).segment_count


@pytest.mark.parametrize(
    ("retention_ms", "expected"),
    [(500, 0), (499, 1), (300, 2), (299, 3), (200, 3), (199, 4), (0, 4), (-1, 0)],
)
def test_segments_go_when_their_last_record_is_too_old(retention_ms, expected):
    assert count(retention_ms=retention_ms) == expected


@pytest.mark.parametrize(
    ("retention_bytes", "expected"),
    [(-1, 0), (350, 0), (251, 0), (250, 1), (249, 1), (51, 2), (50, 3), (1, 3), (0, 4)],
)
def test_segments_go_as_long_as_the_rest_is_large_enough(retention_bytes, expected):
    assert count(**KEEP, retention_bytes=retention_bytes) == expected


@pytest.mark.parametrize(("start", "expected"), [(0, 0), (9, 0), (10, 1), (39, 3), (40, 3)])
def test_segments_go_that_end_before_the_log_start(start, expected):
    assert count(start=start, **KEEP) == expected
    assert count(start=start, cleanup_policy=frozenset({"compact"})) == expected


def test_what_is_too_old_goes_too_after_what_is_over_the_size():
    young_first = [age(0, 10, 100, NOW_MS), *SEGMENTS[1:]]
    assert count(young_first, retention_bytes=250, retention_ms=350) == 2
    assert count(young_first, start=10, retention_ms=350) == 2
    assert count(young_first, retention_ms=350) == 0


def test_compacted_topics_keep_old_segments():
    assert count(retention_ms=0, retention_bytes=0, cleanup_policy=frozenset({"compact"})) == 0
    assert count(retention_ms=0, cleanup_policy=frozenset({"compact", "delete"})) == 4


@pytest.mark.parametrize(("high_watermark", "expected"), [(40, 4), (39, 3), (10, 1), (9, 0)])
def test_uncommitted_segments_stay(high_watermark, expected):
    assert count(retention_ms=0, high_watermark=high_watermark) == expected


def test_an_empty_active_segment_stays():
    assert count([*SEGMENTS, age(40, 40, 0, 0)], retention_ms=0) == 4
    assert count([age(40, 40, 0, 0)], retention_ms=0) == 0
