"""Results that may not be available yet: most are, and are returned directly.

The rule: code that can answer without waiting is a plain function that returns the result; only otherwise it returns a
`Deferred`, which its caller awaits, in any task. A `Future` can also be waited for without a task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Deferred(Generic[T]):
    """A result that may have to be waited for; its work begins with the first `wait`."""

    def __init__(self, begin: Callable[[], Awaitable[T]]) -> None:
        """`begin` returns the awaitable of the result; it is called only when the result is awaited."""
        self._begin = begin

    def wait(self) -> Awaitable[T]:
        """Return the awaitable of the result, once."""
        return self._begin()


async def resolved(result: T | Deferred[T]) -> T:
    """Return an available result, or wait for it."""
    return await result.wait() if isinstance(result, Deferred) else result


class Future(Deferred[T]):
    """A result that is set elsewhere, with callbacks.

    Lifecycle: `add_done_callback` and, when that is called, `result`; or `wait`; or `cancel`.
    """

    def __init__(self) -> None:
        """There is nothing to begin."""

    def add_done_callback(self, call: Callable[[], None]) -> None:
        """Register a callback, which must not raise, called when the result is available."""
        raise NotImplementedError

    def result(self) -> T | Deferred[T]:
        """Return the available result. Raises the error with which it failed."""
        raise NotImplementedError

    def wait(self) -> Awaitable[T]:
        """Return the awaitable of the result; the callback is not called from then on."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Discard the result when it becomes available."""
        raise NotImplementedError
