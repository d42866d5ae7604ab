"""Where sockets wait that are not expected to be active: of these only a few wake up in one turn of the event loop.

The rule: Trio wakes every task whose socket has something to read in one turn, and waking 5,000 takes tenths of a
second before any of them has been served. So sockets of new and idle connections wait in an epoll set of their own,
inside Trio's, from which each turn takes some: the kernel returns them first come first served.
"""

from __future__ import annotations

import select

import trio

WOKEN_AT_ONCE = 32
"""How many sockets wake up in one turn: a millisecond or two to serve, if each has a small request."""


class Lobby:
    """Sockets and the tasks that wait for them.

    Waking costs some 10 us more than with Trio alone, so active connections do not wait here.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._waiting: dict[int, trio.lowlevel.Task] = {}
        self._is_watched = False

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    async def wait_readable(self, descriptor: int) -> None:
        """Wait until there is something to read, the peer has closed, or `wake` is called."""
        try:
            self._epoll.modify(descriptor, select.EPOLLIN | select.EPOLLONESHOT)
        except FileNotFoundError:
            self._epoll.register(descriptor, select.EPOLLIN | select.EPOLLONESHOT)
        self._waiting[descriptor] = trio.lowlevel.current_task()
        if not self._is_watched:
            self._is_watched = True
            trio.lowlevel.spawn_system_task(self._watch)

        def leave(_: object) -> trio.lowlevel.Abort:
            del self._waiting[descriptor]
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(leave)

    def wake(self, descriptor: int) -> None:
        """Have the task that waits for a socket return."""
        task = self._waiting.pop(descriptor, None)
        if task is not None:
            trio.lowlevel.reschedule(task)

    async def _watch(self) -> None:
        try:
            while self._waiting:
                await trio.lowlevel.wait_readable(self._epoll.fileno())
                for descriptor, _ in self._epoll.poll(0, WOKEN_AT_ONCE):
                    self.wake(descriptor)
        finally:
            self._is_watched = False
