"""Lines written by another thread: a stopped terminal, or a pipe without a reader, delays no traffic.

The rule: the queue is bounded; lines that do not fit are counted, and the count is written in their place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import IO, Any

import trio

WAITING_MAX = 20_000
WAITING_BYTES_MAX = 64 << 20
AT_ONCE = 1000


class LineWriter:
    """Writes lines in a thread; `run` is its task."""

    def __init__(self, write: Callable[[str], Any], left_out: Callable[[int], str]) -> None:
        """`write` writes text and may block; `left_out` returns the line that reports a number of lost lines."""
        self._write = write
        self._left_out = left_out
        self._waiting: deque[str] = deque()
        self._bytes = 0
        self._lost = 0
        self._wake = trio.Event()
        self._is_closing = False
        self.failure: OSError | None = None
        """The error that ended writing, if any."""

    def put(self, line: str) -> None:
        """Have a line written."""
        if len(self._waiting) >= WAITING_MAX or self._bytes + len(line) > WAITING_BYTES_MAX:
            self._lost += 1
            return
        if self._lost:
            self._add(self._left_out(self._lost))
            self._lost = 0
        self._add(line)

    def _add(self, line: str) -> None:
        self._waiting.append(line)
        self._bytes += len(line)
        self._wake.set()

    async def run(self) -> None:
        """Write until closed and empty; ends early where writing fails."""
        while True:
            if not self._waiting:
                if self._is_closing:
                    return
                self._wake = trio.Event()
                await self._wake.wait()
                continue
            lines = [self._waiting.popleft() for _ in range(min(AT_ONCE, len(self._waiting)))]
            self._bytes -= sum(map(len, lines))
            text = "\n".join(lines) + "\n"
            try:
                await trio.to_thread.run_sync(self._write, text, abandon_on_cancel=True)
            except OSError as error:
                self.failure = error
                return

    def close(self) -> None:
        """Have `run` return when all is written."""
        if self._lost:
            self._add(self._left_out(self._lost))
            self._lost = 0
        self._is_closing = True
        self._wake.set()


class DirectWriter:
    """Writes lines synchronously: reading a capture may wait for the reader of the output."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self.failure: OSError | None = None
        """The error that ended writing, if any."""

    def put(self, line: str) -> None:
        """Write a line. Raises BrokenPipeError where the reader has closed the pipe."""
        if self.failure is not None:
            return
        try:
            self._file.write(line + "\n")
        except BrokenPipeError:
            raise
        except OSError as error:
            self.failure = error

    def close(self) -> None:
        """Flush; the file stays open. Raises BrokenPipeError."""
        try:
            self._file.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            self.failure = self.failure or error
