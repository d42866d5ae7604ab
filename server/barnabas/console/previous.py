"""The previous record with the same key, in the same partition, as events: progress, the result, the end.

The rule: it is bounded, and can be interrupted at any time, like a search.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from barnabas.console.base import ConsoleError
from barnabas.console.differing import difference
from barnabas.console.reader import open_reader
from barnabas.console.searching import OFFSETS_MIN, Progress
from barnabas.console.walking import Limits, Walk, Window
from barnabas.sandbox.messages import SandboxError

if TYPE_CHECKING:
    from barnabas.client import ConsumerSettings
    from barnabas.console.backend import Backend
    from barnabas.console.base import Send
    from barnabas.console.batches import Row, View
    from barnabas.console.reader import Place

LOOKED_AT = 1_000_000
"""Records after which it looks no further, unless a request says another number."""


class Target(NamedTuple):
    """A record, and the offsets before it that are searched: from `first` to `end` (not included)."""

    place: Place
    row: Row
    first: int
    end: int
    looked_at_max: int


async def previous(
    backend: Backend, target: Target, view: View, settings: ConsumerSettings, send: Send
) -> None:
    """Send the previous record with the same key, beside the target, and the differences; `view` matches the key.

    Raises ClientError, ConsoleError.
    """
    window = Window({target.place: target.first}, {target.place: max(target.end, target.first)})
    rows: list[Row] = []
    async with open_reader(backend, view, settings) as reader:
        walk = Walk(reader, window, Limits(1, target.looked_at_max, OFFSETS_MIN), is_newest_first=True)
        progress = Progress(send, walk)
        async with progress.told():
            while not walk.is_done:
                rows += await walk.step()
    if rows:
        await progress.send("found", await _compared(backend, rows[0], target.row))
    back_to = rows[0].offset if rows else walk.rest.starts[target.place]
    await progress.tell("done", back_to=back_to, cut=not rows and back_to > target.first)


async def _compared(backend: Backend, before: Row, row: Row) -> bytes:
    try:
        return await backend.sandbox.call(compared, before.content, row.content, owner=backend.owner)
    except SandboxError as error:
        raise ConsoleError(422, f"the two records cannot be compared: {error}") from None


def compared(before: bytes, record: bytes) -> bytes:
    """Return two records, both as JSON, side by side, with the difference of their values."""
    values = [json.loads(text)["value"] for text in (before, record)]
    text = json.dumps(difference(*values), ensure_ascii=False, separators=(",", ":"))
    return b'{"record":%s,"previous":%s,"difference":%s}' % (record, before, text.encode("utf-8", "replace"))
