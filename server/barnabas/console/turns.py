"""Limits of parallel reads by visitors.

The rule: limited for each visitor and in all, so that one visitor does not block others, and their memory is bounded.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

import trio

from barnabas.network.turns import Turns

READS_MAX = 8
"""Pages and files that are read at the same time: each fetches ahead, and holds its rows."""
OWNER_READS_MAX = 2
"""Parallel reads of one visitor."""


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
