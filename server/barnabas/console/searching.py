"""Search through a topic's records, as events: what was found, how far it is, and the end.

The rule: it stops by itself, can be broken off at any time, and leaves the event loop to others for most of the time: the
broker may be in the same process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import re2
import trio

from barnabas.client import ConsumedRecord, Consumer
from barnabas.console.backend import Backend
from barnabas.console.base import ConsoleError, Send
from barnabas.console.decoding import Decoding
from barnabas.console.reading import READING, Window, consuming

FOUND_MAX = 500
SCANNED_MAX = 10_000_000
BATCH_RECORDS = 200
"""Records that are looked at before others have their turn."""
REST_FACTOR = 1.0
"""Length of the rest after a batch, as a multiple of the time that it took."""
PROGRESS_SECONDS = 0.3
PATTERN_CHARS_MAX = 1_000
PLACES = ("anywhere", "key", "value", "headers")
SEARCHING = replace(READING, fetch_bytes_max=1 << 20)
Matches = Callable[[ConsumedRecord], bool]


class Search(NamedTuple):
    """A search: what is looked for, and how much of it is enough."""

    matches: Matches
    limit: int


def matcher(text: str, place: str, *, is_regex: bool, is_exact_case: bool) -> Matches:
    """Return what says whether a record holds a text, or what an RE2 matches. Raises ConsoleError."""
    if not text or len(text) > PATTERN_CHARS_MAX:
        raise ConsoleError(400, f"text: 1 to {PATTERN_CHARS_MAX} characters expected")
    options = re2.Options()
    options.case_sensitive = is_exact_case
    options.literal = not is_regex
    options.log_errors = False
    try:
        found = re2.compile(text, options=options).search
    except re2.error as error:
        reason = error.args[0] if error.args else "unreadable"
        reason = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise ConsoleError(400, f"text: no regular expression: {reason}") from None

    def holds(data: bytes | None) -> bool:
        return data is not None and found(data) is not None

    def in_headers(record: ConsumedRecord) -> bool:
        return any(
            holds(name.encode("utf-8", "surrogateescape")) or holds(value) for name, value in record.headers
        )

    return {
        "key": lambda record: holds(record.key),
        "value": lambda record: holds(record.value),
        "headers": in_headers,
        "anywhere": lambda record: holds(record.value) or holds(record.key) or in_headers(record),
    }[place]


async def search(backend: Backend, window: Window, wanted: Search, decoding: Decoding, send: Send) -> None:
    """Send what is found in a window, with the progress, until its end or until there is enough. Raises ClientError."""
    ends = {place: end for place, end in window.ends.items() if window.starts[place] < end}
    total = sum(ends[place] - window.starts[place] for place in ends)
    progress = Progress(send, total)
    await progress.tell()
    if ends:
        async with consuming(backend, SEARCHING) as consumer:
            consumer.assign(ends)
            for place in ends:
                consumer.seek(place, window.starts[place])
            await _look(consumer, ends, wanted, decoding, progress)
    await progress.tell("done")


async def _look(
    consumer: Consumer,
    ends: dict[tuple[str, int], int],
    wanted: Search,
    decoding: Decoding,
    progress: Progress,
) -> None:
    starts = {place: await consumer.position(place) for place in ends}
    while True:
        records = await consumer.receive_until(ends, BATCH_RECORDS)
        began = time.perf_counter()
        if not records:
            progress.covered = progress.total
            return
        found = [one for one in records if wanted.matches(one)][: wanted.limit - progress.found]
        progress.scanned += len(records)
        progress.found += len(found)
        if found:
            await progress.send("found", {"records": [await decoding.record(one) for one in found]})
        if progress.found >= wanted.limit or progress.scanned >= SCANNED_MAX:
            progress.is_cut = True
            return
        for one in records:
            starts[one.topic, one.partition] = one.offset + 1
        progress.covered = progress.total - sum(max(ends[place] - at, 0) for place, at in starts.items())
        await progress.tell_sometimes()
        await trio.sleep(REST_FACTOR * (time.perf_counter() - began))


class Progress:
    """Progress of a search: records looked at and found, offsets covered of all; `is_cut` where it has ended early."""

    def __init__(self, send: Send, total: int) -> None:
        self.send = send
        self.total = total
        self.scanned = self.found = self.covered = 0
        self.is_cut = False
        self._told_at = trio.current_time()

    async def tell_sometimes(self) -> None:
        """Tell how far it is, unless that was told just now."""
        if trio.current_time() - self._told_at >= PROGRESS_SECONDS:
            await self.tell()

    async def tell(self, event: str = "progress", **more: int) -> None:
        """Tell how far it is."""
        self._told_at = trio.current_time()
        value: dict[str, Any] = {
            "scanned": self.scanned,
            "found": self.found,
            "covered": self.covered,
            "total": self.total,
            "cut": self.is_cut,
            **more,
        }
        await self.send(event, value)
