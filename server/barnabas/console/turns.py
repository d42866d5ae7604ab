"""Turns of visitors at what costs much, by some key, and at reading records.

The rule: a number of each at a time, so that what one visitor asks for keeps no other from being answered, and what all of
them hold in memory has a bound.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from barnabas.console.base import ConsoleError

READS_MAX = 8
"""Pages and files that are read at the same time: each fetches ahead, and holds its rows."""
OWNER_READS_MAX = 2
"""Those of them that are of one visitor."""


@dataclass(slots=True)
class _Turn:
    limiter: trio.CapacityLimiter
    count: int = field(default=0)


class Turns:
    """Turns by some key, a number of each at a time; a key without a waiter is forgotten."""

    def __init__(self, at_a_time: int, waiting_max: int | None = None) -> None:
        self._at_a_time = at_a_time
        self._waiting_max = waiting_max
        self._turns: dict[Hashable, _Turn] = {}

    @asynccontextmanager
    async def turn(self, key: Hashable) -> AsyncIterator[None]:
        """Wait for a turn. Raises ConsoleError where too many wait."""
        turn = self._turns.setdefault(key, _Turn(trio.CapacityLimiter(self._at_a_time)))
        if self._waiting_max is not None and turn.count > self._waiting_max:
            raise ConsoleError(429, "too many requests like this one are waiting: try again in a few seconds")
        turn.count += 1
        try:
            async with turn.limiter:
                yield
        finally:
            turn.count -= 1
            if not turn.count:
                del self._turns[key]


class Reads:
    """Pages and files that visitors read."""

    def __init__(self) -> None:
        self._owners = Turns(OWNER_READS_MAX)
        self._all = trio.CapacityLimiter(READS_MAX)

    @asynccontextmanager
    async def of(self, owner: Hashable) -> AsyncIterator[None]:
        """Wait until few others are read, of this visitor and of all."""
        async with self._owners.turn(owner), self._all:
            yield
