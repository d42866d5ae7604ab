"""A sandbox without processes: calls run immediately, in the test's own process."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


class AtOnce:
    """Stands in for `Sandbox`; each of the next calls raises one of `refusals`."""

    def __init__(self, *refusals: Exception | None) -> None:
        self.refusals = list(refusals)
        self.called: list[tuple[str, Hashable]] = []

    async def call(self, function: Callable[..., T], *arguments: Any, owner: Hashable = None) -> T:
        """Call a function, and record its owner; returns the result."""
        self.called.append((function.__name__, owner))
        refusal = self.refusals.pop(0) if self.refusals else None
        if refusal is not None:
            raise refusal
        return function(*arguments)
