"""A sandbox without isolation: calls run in the test's own process, with its clock, and raise their exceptions."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import trio

T = TypeVar("T")


class Inline:
    """Calls functions at once, without limits."""

    async def call(self, function: Callable[..., T], *arguments: Any, owner: Hashable = None) -> T:
        """Return the result of a call, after a checkpoint."""
        await trio.lowlevel.checkpoint()
        return function(*arguments)
