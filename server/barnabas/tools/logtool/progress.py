"""A progress bar on a terminal.

The rule: drawn on a terminal only, at most ten times a second, and erased at the end.
"""

from __future__ import annotations

from time import monotonic
from typing import TextIO

DRAW_INTERVAL_SECONDS = 0.1
WIDTH = 30


def render(done: int, total: int, seconds: float) -> str:
    """Return one line: bar, share, amount, rate, and remaining time."""
    share = min(1.0, done / total) if total else 1.0
    filled = int(share * WIDTH)
    rate = done / seconds if seconds > 0 else 0.0
    remaining = f", {(total - done) / rate:.0f} s left" if rate and done < total else ""
    bar = "#" * filled + "." * (WIDTH - filled)
    return f"[{bar}] {share:4.0%} of {total / 1e6:.1f} MB, {rate / 1e6:.0f} MB/s{remaining}"


class Progress:
    """Counts bytes against a total; without effect if `stream` is no terminal."""

    def __init__(self, total: int, stream: TextIO) -> None:
        self.total = total
        self.done = 0
        self._stream = stream
        self._is_shown = stream.isatty() and total > 0
        self._began = self._drawn = monotonic()

    def add(self, count: int) -> None:
        """Note that `count` more bytes are done."""
        self.done += count
        if self._is_shown:
            now = monotonic()
            if now - self._drawn >= DRAW_INTERVAL_SECONDS:
                self._drawn = now
                self._stream.write(f"\r\x1b[K{render(self.done, self.total, now - self._began)}")
                self._stream.flush()

    def clear(self) -> None:
        """Wipe the bar away."""
        if self._is_shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
