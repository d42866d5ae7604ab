"""Results that are not always there yet: most are, and are returned as they are.

The rule: code that can answer without waiting is a plain function that returns the result; only where it cannot does
it return a `Deferred`, which its caller awaits, in any task. A `Future` can also be waited for without a task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Deferred(Generic[T]):
    """A result that takes waiting; its work begins with the first `wait`."""

    def __init__(self, begin: Callable[[], Awaitable[T]]) -> None:
        """`begin` returns what is awaited for the result: nothing begins for a client that goes away before."""
        self._begin = begin

    def wait(self) -> Awaitable[T]:
        """Return what is awaited for the result, once."""
        return self._begin()


async def resolved(result: T | Deferred[T]) -> T:
    """Return a result that is there, or wait for it."""
    return await result.wait() if isinstance(result, Deferred) else result


class Future(Deferred[T]):
    """A result that something else brings about, and that calls back when it is there.

    Lifecycle: `add_done_callback` and, when that is called, `result`; or `wait`; or `cancel`.
    """

    def __init__(self) -> None:
        """There is nothing to begin."""

    def add_done_callback(self, call: Callable[[], None]) -> None:
        """Have `call`, which raises nothing, called when the result is there."""
        raise NotImplementedError

    def result(self) -> T | Deferred[T]:
        """Return the result, which is there. Raises the error with which it failed."""
        raise NotImplementedError

    def wait(self) -> Awaitable[T]:
        """Return what is awaited for the result; nothing is called back from then on."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Drop the result when it comes."""
        raise NotImplementedError
