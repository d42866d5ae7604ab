"""Walks through several partitions: the order of what they give, where they stop, and what they have covered then."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from barnabas.console.batches import Row
from barnabas.console.reader import Place, Scanned, Span
from barnabas.console.walking import Limits, Walk, Window

A, B, C = ("t", 0), ("t", 1), ("t", 2)
Log = Mapping[Place, Sequence[tuple[int, int]]]
"""Offsets with their times, by partition."""
MANY = 1 << 40


class Reader:
    """Reads logs that a test gives; what it was asked is kept."""

    def __init__(self, log: Log, *, size: int = 1, matching: int = 1) -> None:
        self.log = log
        self.size = size
        self.matching = matching
        """Every so many offsets match."""
        self.spans: list[dict[Place, Span]] = []

    async def scan(self, spans: Mapping[Place, Span]) -> dict[Place, Scanned]:
        self.spans.append(dict(spans))
        results = {}
        for place, span in spans.items():
            result = results[place] = Scanned(span, span.start)
            for offset, at in self.log[place]:
                if not span.start <= offset < span.end or result.is_done:
                    continue
                result.records += 1
                result.first = at if result.first is None else result.first
                result.last, result.at = at, offset + 1
                if offset % self.matching == 0:
                    result.rows.append(Row(place[1], offset, at, b"x" * self.size))
            if span.is_for_last:
                del result.rows[: -span.rows_max]
            if not result.is_done:
                result.at = span.end
            result.size = sum(len(row.content) for row in result.rows)
        return results


def window_of(log: Log) -> Window:
    return Window(dict.fromkeys(log, 0), {place: records[-1][0] + 1 for place, records in log.items()})


async def walked(
    reader: Reader, window: Window, limit: int, width: int = 2, records: int = MANY, *, newest: bool
) -> tuple[list[tuple[int, int]], Walk]:
    """Return partitions and offsets of what a walk gives."""
    source: Any = reader
    walk = Walk(source, window, Limits(limit, records, width), is_newest_first=newest)
    rows: list[Row] = []
    while not walk.is_done:
        rows += await walk.step()
    rows += walk.flush()
    return [(row.partition, row.offset) for row in rows], walk


def in_order(log: Log, *, newest: bool) -> list[tuple[int, int]]:
    rows = [(at, place[1], offset) for place, records in log.items() for offset, at in records]
    rows.sort(key=lambda row: (-row[0], row[1], -row[2]) if newest else row)
    return [(partition, offset) for _, partition, offset in rows]


def some_log(seed: int) -> Log:
    """Return logs with times that grow with their offsets, with gaps in offsets."""
    chance = random.Random(seed)
    log = {}
    for place in (A, B, C):
        at = offset = 0
        records = []
        for _ in range(chance.choice((1, 5, 40, 200))):
            at += chance.choice((0, 1, 3, 50))
            offset += chance.choice((1, 1, 1, 2, 500))
            records.append((offset, at))
        log[place] = records
    return log


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("newest", [True, False])
async def test_a_walk_gives_the_first_of_all_partitions_by_time(seed: int, newest: bool) -> None:
    log = some_log(seed)
    expected = in_order(log, newest=newest)
    for limit in (1, 7, 25, 1_000):
        rows, walk = await walked(Reader(log), window_of(log), limit, newest=newest)
        assert rows == expected[:limit]
        assert walk.is_cut == (limit < len(expected)), limit


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("newest", [True, False])
async def test_pages_one_after_the_other_give_each_record_once(seed: int, newest: bool) -> None:
    log = some_log(seed)
    window, pages = window_of(log), []
    for _ in range(1_000):
        rows, walk = await walked(Reader(log), window, 9, width=3, newest=newest)
        pages += rows
        if not rows:
            break
        rest = walk.rest
        window = Window(window.starts, rest.starts) if newest else Window(rest.ends, window.ends)
    assert pages == in_order(log, newest=newest)


async def test_walk_ends_after_its_records_and_reports_its_progress() -> None:
    reader = Reader({A: [(n, n) for n in range(1_000)]}, matching=10**6)
    rows, walk = await walked(reader, Window({A: 1}, {A: 1_000}), 5, width=100, records=150, newest=True)
    assert (rows, walk.scanned, walk.covered, walk.total, walk.is_cut) == ([], 300, 300, 999, True)
    assert walk.rest.starts == {A: 700}
