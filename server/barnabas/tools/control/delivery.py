"""Delivery of an answer that a fault changes: late, partial, duplicated, out of order, or replaced.

The rule: an answer is a list of chunks that begins with its size and its correlation id, and is changed as bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import trio

from barnabas.wire.regions import FileRegion

if TYPE_CHECKING:
    from barnabas.network.transport import Transport
    from barnabas.tools.faults.chance import Chance
    from barnabas.tools.faults.engine import Verdict
    from barnabas.wire.regions import Chunk

SIZE_END, CORRELATION_END = 4, 8
GARBAGE_BYTES_MAX = 64 * 1024
"""Largest number of random bytes in a response."""


@dataclass(slots=True)
class Delivery:
    """Changes to the delivery of one answer; the defaults are no changes."""

    delay_s: float = 0.0
    seconds_per_byte: float = 0.0
    end: str = ""
    """`close` or `reset`, in place of the answer."""
    cut: str = ""
    """`close` or `reset`, after a part of it."""
    cut_bytes: int | None = None
    """Number of bytes that this part has; None for half of the answer."""
    has_wrong_id: bool = False
    is_twice: bool = False
    is_kept: bool = False
    """True if the answer is kept back until the next answer has been sent."""
    garbage: str = ""
    chance: Chance | None = None

    @classmethod
    def of(cls, verdict: Verdict) -> Delivery:
        """Return the effects on a response of the rules that strike."""
        garbage = verdict.first("garbage") or ""
        return cls(
            delay_s=verdict.total("delay_ms") / 1000,
            seconds_per_byte=verdict.total("delay_us_per_byte") / 1e6,
            cut=verdict.first("cut") or "",
            cut_bytes=verdict.first("bytes"),
            has_wrong_id=verdict.first("correlation_id") is not None,
            is_twice=verdict.first("twice") is not None,
            is_kept=verdict.first("swap") is not None,
            garbage=garbage,
            chance=next(iter(verdict.having("garbage"))).chance if garbage else None,
        )


def spoiled(chunks: list[Chunk], delivery: Delivery) -> list[Chunk]:
    """Return a response with another correlation id, or with garbage, as required."""
    if not delivery.has_wrong_id and not delivery.garbage:
        return chunks
    first = bytearray(chunks[0])  # type: ignore[arg-type]  # what has the size is no file
    if delivery.has_wrong_id:
        number = int.from_bytes(first[SIZE_END:CORRELATION_END], "big") ^ 0x40000000
        first[SIZE_END:CORRELATION_END] = number.to_bytes(4, "big")
    if delivery.chance is not None:
        begin = CORRELATION_END if delivery.garbage == "body" else SIZE_END
        end = min(len(first), begin + GARBAGE_BYTES_MAX)
        first[begin:end] = delivery.chance.bytes(end - begin)
    return [bytes(first), *islice(chunks, 1, None)]


def beginning(chunks: list[Chunk], size: int) -> list[Chunk]:
    """Return the first `size` bytes of chunks."""
    first_chunks: list[Chunk] = []
    for chunk in chunks:
        if size <= 0:
            break
        if len(chunk) > size:
            if isinstance(chunk, FileRegion):
                chunk = FileRegion(chunk.fd, chunk.position, size, chunk.owner)
            else:
                chunk = bytes(memoryview(chunk)[:size])
        first_chunks.append(chunk)
        size -= len(chunk)
    return first_chunks


async def deliver(delivery: Delivery, transport: Transport, chunks: list[Chunk]) -> bool:
    """Send a response, as modified by a fault; false when the connection must be closed. Raises OSError."""
    if delivery.delay_s or delivery.seconds_per_byte:
        await trio.sleep(delivery.delay_s + delivery.seconds_per_byte * sum(map(len, chunks)))
    if delivery.end:
        if delivery.end == "reset":
            transport.reset()
        return False
    if not chunks:
        return True
    chunks = spoiled(chunks, delivery)
    if delivery.cut:
        size = sum(map(len, chunks))
        part = beginning(chunks, size // 2 if delivery.cut_bytes is None else min(delivery.cut_bytes, size))
        if part:
            await transport.send(part)
        if delivery.cut == "reset":
            transport.reset()
        return False
    if delivery.is_twice:
        await transport.send(list(chunks))
    await transport.send(chunks)
    return True
