"""Limits of parallel expensive requests, by key, and of logins.

The rule: only some requests of a key run in parallel, so that one visitor does not block others. An attacker that
guesses passwords waits, and no other visitor waits for it: the logins of one user from one address are tried one after
the other, with a pause after each failure; the number of parallel logins of one address, and of all, is limited, without
counting pauses.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

from barnabas.errors import AnswerError

BUSY = "too many requests like this one are waiting: try again in a few seconds"
LOGINS_MAX = 4
"""Logins that are tried at the same time."""
ADDRESS_LOGINS_MAX = 2
"""Parallel logins from one address."""
WAITING_MAX = 8
"""Logins of one user from one address that wait for each other; more are refused."""


@dataclass(slots=True)
class _Turn:
    limiter: trio.CapacityLimiter
    count: int = field(default=0)


class Turns:
    """Limits parallel work by key; a key without waiters is dropped."""

    def __init__(self, at_a_time: int, waiting_max: int | None = None) -> None:
        self._at_a_time = at_a_time
        self._waiting_max = waiting_max
        self._turns: dict[Hashable, _Turn] = {}

    @asynccontextmanager
    async def turn(self, key: Hashable) -> AsyncIterator[None]:
        """Wait for a turn. Raises AnswerError where too many wait."""
        turn = self._turns.setdefault(key, _Turn(trio.CapacityLimiter(self._at_a_time)))
        if self._waiting_max is not None and turn.count > self._waiting_max:
            raise AnswerError(429, BUSY)
        turn.count += 1
        try:
            async with turn.limiter:
                yield
        finally:
            turn.count -= 1
            if not turn.count:
                del self._turns[key]


class Logins:
    """The logins of all visitors."""

    def __init__(self) -> None:
        self._pairs = Turns(1, WAITING_MAX)
        self._addresses = Turns(ADDRESS_LOGINS_MAX)
        self._all = trio.CapacityLimiter(LOGINS_MAX)

    @asynccontextmanager
    async def of(self, user: str, address: str) -> AsyncIterator[None]:
        """Wait until no other login of a user from an address is tried, or rests. Raises AnswerError."""
        async with self._pairs.turn((user, address)):
            yield

    @asynccontextmanager
    async def trying(self, address: str) -> AsyncIterator[None]:
        """Wait until few others are tried."""
        async with self._addresses.turn(address), self._all:
            yield
