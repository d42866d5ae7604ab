"""The controller's events: handled one at a time, in order.

The rule: an event is not added while one with the same key waits, since that reads the whole state when it is handled. A
caller of the controller waits for its event, and gets NOT_CONTROLLER if the controller ends meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import trio

from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode


@dataclass(slots=True, eq=False)
class Call:
    """A question to the controller, and the event that its caller waits for."""

    answer: Any = None
    error: Exception | None = None
    done: trio.Event = field(default_factory=trio.Event)
    is_wanted: bool = True

    def settle(self, answer: Any = None, error: Exception | None = None) -> None:
        """Answer, unless that has been done."""
        if not self.done.is_set():
            self.answer, self.error = answer, error
            self.done.set()


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """An event to handle.

    `key` is its subject: an event is dropped while one with the same key waits; with an empty key, never.
    """

    name: str
    act: Callable[[], Awaitable[None]]
    key: str = ""
    call: Call | None = None
    needs_controller: bool = True
    """True if the event is meaningless once this broker is not the controller any longer."""


def not_controller() -> RequestError:
    """The error for callers that ask a broker which is not the controller."""
    return RequestError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")


class EventQueue:
    """Events that wait for their turn."""

    def __init__(self) -> None:
        self._waiting: deque[Event] = deque()
        self._keys: set[str] = set()
        self._wake = trio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, event: Event) -> None:
        """Add an event, unless one with its key waits."""
        if event.key and event.key in self._keys:
            return
        if event.key:
            self._keys.add(event.key)
        self._waiting.append(event)
        self._wake.set()

    async def next(self) -> Event:
        """Wait for the first event, remove and return it."""
        while not self._waiting:
            self._wake = trio.Event()
            await self._wake.wait()
        event = self._waiting.popleft()
        self._keys.discard(event.key)
        return event

    def drop(self) -> None:
        """Drop the events of a controller that has ended; their callers get an error."""
        waiting, self._waiting, self._keys = self._waiting, deque(), set()
        for event in waiting:
            if not event.needs_controller:
                self.put(event)
            elif event.call is not None:
                event.call.settle(error=not_controller())
