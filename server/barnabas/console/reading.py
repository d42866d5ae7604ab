"""Records of a topic, read in pages: from an offset or a time on, or the newest.

The rule: a page is bounded in records and bytes, and says where the pages beside it begin.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import NamedTuple

import trio

from barnabas.client import ClientError, ConsumedRecord, Consumer, ConsumerSettings, open_consumer
from barnabas.client.admin import EARLIEST, LATEST, OffsetAt
from barnabas.console.backend import Backend
from barnabas.console.base import ConsoleError

PARTITIONS_MAX = 256
"""Partitions of a topic that are read together; of one that has more, those are chosen."""
PAGE_SECONDS = 8.0
"""For how long a page is waited for; what has come until then is shown."""
_TRIES = 3
Place = tuple[str, int]
READING = ConsumerSettings(
    is_auto_committing=False,
    offset_reset="earliest",
    fetch_wait_ms_max=100,
    fetch_bytes_max=4 << 20,
    partition_bytes_max=256 << 10,
    prefetch_bytes=1 << 20,
    creates_topics=False,
)


class Bounds(NamedTuple):
    """First and next offset of each partition."""

    first: Mapping[Place, int]
    next: Mapping[Place, int]


class Window(NamedTuple):
    """Offsets to read, from and to (not included), by partition."""

    starts: Mapping[Place, int]
    ends: Mapping[Place, int]


class Page(NamedTuple):
    """Records, and the offsets that the window has covered; `is_late` if time was over before all of them were read."""

    records: list[ConsumedRecord]
    window: Window
    is_late: bool


async def bounds_of(backend: Backend, places: Iterable[Place], *, is_committed: bool = False) -> Bounds:
    """Return the ends of partitions, of those that have a leader. Raises ClientError where none has."""
    wanted = list(places)
    first = await backend.admin.offsets(dict.fromkeys(wanted, EARLIEST))
    last = await backend.admin.offsets(dict.fromkeys(wanted, LATEST), is_committed=is_committed)
    known = [
        place for place in wanted if isinstance(first[place], OffsetAt) and isinstance(last[place], OffsetAt)
    ]
    if not known:
        for found in (*first.values(), *last.values()):
            if isinstance(found, ClientError):
                raise found
    return Bounds(_offsets(first, known), _offsets(last, known))


def _offsets(found: Mapping[Place, object], places: Iterable[Place]) -> dict[Place, int]:
    return {place: one.offset for place in places if isinstance(one := found[place], OffsetAt)}


async def places_of(backend: Backend, topic: str, partitions: str) -> list[Place]:
    """Return the partitions that a request names, as `0,3`; all without. Raises ConsoleError, ClientError."""
    known = [
        one.partition_index
        for one in (await backend.client.retrying(lambda: backend.client.topic(topic))).partitions
    ]
    numbers = sorted(known)
    if partitions.strip():
        try:
            numbers = sorted({int(one) for one in partitions.split(",")})
        except ValueError:
            raise ConsoleError(400, "partition: numbers with commas between them expected") from None
        missing = [one for one in numbers if one not in known]
        if missing:
            raise ConsoleError(404, f"{topic} has no partition {missing[0]}")
    elif len(numbers) > PARTITIONS_MAX:
        raise ConsoleError(
            400, f"{topic} has {len(numbers)} partitions: choose up to {PARTITIONS_MAX} of them"
        )
    return [(topic, one) for one in numbers]


@asynccontextmanager
async def consuming(backend: Backend, settings: ConsumerSettings = READING) -> AsyncIterator[Consumer]:
    """Open a consumer of its own connection, in the name of the visitor."""
    async with open_consumer(
        backend.target.bootstrap,
        settings=settings,
        client_settings=replace(backend.settings, creates_topics=False),
        dial=backend.target.dial,
    ) as consumer:
        yield consumer


async def read_window(
    backend: Backend, window: Window, limit: int, settings: ConsumerSettings = READING
) -> Page:
    """Return up to `limit` records of a window, and what of it they cover."""
    wanted = {place: at for place, at in window.starts.items() if at < window.ends[place]}
    records: list[ConsumedRecord] = []
    positions = dict(window.starts)
    is_late = True
    with trio.move_on_after(PAGE_SECONDS):
        async with consuming(backend, settings) as consumer:
            consumer.assign(wanted)
            for place, at in wanted.items():
                consumer.seek(place, at)
            ends = {place: window.ends[place] for place in wanted}
            while wanted and len(records) < limit:
                batch = await consumer.receive_until(ends, limit - len(records))
                if not batch:
                    positions |= ends
                    break
                records += batch
                for one in batch:
                    positions[one.topic, one.partition] = one.offset + 1
            is_late = False
    return Page(records, Window(window.starts, positions), is_late)


async def newest(backend: Backend, bounds: Bounds, limit: int, settings: ConsumerSettings = READING) -> Page:
    """Return the newest records before the ends of `bounds`, so many of all partitions together, newest first.

    Offsets that hold no record (of compacted logs, of transactions) make it look further back, a few times.
    """
    ends = dict(bounds.next)
    share = max(-(-limit // max(len(ends), 1)), 1)
    page = Page([], Window(ends, ends), is_late=False)
    for _ in range(_TRIES):
        starts = {place: max(bounds.first[place], end - share) for place, end in ends.items()}
        page = await read_window(backend, Window(starts, ends), WINDOW_MAX, settings)
        if page.is_late or len(page.records) >= limit or starts == bounds.first:
            break
        missing = [place for place in starts if starts[place] > bounds.first[place]]
        if len(page.records) >= limit // 2 and all(
            any((one.topic, one.partition) == place for one in page.records) for place in missing
        ):
            break
        share *= 8
    records = sorted(page.records, key=lambda one: (-one.timestamp_ms, one.partition, -one.offset))
    return _cut(page, records[:limit])


WINDOW_MAX = 5_000


def _cut(page: Page, records: list[ConsumedRecord]) -> Page:
    """Return a page with these of its records; its window begins with the first of them in each partition."""
    shown: dict[Place, int] = {}
    for one in records:
        place = one.topic, one.partition
        shown[place] = min(one.offset, shown.get(place, one.offset))
    left_out = {(one.topic, one.partition) for one in page.records} - shown.keys()
    starts = {
        place: shown.get(place, page.window.ends[place] if place in left_out else start)
        for place, start in page.window.starts.items()
    }
    return Page(records, Window(starts, page.window.ends), page.is_late)


async def starts_at(backend: Backend, bounds: Bounds, time_ms: int) -> dict[Place, int]:
    """Return the offset of the first record of each partition at or after a time; the end where there is none."""
    found = await backend.admin.offsets(dict.fromkeys(bounds.first, time_ms))
    starts = {}
    for place, end in bounds.next.items():
        one = found[place]
        starts[place] = one.offset if isinstance(one, OffsetAt) and one.offset >= 0 else end
    return starts
