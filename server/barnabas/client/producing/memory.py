"""Memory of the records of a producer that are not acknowledged yet.

The rule: a record has its room before it is put into a batch, and waiting tasks get room in turn.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import trio

from barnabas.client.errors import BufferFullError

RECORD_OVERHEAD = 256
"""Memory of a record beside its bytes: its `Delivery`, its place in lists, its lengths in the batch."""


class Memory:
    """Room for records, in bytes; waiting tasks get it in turn."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._waiting: deque[tuple[int, trio.Event]] = deque()

    @property
    def is_scarce(self) -> bool:
        """True while tasks wait for room."""
        return bool(self._waiting)

    def reserve_nowait(self, size: int) -> None:
        """Reserve memory. Raises trio.WouldBlock if too little is free, or other records wait."""
        if self._waiting or self.used_bytes + size > self.limit_bytes:
            raise trio.WouldBlock
        self.used_bytes += size

    async def reserve(self, size: int, timeout_s: float) -> None:
        """Take some room once there is some. Raises BufferFullError."""
        granted = trio.Event()
        place = size, granted
        self._waiting.append(place)
        try:
            with trio.fail_after(timeout_s):
                await granted.wait()
        except trio.TooSlowError:
            raise BufferFullError(f"the buffer stayed full for {timeout_s:g} s") from None
        except trio.Cancelled:
            if granted.is_set():
                self.release(size)
            raise
        finally:
            if place in self._waiting:
                self._waiting.remove(place)
                self._give()

    def release(self, size: int) -> None:
        """Give room back."""
        self.used_bytes -= size
        assert self.used_bytes >= 0
        self._give()

    def _give(self) -> None:
        while self._waiting and self.used_bytes + self._waiting[0][0] <= self.limit_bytes:
            size, granted = self._waiting.popleft()
            self.used_bytes += size
            granted.set()


def memory_of(key: bytes | None, value: bytes | None, headers: Any) -> int:
    """Return how much memory a record is counted for."""
    size = RECORD_OVERHEAD + len(key or b"") + len(value or b"")
    for name, header in headers:
        size += len(name) + len(header or b"") + 16
    return size
