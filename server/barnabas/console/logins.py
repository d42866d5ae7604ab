"""Turns of logins: an attacker that guesses passwords waits, and no other visitor waits for it.

The rule: the logins of one user from one address are tried one after the other, with a rest after each that fails. Those of
one address, and all of them, are a few at a time, and no rest is part of that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from barnabas.console.turns import Turns

LOGINS_MAX = 4
"""Logins that are tried at the same time."""
ADDRESS_LOGINS_MAX = 2
"""Those of them that come from one address."""
WAITING_MAX = 8
"""Logins of one user from one address that wait for each other; more are refused."""


class Logins:
    """The logins of all visitors."""

    def __init__(self) -> None:
        self._pairs = Turns(1, WAITING_MAX)
        self._addresses = Turns(ADDRESS_LOGINS_MAX)
        self._all = trio.CapacityLimiter(LOGINS_MAX)

    @asynccontextmanager
    async def of(self, user: str, address: str) -> AsyncIterator[None]:
        """Wait until no other login of a user from an address is tried, or rests. Raises ConsoleError."""
        async with self._pairs.turn((user, address)):
            yield

    @asynccontextmanager
    async def trying(self, address: str) -> AsyncIterator[None]:
        """Wait until few others are tried."""
        async with self._addresses.turn(address), self._all:
            yield
