"""A set of waiting sockets, of which only as many wake up in one turn of the event loop as it has time for.

The rule: Trio wakes every task with a readable socket in one turn, and waking 5,000 takes tenths of a second before any
of them has been served. So sockets of new and idle connections, and of active ones while there are many, wait in a
separate set (epoll, kqueue) inside Trio's, from which each turn takes some: the kernel returns them first come, first
served. A request that needs no waiting is answered there, without waking its task.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import trio

from barnabas.system.readiness import READABLE, new_readable_set

WOKEN_PER_TURN: Final = 32
"""Most sockets that wake up in one turn: a millisecond or two to serve, if each has a small request."""
TURN_SECONDS: Final = 0.002
"""If the turn before took longer, fewer wake up than in it, down to four; more, if it took three quarters of it."""

Arrived = Callable[[], bool]
"""Called when there may be something to read, while its task waits: whether the task must wake up. Raises nothing."""


class Waiting:
    """A task that waits, and the callback to be called before it is woken, if any."""

    __slots__ = ("arrived", "task")

    def __init__(self, task: trio.lowlevel.Task, arrived: Arrived | None) -> None:
        self.task = task
        self.arrived = arrived


class WaitSet:
    """Sockets and the tasks that wait for them.

    Waking one costs some 10 us more than with Trio alone, so an active connection among few does not wait here, unless
    it is answered without being woken. For each of many it costs less, since a task that is woken too late for a turn
    has to wait for the next. A socket stays in the set after its task has woken up, so that another wait costs no system
    call. If data arrive while no task waits, it is removed; call `forget` before closing it.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._set = new_readable_set()
        self._waiting: dict[int, Waiting] = {}
        self._registered: set[int] = set()
        self._is_watched = False

    def __len__(self) -> int:
        """Number of tasks that wait."""
        return len(self._waiting)

    async def wait_readable(self, descriptor: int, arrived: Arrived | None = None) -> None:
        """Wait until there are data, the peer has closed, or `wake` is called.

        With `arrived` the wait continues while it returns false.
        """
        if descriptor not in self._registered:
            self._set.register(descriptor, READABLE)
            self._registered.add(descriptor)
        self._waiting[descriptor] = Waiting(trio.lowlevel.current_task(), arrived)
        if not self._is_watched:
            self._is_watched = True
            trio.lowlevel.spawn_system_task(self._watch)

        def leave(_: object) -> trio.lowlevel.Abort:
            del self._waiting[descriptor]
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(leave)

    def wake(self, descriptor: int) -> None:
        """Make the task that waits for a socket return."""
        waiting = self._waiting.pop(descriptor, None)
        if waiting is not None:
            trio.lowlevel.reschedule(waiting.task)

    def forget(self, descriptor: int) -> None:
        """Watch a socket no longer, which is about to be closed; a task that waits for it returns."""
        self.wake(descriptor)
        if descriptor in self._registered:
            self._registered.discard(descriptor)
            self._set.unregister(descriptor)

    async def _watch(self) -> None:
        """Serve or wake some tasks in each turn, while any waits."""
        at_once, are_more, began = WOKEN_PER_TURN, False, 0.0
        try:
            while self._waiting:
                if are_more:
                    await trio.lowlevel.checkpoint()
                    at_once = _next_count(at_once, self._clock() - began)
                else:
                    await trio.lowlevel.wait_readable(self._set.fileno())
                began = self._clock()
                ready = self._set.poll(0, at_once)
                are_more = len(ready) == at_once
                for descriptor, _ in ready:
                    self._has_something(descriptor)
        finally:
            self._is_watched = False

    def _has_something(self, descriptor: int) -> None:
        waiting = self._waiting.get(descriptor)
        if waiting is None:
            if descriptor in self._registered:  # otherwise it was closed in this turn
                self._registered.discard(descriptor)
                self._set.unregister(descriptor)
        elif waiting.arrived is None or waiting.arrived():
            self.wake(descriptor)


def _next_count(count: int, turn_seconds: float) -> int:
    """Return the number of tasks to wake in a turn, after a turn of `turn_seconds` in which `count` woke up."""
    if turn_seconds > TURN_SECONDS:
        return count * 3 // 4 + 1
    if turn_seconds < TURN_SECONDS * 3 / 4:
        return min(count * 5 // 4 + 1, WOKEN_PER_TURN)
    return count


class WaitSets:
    """The wait set of new and idle connections, and that of active ones while many are active.

    They are separate, so that new connections are not served before active ones.
    """

    def __init__(self) -> None:
        self.inactive = WaitSet()
        self.active = WaitSet()

    def wake(self, descriptor: int) -> None:
        """Make the task that waits for a socket return, in whichever set it is."""
        self.inactive.wake(descriptor)
        self.active.wake(descriptor)

    def forget(self, descriptor: int) -> None:
        """Watch a socket no longer, wherever it is waited for: it is about to be closed."""
        self.inactive.forget(descriptor)
        self.active.forget(descriptor)
