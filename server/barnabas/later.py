"""A result that must be waited for, where most are there at once.

The rule: whoever can answer without waiting is a plain function that returns the result; only where it cannot does it
return a `Later`, of which its caller has the rest awaited, in whatever task that may be. An `Announced` may be waited for
without a task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Later(Generic[T]):
    """A result that is still to come."""

    def __init__(self, begin: Callable[[], Awaitable[T]]) -> None:
        """`begin` returns what is to be awaited, when somebody does: nothing is begun for who goes away before."""
        self._begin = begin

    def rest(self) -> Awaitable[T]:
        """Return what is to be awaited for the result, once."""
        return self._begin()


async def whole(result: T | Later[T]) -> T:
    """Return a result that is there, or wait for it."""
    return await result.rest() if isinstance(result, Later) else result


class Announced(Later[T]):
    """A result that tells when it is there.

    Lifecycle: `announce_to` and, when that is called, `take`; or `rest`; or `forget`.
    """

    def __init__(self) -> None:
        """There is nothing to await before `rest` is asked for."""

    def announce_to(self, call: Callable[[], None]) -> None:
        """Have `call`, which raises nothing, called when the result is there."""
        raise NotImplementedError

    def take(self) -> T | Later[T]:
        """Return the result, which is there. Raises what it has failed with."""
        raise NotImplementedError

    def rest(self) -> Awaitable[T]:
        """Return what is to be awaited for the result, which is announced to nobody then."""
        raise NotImplementedError

    def forget(self) -> None:
        """Have it come for nobody."""
        raise NotImplementedError
