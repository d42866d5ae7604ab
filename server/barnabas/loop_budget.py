"""The time that one turn of the event loop may take, and who must give way when it is used up.

The rule: a turn is everything that runs between two waits for input or output, whoever runs it. Work whose length a
client or the broker's state decides is done in small pieces with `LoopBudget.checkpoint()` between them: while the
turn is young that costs one look at the clock, and once its budget is used up everybody who comes by gives way. So
the wait of a client that sends little does not grow with the number of those that ask for much.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import trio

BUDGET_SECONDS = 0.005


class LoopBudget(trio.abc.Instrument):
    """Measures the turns of an event loop.

    Lifecycle: `with budget:` inside `trio.run` for as long as turns are to be measured. Outside of it nothing is
    measured, and `checkpoint` lets others run each time that the budget has passed since it last did.
    """

    def __init__(
        self, *, budget_seconds: float = BUDGET_SECONDS, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._clock = clock
        self._budget_seconds = budget_seconds
        self._ends = clock() + budget_seconds
        self._is_measured = False

    def __enter__(self) -> LoopBudget:
        trio.lowlevel.add_instrument(self)
        self._is_measured = True
        return self

    def __exit__(self, *_: object) -> None:
        trio.lowlevel.remove_instrument(self)
        self._is_measured = False

    def after_io_wait(self, timeout: float) -> None:  # noqa: ARG002 (the signature is trio's)
        """A turn begins."""
        self._ends = self._clock() + self._budget_seconds

    @property
    def is_used_up(self) -> bool:
        """Whether this turn has taken so long that whoever has more to do must give way."""
        return self._clock() >= self._ends

    async def checkpoint(self) -> None:
        """Let others run if this turn has used up its budget; otherwise nothing is waited for.

        What others may change must be looked at again afterwards. A checkpoint of trio only where it lets others run.
        """
        if self._clock() >= self._ends:
            await trio.lowlevel.checkpoint()
            if not self._is_measured:
                self._ends = self._clock() + self._budget_seconds
