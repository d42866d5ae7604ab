"""A sandbox that is none: calls run in the test's own process, so that a test has its clock and its exceptions."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import trio

T = TypeVar("T")


class Inline:
    """Calls functions at once, without limits."""

    async def call(self, function: Callable[..., T], *arguments: Any, owner: Hashable = None) -> T:
        """Return what a function returns, after others have had their turn."""
        await trio.lowlevel.checkpoint()
        return function(*arguments)
