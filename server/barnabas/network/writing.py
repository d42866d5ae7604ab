"""Responses to visitors: JSON encoded piece by piece, and the unsent bytes of all responses.

The rule: a response is encoded in short steps, and the unsent bytes are bounded for all visitors together: beyond that,
the connection that has waited longest is closed.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import trio

from barnabas.errors import AnswerError

Piece = bytes | memoryview
PIECE_BYTES = 64 << 10
STEP_SECONDS = 0.005
"""Time after which others have their turn."""
ANSWER_BYTES_MAX = 32 << 20
"""Size of an answer."""
UNSENT_BYTES_MAX = 64 << 20
"""Bytes of all answers that are not sent yet."""
OWNER_STREAMS_MAX = 8
STREAMS_MAX = 48
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


async def pieces_of(value: Any) -> list[Piece]:
    """Return a value as JSON, in pieces. Raises AnswerError if it is too large."""
    if isinstance(value, bytes):
        return split(value)
    pieces: list[Piece] = []
    part: list[str] = []
    characters = size = 0
    began_at = time.perf_counter()
    for text in _ENCODER.iterencode(value):
        part.append(text)
        characters += len(text)
        if characters >= PIECE_BYTES:
            pieces += split("".join(part).encode("utf-8", "replace"))
            size += characters
            part, characters = [], 0
            if size > ANSWER_BYTES_MAX:
                raise AnswerError(413, f"the answer has more than {ANSWER_BYTES_MAX} bytes: ask for less")
        if len(part) & 0xFF == 0xFF and time.perf_counter() - began_at > STEP_SECONDS:
            await trio.lowlevel.checkpoint()
            began_at = time.perf_counter()
    if part:
        pieces += split("".join(part).encode("utf-8", "replace"))
    return pieces


def split(data: bytes) -> list[Piece]:
    """Return bytes in pieces to be sent one after the other, without copying."""
    view = memoryview(data)
    return [view[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES)]


def join(pieces: Sequence[Piece]) -> list[bytes]:
    """Return the pieces, with small ones joined."""
    return [b"".join(pieces)] if sum(map(len, pieces)) <= PIECE_BYTES else [bytes(piece) for piece in pieces]


class Streams:
    """Continuous responses: limits for each visitor, and for all."""

    def __init__(self, owner_max: int = OWNER_STREAMS_MAX, count_max: int = STREAMS_MAX) -> None:
        self._owner_max = owner_max
        self._count_max = count_max
        self._counts: Counter[str] = Counter()

    @contextmanager
    def open(self, owner: str) -> Iterator[None]:
        """Count a stream for the duration of a block. Raises AnswerError at a limit."""
        if self._counts[owner] >= self._owner_max:
            raise AnswerError(429, f"{self._owner_max} streams are open already: close one")
        if self._counts.total() >= self._count_max:
            raise AnswerError(503, "too many streams of others are open: try again later")
        self._counts[owner] += 1
        try:
            yield
        finally:
            self._counts[owner] -= 1
            if not self._counts[owner]:
                del self._counts[owner]


@dataclass(eq=False, slots=True)
class _Waiting:
    """An answer that is being sent."""

    size: int
    scope: trio.CancelScope


class Unsent:
    """Bytes of answers that are being sent, to all visitors."""

    def __init__(self, bytes_max: int = UNSENT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._waiting: dict[_Waiting, None] = {}
        self._size = 0

    @contextmanager
    def sending(self, pieces: Sequence[Piece]) -> Iterator[None]:
        """Count a response for the duration of a block.

        Raises BrokenResourceError if the block is cancelled, since other responses need the room and this one is the
        slowest.
        """
        waiting = _Waiting(sum(map(len, pieces)), trio.CancelScope())
        self._waiting[waiting] = None
        self._size += waiting.size
        self._make_room(waiting)
        try:
            with waiting.scope:
                yield
        finally:
            self._leave(waiting)
        if waiting.scope.cancelled_caught:
            raise trio.BrokenResourceError("the visitor is too slow")

    def _make_room(self, newest: _Waiting) -> None:
        for slow in [*self._waiting]:
            if self._size <= self._bytes_max or slow is newest:
                return
            slow.scope.cancel()
            self._leave(slow)

    def _leave(self, waiting: _Waiting) -> None:
        if waiting in self._waiting:
            del self._waiting[waiting]
            self._size -= waiting.size
