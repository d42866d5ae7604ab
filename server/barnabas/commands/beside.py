"""A task beside a block of a command.

The rule: it ends with the block, and what the block raises leaves it as it is, not in an exception group.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio


@asynccontextmanager
async def beside(task: Callable[..., Awaitable[Any]], *arguments: Any) -> AsyncIterator[None]:
    """Run a task for the length of a block."""
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(task, *arguments)
        try:
            yield
        except Exception as error:
            failure = error
        finally:
            nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
