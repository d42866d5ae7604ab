"""A topic's records as they come, as events.

The rule: as much as a person can read. Some records four times a second are sent; where more come, the tail jumps to the
end and says how many it has left out. What a browser does not take in is not read either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import trio

from barnabas.client import ConsumedRecord, Consumer, TopicPartition
from barnabas.console.backend import Backend
from barnabas.console.base import Send
from barnabas.console.decoding import Decoding
from barnabas.console.reading import READING, Bounds, Place, consuming

TURN_SECONDS = 0.25
RECORDS_PER_TURN = 25
BEHIND_MAX = 4 * RECORDS_PER_TURN
"""A partition that is further behind than this is read from its end on."""
ALIVE_SECONDS = 15.0
"""After so long without a record an empty event says that the tail is alive."""
TAILING = replace(
    READING,
    fetch_wait_ms_max=1_000,
    fetch_bytes_max=64 << 10,
    partition_bytes_max=32 << 10,
    prefetch_bytes=64 << 10,
)


async def tail(backend: Backend, bounds: Bounds, decoding: Decoding, send: Send) -> None:
    """Send records from the ends of `bounds` on, until cancelled. Raises ClientError."""
    async with consuming(backend, TAILING) as consumer:
        consumer.assign(bounds.next)
        for place, end in bounds.next.items():
            consumer.seek(place, end)
        await send("begun", {"partitions": len(bounds.next)})
        quiet_since = trio.current_time()
        while True:
            await trio.sleep(TURN_SECONDS)
            records: list[ConsumedRecord] = []
            with trio.move_on_after(ALIVE_SECONDS):
                records = await consumer.receive_batch(RECORDS_PER_TURN)
            skipped = await skip(consumer, list(bounds.next)) if records else 0
            if records or trio.current_time() - quiet_since >= ALIVE_SECONDS:
                quiet_since = trio.current_time()
                await send("records", {"records": await _shown(records, decoding), "skipped": skipped})


async def _shown(records: Sequence[ConsumedRecord], decoding: Decoding) -> list[dict[str, Any]]:
    return [await decoding.record(one) for one in records]


async def skip(consumer: Consumer, places: Sequence[Place]) -> int:
    """Move on those partitions that are far behind; returns how many records are left out."""
    skipped = 0
    for place in places:
        one = TopicPartition(*place)
        lag = consumer.lag(one)
        if lag is not None and lag > BEHIND_MAX:
            # The end, where a batch begins: an offset within one is found by decoding all records before it.
            consumer.seek(one, await consumer.position(one) + lag)
            skipped += lag
    return skipped
