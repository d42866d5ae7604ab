"""Reassembly of one direction of a TCP connection from captured segments. Pure.

The rule: bytes are yielded in order, each once; missing bytes are a gap, yielded as late as the bounds allow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

WAITING_BYTES_MAX = 4 << 20
WAITING_SEGMENTS_MAX = 4096
_WRAP = 1 << 32


class Piece(NamedTuple):
    """The next bytes of a stream; or, with `gap`, the number of bytes missing before the next piece."""

    at: float
    data: bytes
    gap: int = 0


class Reassembly:
    """Puts segments in order."""

    def __init__(self) -> None:
        self._next: int | None = None
        """The expected sequence number; None before the first segment."""
        self._waiting: dict[int, tuple[float, bytes, int]] = {}
        """Early segments by sequence number: time, payload, missing bytes at their end."""
        self._waiting_bytes = 0
        self.repeated_bytes = 0
        self.early = 0
        """Number of segments that arrived out of order."""

    @property
    def has_begun(self) -> bool:
        """True once a sequence number is known."""
        return self._next is not None

    def begin(self, sequence: int) -> None:
        """Begin after a SYN with this sequence number."""
        self._next = (sequence + 1) % _WRAP
        self._waiting.clear()
        self._waiting_bytes = 0

    def feed(self, at: float, sequence: int, payload: bytes, missing: int = 0) -> Iterator[Piece]:
        """Take a segment's payload; yields the pieces that are in order now."""
        if not payload and not missing:
            return
        if self._next is None:
            self._next = sequence
        distance = (sequence - self._next) % _WRAP
        if 0 < distance < _WRAP // 2:
            self._wait(at, sequence, payload, missing)
            while self._is_full():
                yield from self._jump()
            return
        yield from self._take(at, sequence, payload, missing)
        yield from self._follow()

    def acknowledged(self, sequence: int) -> Iterator[Piece]:
        """Note that the receiver has all bytes before this sequence number, so missing ones will not follow.

        Yields waiting pieces.
        """
        while self._waiting and self._next is not None and 0 < (sequence - self._next) % _WRAP < _WRAP // 2:
            yield from self._jump()

    def finish(self) -> Iterator[Piece]:
        """Yield waiting pieces, with the gaps before them."""
        while self._waiting:
            yield from self._jump()

    def _wait(self, at: float, sequence: int, payload: bytes, missing: int) -> None:
        self.early += 1
        waiting = self._waiting.get(sequence)
        if waiting is not None:
            if len(waiting[1]) >= len(payload):
                self.repeated_bytes += len(payload)
                return
            self.repeated_bytes += len(waiting[1])
            self._waiting_bytes -= len(waiting[1])
        self._waiting[sequence] = (at, payload, missing)
        self._waiting_bytes += len(payload)

    def _is_full(self) -> bool:
        return len(self._waiting) > WAITING_SEGMENTS_MAX or self._waiting_bytes > WAITING_BYTES_MAX

    def _take(self, at: float, sequence: int, payload: bytes, missing: int) -> Iterator[Piece]:
        """Yield a segment that begins at or before the expected sequence number."""
        assert self._next is not None
        repeated = (self._next - sequence) % _WRAP  # bytes of it that were yielded before
        if repeated >= len(payload) + missing:
            self.repeated_bytes += len(payload)
            return
        self.repeated_bytes += min(repeated, len(payload))
        fresh = payload[repeated:]
        missing -= max(0, repeated - len(payload))
        if fresh:
            yield Piece(at, fresh)
        if missing:
            yield Piece(at, b"", missing)
        self._next = (self._next + len(fresh) + missing) % _WRAP

    def _follow(self) -> Iterator[Piece]:
        """Yield waiting segments that are next now."""
        while self._waiting:
            assert self._next is not None
            ready = [start for start in self._waiting if (self._next - start) % _WRAP < _WRAP // 2]
            if not ready:
                return
            for sequence in sorted(ready, key=lambda start: (start - self._next) % _WRAP):  # type: ignore[operator]
                at, payload, missing = self._waiting.pop(sequence)
                self._waiting_bytes -= len(payload)
                yield from self._take(at, sequence, payload, missing)

    def _jump(self) -> Iterator[Piece]:
        """Skip the missing bytes before the first waiting segment."""
        assert self._next is not None
        start = self._next
        first = min(self._waiting, key=lambda sequence: (sequence - start) % _WRAP)
        yield Piece(self._waiting[first][0], b"", (first - start) % _WRAP)
        self._next = first
        yield from self._follow()
