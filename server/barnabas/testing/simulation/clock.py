"""The clock of a simulated run, and the queue of its timed events.

The rule: a task that waits for a time is parked until an event wakes it, without a cancel scope or another task: a
simulated world does little else, and either would cost as much as the work of a small request.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

if TYPE_CHECKING:
    from trio.lowlevel import Abort

TURNS_PER_LOOK = 256
"""Turns of the loop between polls for events of the real world, which only its own clean-up causes."""


class VirtualClock(trio.abc.Clock):
    """A clock that stands still until no task can run, and then jumps to the next deadline or event.

    Trio asks how long it may sleep only when no task can run. Its own MockClock jumps after another turn of the loop.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._count = 0

    # --- trio's interface -----------------------------------------------------------------------------------

    def start_clock(self) -> None:
        """Do nothing: the clock stands still."""

    def current_time(self) -> float:
        """Return the simulated time."""
        return self.now_s

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Jump to the next deadline or event; without any, the loop waits for real events, caused only by its clean-up."""
        if self._events and self._events[0][0] < deadline:
            deadline = self._events[0][0]
        if deadline == math.inf:
            return deadline
        if deadline > self.now_s:
            self.now_s = deadline
        return 0.0

    # --- events ---------------------------------------------------------------------------------------------

    def at(self, when_s: float, act: Callable[[], object]) -> None:
        """Have `act` called at a moment, in the next turn of the loop at the earliest."""
        self._count += 1
        heapq.heappush(self._events, (when_s, self._count, act))

    def act(self) -> None:
        """Call the due events, except those added meanwhile."""
        events, last = self._events, self._count
        while events and events[0][0] <= self.now_s and events[0][1] <= last:
            heapq.heappop(events)[2]()

    async def sleep(self, seconds: float) -> None:
        """Wait for a time."""
        task = trio.lowlevel.current_task()
        is_awaited = True

        def wake() -> None:
            if is_awaited:
                trio.lowlevel.reschedule(task)

        def abort(_: object) -> Abort:
            nonlocal is_awaited
            is_awaited = False
            return trio.lowlevel.Abort.SUCCEEDED

        self.at(self.now_s + seconds, wake)
        await trio.lowlevel.wait_task_rescheduled(abort)

    async def shielded_sleep(self, seconds: float) -> None:
        """Wait for a time, also when cancelled."""
        self.at(self.now_s + seconds, partial(trio.lowlevel.reschedule, trio.lowlevel.current_task()))
        await trio.lowlevel.wait_task_rescheduled(_go_on_waiting)


def _go_on_waiting(_: object) -> Abort:
    return trio.lowlevel.Abort.FAILED


class SimulatedIO:
    """A replacement for trio's poll of the system: a simulated world has only events of its clock."""

    def __init__(self, real: Any, clock: VirtualClock) -> None:
        self._real = real
        self._clock = clock
        self._skipped = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def get_events(self, timeout: float) -> Any:
        """Return the system's events; usually none, without a system call."""
        self._skipped += 1
        if timeout or self._skipped >= TURNS_PER_LOOK:
            self._skipped = 0
            return self._real.get_events(timeout)
        return ()

    def process_events(self, events: Any) -> None:
        """Run the clock's events, and wake the tasks that wait for the system's."""
        self._clock.act()
        if events:
            self._real.process_events(events)


class Waiters:
    """Tasks that wait for something to change, and are woken together."""

    __slots__ = ("_tasks",)

    def __init__(self) -> None:
        self._tasks: list[trio.lowlevel.Task] = []

    def __bool__(self) -> bool:
        return bool(self._tasks)

    async def wait(self) -> None:
        """Park the task until `wake` is called."""
        task = trio.lowlevel.current_task()

        def abort(_: object) -> Abort:
            self._tasks.remove(task)
            return trio.lowlevel.Abort.SUCCEEDED

        self._tasks.append(task)
        await trio.lowlevel.wait_task_rescheduled(abort)

    def wake(self) -> None:
        """Wake all parked tasks."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            trio.lowlevel.reschedule(task)
