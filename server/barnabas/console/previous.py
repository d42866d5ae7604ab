"""The record before one that has the same key, in the same partition, as events: progress, what was found, the end.

The rule: a log is read forwards, so windows of it are, each before the one that was read; the last record with the key in
the first window that has one is it. It stops by itself, and can be broken off at any time, as a search.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import trio

from barnabas.console.differing import difference
from barnabas.console.reading import consuming
from barnabas.console.searching import BATCH_RECORDS, REST_FACTOR, Progress

if TYPE_CHECKING:
    from barnabas.client import ConsumedRecord, Consumer, ConsumerSettings
    from barnabas.console.backend import Backend
    from barnabas.console.base import Send
    from barnabas.console.decoding import Decoding
    from barnabas.console.reading import Place

LOOKED_AT = 1_000_000
"""Records after which it looks no further, unless a request says another number."""
OFFSETS_MIN = 500
"""Length of the first window; a window is twice as long as one that had few records."""
RECORDS_MAX = 20_000
"""Records of a window; one that has more is left for a shorter one."""
SHRINK_FACTOR = 8


class Wanted(NamedTuple):
    """A record, and the offsets before it that are looked at: from `first` to `end` (not included)."""

    record: ConsumedRecord
    first: int
    end: int
    looked_at_max: int

    @property
    def place(self) -> Place:
        """Partition of the record."""
        return self.record.topic, self.record.partition


async def previous(
    backend: Backend, wanted: Wanted, decoding: Decoding, settings: ConsumerSettings, send: Send
) -> None:
    """Send the record before with the same key, beside the one, and what differs. Raises ClientError."""
    progress = Progress(send, max(wanted.end - wanted.first, 0))
    await progress.tell()
    end, found = wanted.end, None
    if end > wanted.first:
        async with consuming(backend, settings) as consumer:
            consumer.assign([wanted.place])
            end, found = await _look(consumer, wanted, progress)
    if found is not None:
        progress.found = 1
        one, before = await decoding.record(wanted.record), await decoding.record(found)
        differing = await trio.to_thread.run_sync(difference, before["value"], one["value"])
        await send("found", {"record": one, "previous": before, "difference": differing})
    progress.is_cut = found is None and end > wanted.first
    await progress.tell("done", back_to=end)


async def _look(consumer: Consumer, wanted: Wanted, progress: Progress) -> tuple[int, ConsumedRecord | None]:
    """Return the offset from which on all was looked at, and the record."""
    end, width = wanted.end, OFFSETS_MIN
    while end > wanted.first and progress.scanned < wanted.looked_at_max:
        start = max(wanted.first, end - width)
        count, found = await _window(consumer, wanted, (start, end), progress)
        if count > RECORDS_MAX:
            width = max(width // SHRINK_FACTOR, OFFSETS_MIN)
            continue
        end = start
        progress.covered = wanted.end - end
        if found is not None:
            return found.offset, found
        if count <= RECORDS_MAX // 2:
            width *= 2
    return end, None


async def _window(
    consumer: Consumer, wanted: Wanted, window: tuple[int, int], progress: Progress
) -> tuple[int, ConsumedRecord | None]:
    """Return how many records a window has, as far as it was read, and the last one with the key."""
    place, key = wanted.place, wanted.record.key
    start, end = window
    consumer.seek(place, start)
    consumer.resume(place)
    count, found = 0, None
    while count <= RECORDS_MAX and (records := await consumer.receive_until({place: end}, BATCH_RECORDS)):
        began = time.perf_counter()
        found = next((one for one in reversed(records) if one.key == key), found)
        count += len(records)
        progress.scanned += len(records)
        await progress.tell_sometimes()
        await trio.sleep(REST_FACTOR * (time.perf_counter() - began))
    return count, found
