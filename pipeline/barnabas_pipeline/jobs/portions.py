"""Fair portions: the offsets of each topic in a round, and the tasks that share a Spark task. Pure.

The rule: a small demand is met in full; the remainder is shared evenly by the larger ones.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def share(demands: Sequence[int], total: int) -> list[int]:
    """Share a total fairly: no share exceeds its demand, and shares below their demand differ by at most one.

    A demand above 0 gets at least 1, even if the total is smaller than that.
    """
    shares = [0] * len(demands)
    hungry = sorted((n for n, want in enumerate(demands) if want), key=lambda n: demands[n])
    total = max(total, len(hungry))
    for done, n in enumerate(hungry):
        shares[n] = min(demands[n], -(-total // (len(hungry) - done)))
        total -= shares[n]
    return shares


def bins(items: Sequence[T], count: int, size: Callable[[T], int]) -> list[list[T]]:
    """Distribute items over at most `count` bins of about the same size, none of them empty."""
    heap: list[tuple[int, int, list[T]]] = [(0, n, []) for n in range(min(count, len(items)))]
    for item in sorted(items, key=size, reverse=True):
        filled, n, held = heap[0]
        held.append(item)
        heapq.heapreplace(heap, (filled + max(1, size(item)), n, held))
    return [held for _, _, held in sorted(heap, key=lambda item: item[1])]
