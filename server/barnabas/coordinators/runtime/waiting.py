"""Requests that a later event answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import trio

from barnabas.errors import RequestError
from barnabas.serving.deferred import Deferred, Future, resolved

T = TypeVar("T")

Respond = Callable[[Any], "T | Deferred[T]"]
"""Converts a waiter's answer, or the RequestError with which it failed, into a response."""


class Waiter:
    """A request that a later event answers; a task waits for that, or a callback is called."""

    __slots__ = ("_call", "_task", "failure", "is_answered", "response")

    def __init__(self) -> None:
        self._task: trio.lowlevel.Task | None = None
        self._call: Callable[[], None] | None = None
        self.is_answered = False
        self.response: Any = None
        self.failure: int | None = None

    @property
    def outcome(self) -> Any:
        """The waiter's response, or the RequestError with which it failed."""
        return self.response if self.failure is None else RequestError(self.failure)

    def answer(self, response: Any) -> None:
        """Release the request with a response."""
        self.response = response
        self._release()

    def fail(self, code: int) -> None:
        """Release the request with an error."""
        self.failure = code
        self._release()

    def _release(self) -> None:
        self.is_answered = True
        task, self._task = self._task, None
        call, self._call = self._call, None
        if task is not None:
            trio.lowlevel.reschedule(task)
        elif call is not None:
            call()

    def add_done_callback(self, call: Callable[[], None]) -> None:
        """Register a callback, called when the request is answered."""
        self._call = call

    async def wait(self) -> None:
        """Wait until the request is answered; no yield if it is already. The callback is dropped."""
        self._call = None
        if not self.is_answered:
            # a `trio.Event` would do the same with a set of tasks, at twice the cost
            self._task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._leave)

    def _leave(self, _: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED


class FutureReply(Future[T]):
    """Future reply to a waiter of a shard, registered there in `waiting` under its `number`."""

    def __init__(self, waiting: dict[int, Waiter], number: int, waiter: Waiter, respond: Respond[T]) -> None:
        self._waiting = waiting
        self._number = number
        self._waiter = waiter
        self._respond = respond

    def add_done_callback(self, call: Callable[[], None]) -> None:
        """Register a callback, which must not raise, called when the result is available."""
        self._waiter.add_done_callback(call)

    def result(self) -> T | Deferred[T]:
        """Return the available result. Raises the errors of `respond`."""
        self.cancel()
        return self._respond(self._waiter.outcome)

    def wait(self) -> Awaitable[T]:
        """Return an awaitable of the result."""
        return self._wait()

    async def _wait(self) -> T:
        try:
            await self._waiter.wait()
        finally:
            self.cancel()
        return await resolved(self._respond(self._waiter.outcome))

    def cancel(self) -> None:
        """Discard the answer when it arrives."""
        self._waiting.pop(self._number, None)


def raising(outcome: Any) -> Any:
    """Return the answer itself; raise the RequestError with which a waiter has failed."""
    if isinstance(outcome, RequestError):
        raise outcome
    return outcome
