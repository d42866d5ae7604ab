"""Plans of the log against the same rules said over lists, for many small random cases: retention, recovery, compaction."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from barnabas.log.cleaner.planner import (
    CleanableRange,
    SegmentFacts,
    cleanable_range,
    dirtiest,
    first_dirty_offset,
    group_segments,
)
from barnabas.log.config import LogConfig
from barnabas.log.recovery.plan import (
    Rename,
    first_to_check,
    plan_leftovers,
    plan_swap,
    stray_snapshots,
    take_inventory,
)
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

        found = plan_retention(
            [age(*segment) for segment in segments],
            config=config,
            now_ms=NOW_MS,
            log_start_offset=log_start,
            high_watermark=high_watermark,
        )
        expected = ", ".join(sorted(set(reasons), key=ORDER.index))
        assert (found.segment_count, found.reason) == (count, expected), (seed, segments, config, log_start)
        if config.retention_ms < 0 or not config.is_deleted:
            assert not looked_at  # that costs a look into the time index


# --- what a crash leaves ------------------------------------------------------------------------------------------

SUFFIXES = [".log", ".index", ".timeindex", ".txnindex", ".snapshot"]
MARKS = ["", ".deleted", ".cleaned", ".swap"]
OTHERS = [
    "leader-epoch-checkpoint",
    "partition.metadata",
    "x.tmp",
    "y.deleted",
    "00000000000000000003.log.damaged-4",
]


def name(base, suffix, mark=""):
    return f"{base:020d}{suffix}{mark}"


@pytest.mark.parametrize("seed", range(40))
def test_leftovers_swaps_and_the_inventory(seed):
    random = Random(seed)
    for _ in range(30):
        triples = [
            (random.randint(0, 9), random.choice(SUFFIXES), random.choice(MARKS))
            for _ in range(random.randint(0, 14))
        ]
        triples = list(dict.fromkeys(triples))
        others = random.sample(OTHERS, random.randint(0, 3))
        files = [name(*one) for one in triples] + others
        random.shuffle(files)

        cleaned = [base for base, _, mark in triples if mark == ".cleaned"]
        unfinished = {one for one in triples if one[2] == ".swap" and cleaned and one[0] >= min(cleaned)}
        swaps = {one for one in triples if one[2] == ".swap"} - unfinished
        rubbish = {one for one in triples if one[2] in (".deleted", ".cleaned")} | unfinished
        plan = plan_leftovers(files)
        assert sorted(plan.remove) == sorted(
            [name(*one) for one in rubbish] + [one for one in others if one in ("x.tmp", "y.deleted")]
        )
        assert sorted(plan.swap_files) == sorted(name(*one) for one in swaps)
        assert sorted(plan.swapped_logs) == sorted(base for base, suffix, _ in swaps if suffix == ".log")

        ranges = [(base, base + random.randint(0, 4)) for base in plan.swapped_logs]
        left = [one for one in files if one not in plan.remove]
        removed, renames = plan_swap(left, plan, ranges)
        low, high = min((a for a, _ in ranges), default=0), max((b for _, b in ranges), default=0)
        covered = [one for one in triples if not one[2] and low <= one[0] < high]
        assert removed == (sorted(name(*one) for one in covered) if swaps else [])
        assert renames == [
            Rename(name(*one), name(*one[:2])) for one in sorted(swaps, key=lambda one: name(*one))
        ]

        plain = {one[:2] for one in triples if not one[2]}
        bases = sorted(base for base, suffix in plain if suffix == ".log")
        found = take_inventory(files)
        assert [segment.base_offset for segment in found.segments] == bases
        for segment in found.segments:
            has = {suffix for base, suffix in plain if base == segment.base_offset}
            assert segment.has_offset_index == (".index" in has)
            assert segment.has_time_index == (".timeindex" in has)
            assert segment.has_txn_index == (".txnindex" in has)
            assert segment.has_indexes == ({".index", ".timeindex"} <= has)
        assert found.snapshots == sorted(base for base, suffix in plain if suffix == ".snapshot")
        assert sorted(found.orphans) == sorted(
            name(*one) for one in plain if one[1] not in (".log", ".snapshot") and one[0] not in bases
        )


def test_where_checks_begin_and_which_snapshots_stay():
    random = Random(3)
    for _ in range(2_000):
        bases = sorted(random.sample(range(10), random.randint(0, 4)))
        point = random.randint(0, 11)
        assert first_to_check(bases, point, is_clean=True) == len(bases)
        upto = [n for n, base in enumerate(bases) if base <= point]
        assert first_to_check(bases, point, is_clean=False) == (upto[-1] if upto else 0)
        snapshots = random.sample(range(12), random.randint(0, 5))
        strays = sorted(set(snapshots) - set(bases))
        if strays and strays[-1] >= (bases[-1] if bases else 0):
            strays.pop()  # that of the log's end
        assert stray_snapshots(sorted(snapshots), bases) == strays


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
        found = cleanable_range(
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
        young = [one for one in dirty if min_lag_ms and NOW_MS - one.largest_timestamp < min_lag_ms]
        limit = min([stable, flushed, segments[-1].base_offset, *(one.base_offset for one in young[:1])])
        limit = max(limit, dirty_offset)
        beyond = [segment.base_offset for segment, end in closed if end > limit]
        end_offset = beyond[0] if beyond else segments[-1].base_offset
        cleanable = sum(one.size for one in dirty if one.base_offset < end_offset)
        clean = sum(segment.size for segment, end in closed if end <= dirty_offset)
        stamps = [one.first_timestamp for one in dirty if one.first_timestamp > 0]
        assert found == CleanableRange(
            dirty_offset,
            end_offset,
            cleanable,
            cleanable / (clean + cleanable) if clean + cleanable else 0.0,
            bool(stamps) and NOW_MS - min(stamps) > max(max_lag_ms, 0),
        ), (seed, segments)
        for ratio in (0.0, 0.3, 0.5, found.ratio, 1.0):
            is_due = cleanable > 0 and (found.is_overdue or found.ratio > ratio)
            assert found.is_due(ratio) is is_due


@pytest.mark.parametrize("seed", range(20))
def test_groups_are_as_large_as_they_may_be(seed):
    random = Random(seed)
    for _ in range(100):
        segments = drawn_segments(random)
        if random.random() < 0.5:  # far apart
            segments = [one._replace(base_offset=one.base_offset * (1 << 29)) for one in segments]
        end_offset = segments[-1].base_offset + random.choice((0, 1, 5, 1 << 31))
        segment_bytes, index_bytes = random.randint(0, 6), random.randint(0, 4)

        def fits(group, end, segment_bytes=segment_bytes, index_bytes=index_bytes):
            reach = end - 1 - group[0].base_offset
            return (
                sum(one.size for one in group) <= segment_bytes
                and sum(one.offset_index_size for one in group) <= index_bytes
                and sum(one.time_index_size for one in group) <= index_bytes
                and (not group[-1].size or reach <= (1 << 31) - 1)
            )

        expected = []
        ends = [*(one.base_offset for one in segments[1:]), end_offset]
        for segment, end in zip(segments, ends, strict=True):
            if expected and fits([*expected[-1], segment], end):
                expected[-1].append(segment)
            else:
                expected.append([segment])
        found = group_segments(
            segments, segment_bytes=segment_bytes, index_bytes=index_bytes, end_offset=end_offset
        )
        assert found == expected, seed


def test_the_dirty_part_begins_in_the_log():
    for start, end in ((0, 0), (0, 3), (2, 5)):
        for checkpoint in (None, *range(7)):
            inside = checkpoint is not None and start <= checkpoint <= end
            assert first_dirty_offset(checkpoint, start, end) == (checkpoint if inside else start)


@pytest.mark.parametrize("ratios", [[], [0.0], [0.1, 0.5, 0.3], [0.5, 0.5], [0.1, 0.9]])
def test_the_dirtiest_of_them(ratios):
    ranges = [(10 + n, CleanableRange(9 - n, 5, 9 - n, ratio, bool(n % 2))) for n, ratio in enumerate(ratios)]
    assert dirtiest(ranges) == (10 + ratios.index(max(ratios)) if ratios else None)
