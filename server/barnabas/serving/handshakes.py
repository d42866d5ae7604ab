"""Threads for TLS handshakes.

The rule: few at a time. A signature takes a millisecond or several of a core, and whoever asks for many of them must not
take all cores from those who are served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.environment import Threads

AT_ONCE = 2


class Handshakes:
    """Runs steps of handshakes in threads; others wait for their turn in the order in which they came."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._limiter: trio.CapacityLimiter | None = None

    async def run(self, step: Callable[[], None]) -> None:
        """Run a step. Raises what it raises."""
        if self._limiter is None:
            self._limiter = trio.CapacityLimiter(AT_ONCE)
        await self._threads.run(step, limiter=self._limiter)
