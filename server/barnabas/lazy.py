"""Parts of a broker that are made when they are first asked for.

The rule: whoever assembles the broker says how the part is made; whoever uses it cannot tell.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Lazy(Generic[T]):
    """A part that is made by the first `get`."""

    __slots__ = ("_make", "if_made")

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self.if_made: T | None = None
        """The part, None as long as nobody has asked for it."""

    def get(self) -> T:
        """Return the part, made if need be."""
        part = self.if_made
        if part is None:
            part = self.if_made = self._make()
        return part
