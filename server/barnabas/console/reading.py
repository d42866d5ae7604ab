"""Records of a topic, read in pages: from an offset or a time on, or the newest.

The rule: a page is bounded in records and bytes, is in the order of times, and has the starts of the adjacent pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import trio

from barnabas.client import ClientError, ConsumerSettings
from barnabas.client.admin import EARLIEST, LATEST, OffsetAt
from barnabas.console.base import ConsoleError
from barnabas.console.reader import READING, Place, open_reader
from barnabas.console.walking import Limits, Walk, Window

if TYPE_CHECKING:
    from barnabas.console.backend import Backend
    from barnabas.console.batches import Row, View

PARTITIONS_MAX = 256
"""Partitions of a topic that are read together; of one that has more, those are chosen."""
PAGE_SECONDS = 8.0
"""Time limit of a page; records that arrived until then are shown."""


class Bounds(NamedTuple):
    """First and next offset of each partition."""

    first: Mapping[Place, int]
    next: Mapping[Place, int]


class Page(NamedTuple):
    """Rows, and the offsets that they cover; `is_late` if time or room was used up before all of them were read."""

    rows: list[Row]
    window: Window
    is_late: bool
    is_too_large: bool = False


async def bounds_of(backend: Backend, places: Iterable[Place], *, is_committed: bool = False) -> Bounds:
    """Return the start and end offsets of the partitions with a leader. Raises ClientError if none has one."""
    asked = list(places)
    first = await backend.admin.offsets(dict.fromkeys(asked, EARLIEST))
    last = await backend.admin.offsets(dict.fromkeys(asked, LATEST), is_committed=is_committed)
    led = [
        place for place in asked if isinstance(first[place], OffsetAt) and isinstance(last[place], OffsetAt)
    ]
    if not led:
        for offset in (*first.values(), *last.values()):
            if isinstance(offset, ClientError):
                raise offset
    return Bounds(_offsets(first, led), _offsets(last, led))


def _offsets(offsets: Mapping[Place, object], places: Iterable[Place]) -> dict[Place, int]:
    return {place: offset.offset for place in places if isinstance(offset := offsets[place], OffsetAt)}


async def places_of(backend: Backend, topic: str, partitions: str) -> list[Place]:
    """Return the partitions that a request names, as `0,3`; all without. Raises ConsoleError, ClientError."""
    info = await backend.client.retrying(lambda: backend.client.topic(topic))
    existing = {partition.partition_index for partition in info.partitions}
    numbers = sorted(existing)
    if partitions.strip():
        try:
            numbers = sorted({int(number) for number in partitions.split(",")})
        except ValueError:
            raise ConsoleError(400, "partition: numbers with commas between them expected") from None
        missing = [number for number in numbers if number not in existing]
        if missing:
            raise ConsoleError(404, f"{topic} has no partition {missing[0]}")
    if len(numbers) > PARTITIONS_MAX:
        raise ConsoleError(
            400, f"{topic} has {len(existing)} partitions: choose up to {PARTITIONS_MAX} of them"
        )
    return [(topic, number) for number in numbers]


async def read_page(
    backend: Backend,
    window: Window,
    limit: int,
    view: View,
    settings: ConsumerSettings = READING,
    *,
    is_newest_first: bool = False,
) -> Page:
    """Return up to `limit` records of a window, the newest or the oldest of all partitions. Raises ClientError."""
    rows: list[Row] = []
    walk: Walk | None = None
    is_late = True
    width = max(-(-limit // max(len(window.starts), 1)), 1)
    async with backend.reads.of(backend.owner):
        with trio.move_on_after(PAGE_SECONDS):
            async with open_reader(backend, view, settings) as reader:
                walk = Walk(reader, window, Limits(limit, 1 << 62, width), is_newest_first=is_newest_first)
                while not walk.is_done:
                    rows += await walk.step()
                is_late = walk.is_too_large
    if walk is None:
        return Page(
            [],
            Window(window.ends, window.ends) if is_newest_first else Window(window.starts, window.starts),
            True,
        )
    rows += walk.flush()
    return Page(rows, walk.rest, is_late, walk.is_too_large)


async def starts_at(backend: Backend, bounds: Bounds, time_ms: int) -> dict[Place, int]:
    """Return the offset of each partition's first record at or after a time; the end offset if there is no such record."""
    offsets = await backend.admin.offsets(dict.fromkeys(bounds.first, time_ms))
    starts = {}
    for place, end in bounds.next.items():
        offset = offsets[place]
        starts[place] = offset.offset if isinstance(offset, OffsetAt) and offset.offset >= 0 else end
    return starts
