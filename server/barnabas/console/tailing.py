"""New records of a topic, as events.

The rule: as much as a person can read. Some records are sent four times a second; if more arrive, the tail jumps to the
end and reports the number of skipped ones. While a browser does not read, no records are fetched.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from barnabas.client import Consumer, TopicPartition
from barnabas.console.base import Send
from barnabas.console.batches import Limits, Part, Row, View
from barnabas.console.reader import PART_BYTES_MAX, READING, Opener, Place, consuming, opener_of

if TYPE_CHECKING:
    from barnabas.client.values import FetchedRecords
    from barnabas.console.backend import Backend
    from barnabas.console.reading import Bounds

TURN_SECONDS = 0.25
RECORDS_PER_TURN = 25
BEHIND_MAX = 4 * RECORDS_PER_TURN
"""A partition that is further behind than this is read from its end on."""
ALIVE_SECONDS = 15.0
"""Time without a record after which an empty event shows that the tail is alive."""
TAILING = replace(
    READING,
    fetch_wait_ms_max=1_000,
    fetch_bytes_max=64 << 10,
    partition_bytes_max=32 << 10,
    prefetch_bytes=64 << 10,
)


async def tail(backend: Backend, bounds: Bounds, view: View, send: Send) -> None:
    """Send records from the ends of `bounds` on, until cancelled. Raises ClientError."""
    opener = opener_of(backend, view)
    async with consuming(backend, TAILING) as consumer:
        consumer.assign(bounds.next)
        for place, end in bounds.next.items():
            consumer.seek(place, end)
        await send("begun", {"partitions": len(bounds.next)})
        quiet_since = trio.current_time()
        waiting: deque[Part] = deque()
        while True:
            await trio.sleep(TURN_SECONDS)
            rows: list[Row] = []
            skipped = 0
            if not waiting:
                for fetched in await consumer.receive_unopened({}, TAILING.prefetch_bytes):
                    if len(fetched.data) > PART_BYTES_MAX:
                        rows += opener.unopened(fetched, fetched.end_offset).rows
                    else:
                        waiting.append(_part(fetched))
            while waiting and len(rows) < RECORDS_PER_TURN:
                rows += await _open(opener, waiting, RECORDS_PER_TURN - len(rows))
            if rows:
                skipped = await skip(consumer, list(bounds.next))
            if len(rows) >= RECORDS_PER_TURN and sum(part.end - part.start for part in waiting) > BEHIND_MAX:
                skipped += sum(part.end - part.start for part in waiting)
                waiting.clear()
            if rows or skipped or trio.current_time() - quiet_since >= ALIVE_SECONDS:
                quiet_since = trio.current_time()
                await send("records", rows_as_json(rows, skipped))


def _part(fetched: FetchedRecords) -> Part:
    return Part(fetched.partition, fetched.offset, fetched.end_offset, bytes(fetched.data), fetched.aborted)


async def _open(opener: Opener, waiting: deque[Part], rows_max: int) -> list[Row]:
    """Return rows of the first part, and put its rest back."""
    part = waiting.popleft()
    records_max = 1 << 31 if opener.view.is_search else rows_max
    ((opened, rows),) = await opener.open([part], [Limits(records_max, rows_max, 1 << 31)])
    if opened.at < part.end:
        waiting.appendleft(part._replace(start=opened.at))
    return rows


def rows_as_json(rows: Sequence[Row], skipped: int) -> bytes:
    """Return the JSON of an event: records, and the number of records skipped before them."""
    return b'{"records":[%s],"skipped":%d}' % (b",".join(row.content for row in rows), skipped)


async def skip(consumer: Consumer, places: Sequence[Place]) -> int:
    """Seek partitions with a large lag to the end; returns the number of skipped records."""
    skipped = 0
    for place in places:
        partition = TopicPartition(*place)
        lag = consumer.lag(partition)
        if lag is not None and lag > BEHIND_MAX:
            # The end, where a batch begins: an offset within one is found by decoding all records before it.
            consumer.seek(partition, await consumer.position(partition) + lag)
            skipped += lag
    return skipped
