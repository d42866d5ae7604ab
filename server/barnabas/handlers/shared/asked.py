"""Partitions that a request names topic by topic, in one list.

The rule: a request may name very many, or topics without any, so others run in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from barnabas.coordinators.statemachine.decision import slices

if TYPE_CHECKING:
    from barnabas.serving.loop_budget import LoopBudget

T = TypeVar("T")
P = TypeVar("P")
R = TypeVar("R")

PER_SLICE = 500


async def each_partition(
    topics: Iterable[T],
    partitions: Callable[[T], Sequence[P]],
    name: Callable[[T, P], R],
    budget: LoopBudget,
) -> list[R]:
    """Return `name` of each partition and its topic, in the request's order."""
    named: list[R] = []
    for topic in topics:
        for some in slices(partitions(topic), PER_SLICE):
            named += [name(topic, partition) for partition in some]
            await budget.checkpoint()
        await budget.checkpoint()
    return named
