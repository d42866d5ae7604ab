"""Choice of the records that a fetch acquires. Pure.

The rule: records that were delivered before go first. Records that fail repeatedly are delivered in ever smaller
portions, and alone at their last attempt, so that a bad record does not cause good ones to be archived.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from barnabas.coordinators.share.inflight import AVAILABLE, Run, Span

NO_LIMIT = 2**63 - 1
BATCH_OPTIMIZED, RECORD_LIMIT = 0, 1
"""Acquire modes (KIP-1206): whole record batches, or a strict limit of records."""


@dataclass(frozen=True, slots=True)
class AcquireRequest:
    """Request of a member for at most `records_max` records (a whole batch may go beyond it unless `strict`).

    New records are acquired in portions of about `batch_size`, cut where batches of the log begin.
    """

    member: str
    records_max: int
    batch_size: int = NO_LIMIT
    strict: bool = False


class Acquired(NamedTuple):
    """Offsets `first` to `last` were acquired; `deliveries` counts their deliveries."""

    first: int
    last: int
    deliveries: int


def again(
    runs: Sequence[Run],
    first: int,
    last: int,
    acquire_request: AcquireRequest,
    deliveries_max: int,
    *,
    after_others: bool,
) -> tuple[list[Span], bool]:
    """Return the offsets of these runs, between `first` and `last`, to deliver again; and whether more records may follow.

    `after_others`: whether the same fetch has already acquired other records.
    """
    picked: list[Span] = []
    count = 0
    few_from = fewer_from(deliveries_max)
    for batch, group in groupby(runs, key=lambda run: run.batch):
        if count >= acquire_request.records_max:
            break
        available = [run for run in group if run.state is AVAILABLE and run.deliveries]
        if not available:
            continue
        fragile = max(run.deliveries for run in available) >= few_from
        if fragile and (count or after_others):
            return picked, False
        count_max = acquire_request.records_max - count if acquire_request.strict else NO_LIMIT
        for span in _portion(available, batch, first, last, count_max, deliveries_max):
            picked.append(span)
            count += span[1] - span[0] + 1
        if fragile:
            return picked, False
    return picked, True


def fewer_from(deliveries_max: int) -> int:
    """Return the number of deliveries from which on portions shrink."""
    return max(2, (deliveries_max + 1) // 2)


def _portion(
    runs: Sequence[Run], batch: Span, first: int, last: int, count_max: int, deliveries_max: int
) -> Iterator[Span]:
    """Yield the portions of one batch's available runs."""
    few_from = fewer_from(deliveries_max)
    cap, taken = count_max, 0
    capped = False
    for run in runs:
        start, end = max(run.first, first), min(run.last, last)
        if start > end:
            continue
        if deliveries_max > 2 and run.deliveries == deliveries_max - 1:
            if not taken:
                yield start, start
            return
        if run.deliveries >= few_from and not capped:
            size = batch[1] - batch[0] + 1
            cap, capped = min(cap, max(1, size >> (run.deliveries - few_from + 1))), True
        end = min(end, start + cap - taken - 1)
        if end < start:
            return
        yield start, end
        taken += end - start + 1


def fresh(
    batches: Sequence[Span], first: int, last: int, acquire_request: AcquireRequest, count_max: int
) -> list[Span]:
    """Return the portions in which offsets `first` to `last`, never delivered, are acquired, about `count_max` in all."""
    if last - first + 1 > count_max:
        cut = first + count_max - 1
        if not acquire_request.strict:
            # extended to the end of the batch: a client gets whole batches
            cut = next((end for base, end in batches if base <= cut <= end), cut)
        last = min(cut, last)
    spans: list[Span] = []
    if not acquire_request.strict and last - first + 1 > acquire_request.batch_size:
        for base, _ in batches:
            if base > last:
                break
            if base - first >= acquire_request.batch_size:
                spans.append((first, base - 1))
                first = base
    spans.append((first, last))
    return spans
