"""Turns of visitors at reading records.

The rule: a number of each at a time, so that what one visitor asks for keeps no other from being answered, and what all of
them hold in memory has a bound.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

import trio

from barnabas.network.turns import Turns

READS_MAX = 8
"""Pages and files that are read at the same time: each fetches ahead, and holds its rows."""
OWNER_READS_MAX = 2
"""Those of them that are of one visitor."""


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
