"""Batches of aborted transactions in a range of the log. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from barnabas.coordinators.share.inflight import Span
from barnabas.records.batch import BatchHeader


def aborted_batches(
    headers: Iterable[tuple[BatchHeader, bool]], aborted: Sequence[tuple[int, int]]
) -> list[Span]:
    """Return the spans of the batches that are hidden from readers of committed records.

    `headers` are pairs of a batch header and whether it is an abort marker; `aborted` are (first offset, producer id) of
    the aborted transactions there.
    """
    waiting = sorted(aborted, reverse=True)
    producers: set[int] = set()
    spans: list[Span] = []
    for header, is_abort_marker in headers:
        if not header.has_producer_id:
            continue
        while waiting and waiting[-1][0] <= header.last_offset:
            producers.add(waiting.pop()[1])
        if is_abort_marker:
            producers.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in producers:
            spans.append((header.base_offset, header.last_offset))
    return spans
