"""Many items in slices, between which the event loop serves others."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from barnabas.serving.loop_budget import LoopBudget

T = TypeVar("T")

AT_ONCE = 100
"""Number of topics, logs or groups that are looked at between two looks at the loop's budget."""


async def in_slices(items: Iterable[T], budget: LoopBudget) -> AsyncIterator[Sequence[T]]:
    """Yield slices of `items`, which must not change; other tasks may run before each slice."""
    iterator = iter(items)
    while slice_ := list(islice(iterator, AT_ONCE)):
        await budget.checkpoint()
        yield slice_
