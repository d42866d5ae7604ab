"""The broker's log on standard error: its format, and a limit on the lines from one place in the code.

The rule: no client can fill a disk by repeating a request. Lines about clients have their own, narrower limits
(`requests.log_limit`), and name the client; this limit applies to all others, including our own bugs with tracebacks.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from typing import TextIO

LINES_MAX = 500
"""Warnings and errors of one place in the code in one period."""

TRACEBACKS_MAX = 20
"""Lines with a traceback."""

PERIOD_SECONDS = 60.0
LINE_CHARS_MAX = 4_000
TRACEBACK_CHARS_MAX = 40_000
UNLIMITED = ("barnabas.log",)
"""Packages without a limit: each line counts, such as lost offsets of a damaged log, and no client can cause one."""


def begin(level: str) -> None:
    """Log to standard error from `level` on, as in `warning`."""
    handler = LimitedHandler()
    handler.setFormatter(LimitedFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])


class _Period:
    __slots__ = ("count", "ends", "last")

    def __init__(self, ends: float, last: logging.LogRecord) -> None:
        self.ends = ends
        self.last = last
        self.count = 0


class LimitedHandler(logging.StreamHandler[TextIO]):
    """Writes warnings and errors of one place in the code up to a number in a minute, and then the number of the others.

    Lower levels are written in full: the operator has selected the log level for them.
    """

    def __init__(self, stream: TextIO | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream or sys.stderr)
        self._clock = clock
        self._periods: dict[tuple[str, int], _Period] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, unless the limit of its kind is reached."""
        if record.levelno < logging.WARNING or _is_unlimited(record.name):
            super().emit(record)
            return
        now = self._clock()
        self._end_periods(now)
        key = (record.pathname, record.lineno)
        period = self._periods.get(key)
        if period is None:
            period = self._periods[key] = _Period(now + PERIOD_SECONDS, record)
        period.count += 1
        limit = _limit(record)
        if period.count <= limit:
            super().emit(record)
            if period.count == limit:
                self._note(record, "what %s:%d logs is left out for up to %d s", round(PERIOD_SECONDS))
        else:
            period.last = record

    def close(self) -> None:
        """Write the numbers of suppressed lines."""
        self.acquire()
        try:
            self._end_periods(None)
        finally:
            self.release()
        super().close()

    def _end_periods(self, now: float | None) -> None:
        """End the periods that are over, without a time all of them, and write the number of lines suppressed in them."""
        over = [key for key, period in self._periods.items() if now is None or period.ends <= now]
        for key in over:
            period = self._periods.pop(key)
            left_out = period.count - _limit(period.last)
            if left_out > 0:
                self._note(period.last, "%s:%d has logged %d more lines", left_out)

    def _note(self, about: logging.LogRecord, text: str, number: int) -> None:
        """Write a line about the place that has logged a record."""
        super().emit(
            logging.LogRecord(
                about.name, about.levelno, about.pathname, about.lineno,
                text, (about.filename, about.lineno, number), None,
            )
        )  # fmt: skip


class LimitedFormatter(logging.Formatter):
    """Formats records as usual; the middle of a very long line, with a client's name of 32 KB in it, is omitted."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        text = super().format(record)
        most = TRACEBACK_CHARS_MAX if record.exc_info else LINE_CHARS_MAX
        if len(text) <= most:
            return text
        half = most // 2
        return f"{text[:half]} ... {len(text) - 2 * half} characters ... {text[-half:]}"


def _limit(record: logging.LogRecord) -> int:
    return TRACEBACKS_MAX if record.exc_info else LINES_MAX


def _is_unlimited(name: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in UNLIMITED)
