"""Plans of the log against the same rules said over lists, for many small random cases: retention, recovery, compaction."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from barnabas.log.cleaner.planner import CleanableRange, SegmentFacts, cleanable_range
from barnabas.log.config import LogConfig
from barnabas.log.retention import SegmentAge, plan_retention

NOW_MS = 1_000


# --- retention ----------------------------------------------------------------------------------------------------


def goes(segments, n, config, log_start, high_watermark):
    """Why the oldest segment, of which `n` have gone already, goes too; None if it stays."""
    size_of_rest = sum(size for _, _, size, _ in segments[n:])
    _, end, size, latest = segments[n]
    if end > high_watermark or (n == len(segments) - 1 and size == 0):
        return None
    if end <= log_start and n < len(segments) - 1:
        return "log start offset"
    if "delete" not in config.cleanup_policy:
        return None
    if 0 <= config.retention_bytes <= size_of_rest - size:
        return "retention.bytes"
    if 0 <= config.retention_ms < NOW_MS - latest:
        return "retention.ms"
    return None


ORDER = ["log start offset", "retention.bytes", "retention.ms"]


@pytest.mark.parametrize("seed", range(40))
def test_retention_asks_the_oldest_segment_again_and_again(seed):
    random = Random(seed)
    for _ in range(60):
        bases = sorted(random.sample(range(12), random.randint(1, 4)))
        ends = [*bases[1:], bases[-1] + random.randint(0, 3)]
        segments = [
            (base, end, 0 if base == end else random.randint(0, 3), NOW_MS - random.randint(0, 4))
            for base, end in zip(bases, ends, strict=True)
        ]
        config = LogConfig(
            cleanup_policy=frozenset(random.choice((["delete"], ["compact"], ["compact", "delete"]))),
            retention_bytes=random.randint(-1, 6),
            retention_ms=random.randint(-1, 4),
        )
        log_start, high_watermark = random.randint(0, 14), random.randint(0, 15)
        count, reasons, last = 0, [], 0
        while count < len(segments):
            reason = goes(segments, count, config, log_start, high_watermark)
            # A reason that comes first in order is not asked for again after a later one.
            if reason is None or ORDER.index(reason) < last:
                break
            last = ORDER.index(reason)
            reasons.append(reason)
            count += 1
        looked_at = []

        def age(base, end, size, latest, looked_at=looked_at):
            return SegmentAge(base, end, size, lambda: looked_at.append(base) or latest)

        plan = plan_retention(
            [age(*segment) for segment in segments],
            config=config,
            now_ms=NOW_MS,
            log_start_offset=log_start,
            high_watermark=high_watermark,
        )
        expected = ", ".join(sorted(set(reasons), key=ORDER.index))
        assert (plan.segment_count, plan.reason) == (count, expected), (seed, segments, config, log_start)
        if config.retention_ms < 0 or not config.is_deleted:
            assert not looked_at  # that costs a look into the time index


# --- what a crash leaves ------------------------------------------------------------------------------------------


def name(base, suffix, mark=""):
    return f"{base:020d}{suffix}{mark}"


# --- compaction ---------------------------------------------------------------------------------------------------


def drawn_segments(random):
    bases = sorted(random.sample(range(20), random.randint(1, 5)))
    return [
        SegmentFacts(
            base,
            random.randint(0, 3),
            random.randint(0, 2),
            random.randint(0, 2),
            NOW_MS - random.randint(0, 6),
            random.choice((-1, 0, *(NOW_MS - age for age in range(7)))),
        )
        for base in bases
    ]


@pytest.mark.parametrize("seed", range(40))
def test_what_may_be_cleaned(seed):
    random = Random(seed)
    for _ in range(60):
        segments = drawn_segments(random)
        dirty_offset, stable, flushed = (random.randint(0, 22) for _ in range(3))
        min_lag_ms, max_lag_ms = random.choice((0, 1, 3, 5)), random.choice((-1, 0, 2, 4, 9))
        range_ = cleanable_range(
            segments,
            dirty_offset=dirty_offset,
            last_stable_offset=stable,
            recovery_point=flushed,
            now_ms=NOW_MS,
            min_lag_ms=min_lag_ms,
            max_lag_ms=max_lag_ms,
        )
        closed = [(segment, following.base_offset) for segment, following in pairwise(segments)]
        dirty = [segment for segment, end in closed if end > dirty_offset]
        young = [part for part in dirty if min_lag_ms and NOW_MS - part.largest_timestamp < min_lag_ms]
        limit = min([stable, flushed, segments[-1].base_offset, *(part.base_offset for part in young[:1])])
        limit = max(limit, dirty_offset)
        beyond = [segment.base_offset for segment, end in closed if end > limit]
        end_offset = beyond[0] if beyond else segments[-1].base_offset
        cleanable = sum(part.size for part in dirty if part.base_offset < end_offset)
        clean = sum(segment.size for segment, end in closed if end <= dirty_offset)
        stamps = [part.first_timestamp for part in dirty if part.first_timestamp > 0]
        assert range_ == CleanableRange(
            dirty_offset,
            end_offset,
            cleanable,
            cleanable / (clean + cleanable) if clean + cleanable else 0.0,
            bool(stamps) and NOW_MS - min(stamps) > max(max_lag_ms, 0),
        ), (seed, segments)
        for ratio in (0.0, 0.3, 0.5, range_.ratio, 1.0):
            is_due = cleanable > 0 and (range_.is_overdue or range_.ratio > ratio)
            assert range_.is_due(ratio) is is_due
