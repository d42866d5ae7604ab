"""A result that must be waited for, where most are there at once.

The rule: whoever can answer without waiting is a plain function that returns the result; only where it cannot does it
return a `Later`, which its caller awaits, in whatever task that may be.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Generic, TypeVar

T = TypeVar("T")


class Later(Generic[T]):
    """What is still to be awaited, once, for a result."""

    __slots__ = ("rest",)

    def __init__(self, rest: Awaitable[T]) -> None:
        self.rest = rest
