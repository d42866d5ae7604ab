"""Requests that some later event answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import trio

from barnabas.errors import RequestError
from barnabas.serving.deferred import Deferred, Future, resolved

T = TypeVar("T")

Respond = Callable[[Any], "T | Deferred[T]"]
"""Makes a response of what a waiter was answered, or of the RequestError with which it failed."""


class Waiter:
    """A request that a later event answers; one task waits for that, or a callback is called."""

    __slots__ = ("_call", "_task", "failure", "is_answered", "response")

    def __init__(self) -> None:
        self._task: trio.lowlevel.Task | None = None
        self._call: Callable[[], None] | None = None
        self.is_answered = False
        self.response: Any = None
        self.failure: int | None = None

    @property
    def outcome(self) -> Any:
        """Response that it was answered, or the RequestError with which it failed."""
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
        """Have `call` called when it is answered."""
        self._call = call

    async def wait(self) -> None:
        """Wait until it is answered, without a turn where it is already. The callback is dropped."""
        self._call = None
        if not self.is_answered:
            # A `trio.Event` does the same with a set of tasks, for twice the work.
            self._task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._leave)

    def _leave(self, _: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED


class FutureReply(Future[T]):
    """Future reply to a waiter of a shard, which is `waiting` there under its `number`."""

    def __init__(self, waiting: dict[int, Waiter], number: int, waiter: Waiter, respond: Respond[T]) -> None:
        self._waiting = waiting
        self._number = number
        self._waiter = waiter
        self._respond = respond

    def add_done_callback(self, call: Callable[[], None]) -> None:
        """Have `call`, which raises nothing, called when the result is there."""
        self._waiter.add_done_callback(call)

    def result(self) -> T | Deferred[T]:
        """Return the result, which is there. Raises what `respond` raises."""
        self.cancel()
        return self._respond(self._waiter.outcome)

    def wait(self) -> Awaitable[T]:
        """Return what is to be awaited for the result."""
        return self._wait()

    async def _wait(self) -> T:
        try:
            await self._waiter.wait()
        finally:
            self.cancel()
        return await resolved(self._respond(self._waiter.outcome))

    def cancel(self) -> None:
        """Drop an answer that comes."""
        self._waiting.pop(self._number, None)


def raising(outcome: Any) -> Any:
    """Respond with the answer itself; raise the RequestError with which a waiter has failed."""
    if isinstance(outcome, RequestError):
        raise outcome
    return outcome
