"""The time that one turn of the event loop may take, and who must give way when it is used up.

The rule: a turn is everything that runs between two waits for input or output, whoever runs it. Work whose length a
client or the broker's state decides is done in small pieces with `LoopBudget.checkpoint()` between them: while the
turn is young that costs one look at the clock, and once its budget is used up everybody who comes by gives way. So
the wait of a client that sends little does not grow with the number of those that ask for much.

Turns that are too long all the same are counted, with the task whose step was the longest of the turn.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

import trio

BUDGET_SECONDS = 0.005
STALL_SECONDS = 0.2
"""From this length on a turn is reported, not only counted."""

BOUNDS_SECONDS = (0.005, 0.02, 0.05, 0.2, 1.0)


@dataclass(frozen=True, slots=True)
class Stall:
    """A turn that was too long: its steps, and the longest of these with its task."""

    seconds: float
    steps: int
    step_seconds: float
    task: trio.lowlevel.Task | None


class LoopBudget(trio.abc.Instrument):
    """Measures the turns of an event loop.

    Lifecycle: `with budget:` inside `trio.run` for as long as turns are to be measured. Outside of it nothing is
    measured, and `checkpoint` lets others run each time that the budget has passed since it last did.

    `longest_seconds` is the longest turn so far. `long_turns[n]` counts the turns longer than `BOUNDS_SECONDS[n]` and
    not longer than the next bound. `on_long_turn` is called after each of them.
    """

    def __init__(
        self, *, budget_seconds: float = BUDGET_SECONDS, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._clock = clock
        self._budget_seconds = budget_seconds
        self._ends = clock() + budget_seconds
        self._is_measured = False
        self._turn_began = self._step_began = clock()
        self._steps = 0
        self._task: trio.lowlevel.Task | None = None
        self._longest_step = 0.0
        self._longest_task: trio.lowlevel.Task | None = None
        self.longest_seconds = 0.0
        self.long_turns = [0] * len(BOUNDS_SECONDS)
        self.on_long_turn: Callable[[Stall], object] = bool

    def __enter__(self) -> LoopBudget:
        self._begin_turn()
        trio.lowlevel.add_instrument(self)
        self._is_measured = True
        return self

    def __exit__(self, *_: object) -> None:
        trio.lowlevel.remove_instrument(self)
        self._is_measured = False
        self._task = self._longest_task = None

    def after_io_wait(self, timeout: float) -> None:  # noqa: ARG002 (the signature is trio's)
        """A turn begins."""
        self._begin_turn()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """A step of a task begins, and with it the one before it has ended."""
        now = self._clock()
        took = now - self._step_began
        if took > self._longest_step:
            self._longest_step = took
            self._longest_task = self._task
        self._step_began = now
        self._task = task
        self._steps += 1

    def before_io_wait(self, timeout: float) -> None:  # noqa: ARG002
        """A turn has ended."""
        now = self._clock()
        took = now - self._turn_began
        if took > BOUNDS_SECONDS[0]:
            self._end_long_turn(took, now - self._step_began)

    def _begin_turn(self) -> None:
        now = self._clock()
        self._ends = now + self._budget_seconds
        self._turn_began = self._step_began = now
        self._longest_step = 0.0
        self._longest_task = self._task = None
        self._steps = 0

    def _end_long_turn(self, seconds: float, last_step: float) -> None:
        if last_step > self._longest_step:
            self._longest_step = last_step
            self._longest_task = self._task
        self.longest_seconds = max(self.longest_seconds, seconds)
        self.long_turns[bisect_right(BOUNDS_SECONDS, seconds) - 1] += 1
        self.on_long_turn(Stall(seconds, self._steps, self._longest_step, self._longest_task))

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
