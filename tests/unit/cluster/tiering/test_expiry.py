"""Expiry of remote segments: which go by time, size, log start and leader epochs, and where the log begins then."""

from __future__ import annotations

from uuid import UUID

import pytest

from barnabas.cluster.tiering.expiry import TieredLog, plan_expiry
from barnabas.log.config import LogConfig
from barnabas.tiered.segment import SegmentState
from tests.support.remote_segments import remote_segment

FINISHED, STARTED = SegmentState.COPY_FINISHED, SegmentState.COPY_STARTED
WRITTEN_MS = 1_700_000_000_000
"""Largest timestamp of each segment."""
KEEPS_ALL = LogConfig(retention_bytes=-1, retention_ms=-1)


def segments_of(*epochs, count=3, state=FINISHED):
    """Segments of 100 offsets and 1,000 bytes each, numbered from 1, of one leader epoch or as given."""
    return [
        remote_segment(
            100 * index,
            100 * index + 99,
            epochs[index] if epochs else ((0, 100 * index),),
            number=index + 1,
            state=state,
        )
        for index in range(count)
    ]


def log_of(*epochs, start=0, end=400, local_bytes=500):
    return TieredLog(epochs or ((0, 0),), start, end, local_bytes)


def numbers(expiry) -> list[int]:
    return [segment.segment_id.int for segment in expiry.segments]


@pytest.mark.parametrize(
    ("now_ms", "expired", "start"),
    [(WRITTEN_MS + 1000, [], 0), (WRITTEN_MS + 1001, [1, 2, 3], 300)],
    ids=["as old as allowed", "older"],
)
def test_segments_expire_by_their_largest_timestamp(now_ms, expired, start) -> None:
    config = LogConfig(retention_bytes=-1, retention_ms=1000)
    expiry = plan_expiry(segments_of(), log_of(), config, now_ms=now_ms)
    assert (numbers(expiry), expiry.log_start_offset) == (expired, start)


@pytest.mark.parametrize(
    ("retention_bytes", "expired"),
    [(3_500, []), (3_499, []), (2_501, []), (2_500, [1]), (1_500, [1, 2]), (0, [1, 2, 3])],
)
def test_whole_segments_expire_that_exceed_the_size(retention_bytes, expired) -> None:
    config = LogConfig(retention_bytes=retention_bytes, retention_ms=-1)
    expiry = plan_expiry(segments_of(), log_of(), config, now_ms=WRITTEN_MS)
    assert (numbers(expiry), expiry.log_start_offset) == (expired, 100 * len(expired))


def test_empty_cleanup_policy_keeps_segments_of_any_age_and_size() -> None:
    config = LogConfig(retention_bytes=0, retention_ms=0, cleanup_policy=frozenset())
    expiry = plan_expiry(segments_of(), log_of(), config, now_ms=2 * WRITTEN_MS)
    assert (numbers(expiry), expiry.log_start_offset) == ([], 0)


def test_segments_before_the_log_start_go() -> None:
    expiry = plan_expiry(segments_of(), log_of(start=150), KEEPS_ALL, now_ms=0)
    assert (numbers(expiry), expiry.log_start_offset) == ([1], 150)


def test_unfinished_copies_go_and_those_in_hand_stay() -> None:
    segments = segments_of(count=2, state=STARTED)
    expiry = plan_expiry(segments, log_of(), KEEPS_ALL, now_ms=0, in_use={UUID(int=2)})
    assert (numbers(expiry), expiry.log_start_offset) == ([1], 0)


def test_epochs_that_the_log_has_forgotten_belong_to_it() -> None:
    segments = segments_of(((0, 0), (1, 50)), ((1, 100),), ((1, 200), (3, 250)))
    log, config = log_of((1, 60), (3, 250), start=60), LogConfig(retention_bytes=0, retention_ms=-1)
    assert numbers(plan_expiry(segments, log, KEEPS_ALL, now_ms=0)) == []
    assert numbers(plan_expiry(segments, log, config, now_ms=0)) == [1, 2, 3]


@pytest.mark.parametrize(
    ("epochs", "next_start"),
    [
        (((2, 0),), 100), (((1, 0), (2, 40)), 100), (((1, 0), (3, 40)), 100), (((1, 0), (3, 10)), 100),
        (((3, 0),), 100), (((1, 0), (3, 20)), 90),
    ],
    ids=["lacks it", "lacks the second", "has it earlier", "has it later", "has only its end", "ends it earlier"],
)  # fmt: skip
def test_segments_of_another_history_are_kept_and_not_counted(epochs, next_start) -> None:
    segments = [remote_segment(0, 99, epochs, number=1, state=FINISHED)]
    log = log_of((1, 5), (3, 20), (4, next_start), start=5, end=400, local_bytes=0)
    config = LogConfig(retention_bytes=0, retention_ms=-1)
    expiry = plan_expiry(segments, log, config, now_ms=0)
    assert (numbers(expiry), expiry.log_start_offset) == ([], 5)


def test_segments_of_another_history_go_with_their_offsets() -> None:
    segments = [remote_segment(0, 99, ((2, 0),), number=1, state=FINISHED)]
    expiry = plan_expiry(segments, log_of((1, 0), (3, 100), start=100), KEEPS_ALL, now_ms=0)
    assert (numbers(expiry), expiry.log_start_offset) == ([1], 100)
