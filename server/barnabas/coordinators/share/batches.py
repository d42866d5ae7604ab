"""Persisted states of offset ranges, and how later ones are merged with earlier ones. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from barnabas.coordinators.share.dead_letters import DeadLetters


class StateBatch(NamedTuple):
    """Offsets `first` to `last` were delivered `deliveries` times and are in `state`."""

    first: int
    last: int
    state: int
    deliveries: int


def combine(current: Iterable[StateBatch], news: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    """Return the merged batches, disjoint and in order, from `start_offset` on (-1: all).

    Where batches overlap the one with more deliveries wins, and then the one in the higher state, whichever was written
    first: a delivery is never undone. Equal neighbours are joined.
    """
    batches = sorted(
        (StateBatch(max(batch.first, start_offset), batch.last, batch.state, batch.deliveries)
         for batch in (*current, *news) if batch.last >= start_offset),
        key=lambda batch: (batch.deliveries, batch.state),
    )  # fmt: skip
    edges = sorted({batch.first for batch in batches} | {batch.last + 1 for batch in batches})
    topic_partitions = {edge: position for position, edge in enumerate(edges)}
    winners: list[StateBatch | None] = [None] * len(edges)
    for batch in batches:  # stronger batches come later, over weaker ones
        for position in range(topic_partitions[batch.first], topic_partitions[batch.last + 1]):
            winners[position] = batch
    return joined(
        winner._replace(first=edges[position], last=edges[position + 1] - 1)
        for position, winner in enumerate(winners[:-1])
        if winner is not None
    )


S = TypeVar("S", StateBatch, "DeadLetters")


def joined(stretches: Iterable[S]) -> list[S]:
    """Join neighbours that differ only in their offsets, the first two fields."""
    out: list[S] = []
    for stretch in stretches:
        if out and out[-1].last + 1 == stretch.first and out[-1][2:] == stretch[2:]:
            out[-1] = out[-1]._replace(last=stretch.last)
        else:
            out.append(stretch)
    return out
