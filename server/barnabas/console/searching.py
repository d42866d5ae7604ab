"""Search through a topic's records, as events: matches, progress, and the end.

The rule: it is bounded, can be cancelled at any time, and checks records in a child process: their payloads as decoded by a
schema, and otherwise their bytes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio

from barnabas.console import matching
from barnabas.console.base import ConsoleError, Send
from barnabas.console.matching import PATTERN_CHARS_MAX, Pattern, Sought
from barnabas.console.reader import READING, open_reader
from barnabas.console.walking import Limits, Walk, Window
from barnabas.filters import FilterError
from barnabas.patterns import PatternError
from barnabas.sandbox.messages import SandboxError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.client import ConsumerSettings
    from barnabas.console.backend import Backend
    from barnabas.console.batches import Row, View

FOUND_MAX = 500
SCANNED_MAX = 10_000_000
OFFSETS_MIN = 500
"""Length of the first window of a partition."""
PROGRESS_SECONDS = 0.5


async def check_sought(backend: Backend, sought: Sought) -> None:
    """Raise ConsoleError for a text that is empty, too long, or an invalid expression, and for an invalid filter."""
    name, kind = ("text", "regular expression") if isinstance(sought, Pattern) else ("where", "filter")
    if not sought.text or len(sought.text) > PATTERN_CHARS_MAX:
        raise ConsoleError(400, f"{name}: 1 to {PATTERN_CHARS_MAX} characters expected")
    try:
        sought.text.encode()
        await backend.sandbox.call(matching.check, sought, owner=backend.owner)
    except UnicodeEncodeError:
        raise ConsoleError(400, f"{name}: half of a surrogate pair is not a character") from None
    except PatternError as error:
        raise ConsoleError(400, f"{name}: not a regular expression: {error.reason}") from None
    except FilterError as error:
        raise ConsoleError(400, f"{name}: {error}") from None
    except SandboxError as error:
        raise ConsoleError(400, f"{name}: this {kind} cannot be used: {error}") from None


async def column_names(backend: Backend, columns: str) -> list[str]:
    """Return the names of columns; none for an empty text. Raises ConsoleError."""
    if not columns:
        return []
    try:
        columns.encode()
        return await backend.sandbox.call(matching.column_names, columns, owner=backend.owner)
    except (FilterError, UnicodeEncodeError, SandboxError) as error:
        raise ConsoleError(400, f"columns: {error}") from None


async def search(
    backend: Backend,
    window: Window,
    view: View,
    limit: int,
    send: Send,
    settings: ConsumerSettings = READING,
    *,
    is_newest_first: bool = True,
) -> None:
    """Send the matches in a window, with the progress, until its end or until there are enough. Raises ClientError."""
    async with open_reader(backend, view, settings) as reader:
        walk = Walk(reader, window, Limits(limit, SCANNED_MAX, OFFSETS_MIN), is_newest_first=is_newest_first)
        progress = Progress(send, walk, order="newest" if is_newest_first else "oldest")
        async with progress.told():
            while not walk.is_done:
                rows = await walk.step()
                if rows:
                    await progress.send("found", rows_as_json(rows))
    await progress.tell("done")


def rows_as_json(rows: Sequence[Row]) -> bytes:
    """Return rows as the JSON of an event."""
    return b'{"records":[%s]}' % b",".join(row.content for row in rows)


class Progress:
    """Progress of a walk: records searched and matching, offsets covered of all; `cut` if it has ended early.

    `unread` is the number of records or batches that could not be read, `problem` the reason of the first.
    """

    def __init__(self, send: Send, walk: Walk, **more: Any) -> None:
        """`more` is called with the progress each time."""
        self._send = send
        self._walk = walk
        self._more = more
        self._sending = trio.Lock()

    @asynccontextmanager
    async def told(self) -> AsyncIterator[None]:
        """Send the progress at the beginning of a block, and periodically."""
        await self.tell()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tell_again)
            yield
            async with self._sending:  # an event is sent as a whole
                nursery.cancel_scope.cancel()

    async def _tell_again(self) -> None:
        while True:
            await trio.sleep(PROGRESS_SECONDS)
            await self.tell()

    async def send(self, event: str, value: Any) -> None:
        """Send an event."""
        async with self._sending:
            await self._send(event, value)

    async def tell(self, event: str = "progress", **more: Any) -> None:
        """Send the progress."""
        walk = self._walk
        value: dict[str, Any] = {
            "scanned": walk.scanned,
            "found": walk.returned,
            "covered": walk.covered,
            "total": walk.total,
            "cut": walk.is_cut and walk.is_done,
            "unread": len(walk.problems),
            **({"problem": walk.problems[0]} if walk.problems else {}),
            **self._more,
            **more,
        }
        await self.send(event, value)
