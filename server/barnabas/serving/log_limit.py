"""Limit for log lines that a client can cause repeatedly: the first few each minute, then their number.

The rule: neither the log nor the memory for it grows with the input of clients.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

LINES_MAX = 5
"""Lines of one kind from one source in one period."""

PERIOD_SECONDS = 60.0
SOURCES_MAX = 50
"""Sources of one kind in one period; all further ones count as one."""

OTHER_SOURCES = "other hosts"


class _Period:
    __slots__ = ("ends", "left_out", "level", "lines", "logger")

    def __init__(self, ends: float, logger: logging.Logger, level: int) -> None:
        self.ends = ends
        self.logger = logger
        self.level = level
        self.lines = 0
        self.left_out = 0


class LogLimit:
    """Writes log lines, at most `LINES_MAX` of one kind from one source in a period.

    The number of suppressed lines is logged after the period. Lifecycle: `run` in a task until cancelled.
    """

    def __init__(self, clock: Callable[[], float] = trio.current_time) -> None:
        self._clock = clock
        self._periods: dict[tuple[str, str], _Period] = {}
        self._sources: dict[str, int] = {}
        self.left_out = 0
        """Lines that were not written since the start."""

    def log(
        self, logger: logging.Logger, level: int, kind: str, source: str, text: str, *args: object
    ) -> None:
        """Write `text % args` unless there were enough lines of this kind from this source.

        `kind` is a few words in the plural, as in `malformed requests`; `source` the host of a peer.
        """
        if not logger.isEnabledFor(level):
            return
        now = self._clock()
        key = (kind, source)
        period = self._periods.get(key)
        if period is None and self._sources.get(kind, 0) >= SOURCES_MAX:
            key = (kind, OTHER_SOURCES)
            period = self._periods.get(key)
        if period is not None and period.ends <= now:
            self._end(key, period)
            period = None
        if period is None:
            period = self._periods[key] = _Period(now + PERIOD_SECONDS, logger, level)
            self._sources[kind] = self._sources.get(kind, 0) + 1
        if period.lines < LINES_MAX:
            period.lines += 1
            logger.log(level, text, *args)
        else:
            period.left_out += 1
            self.left_out += 1

    async def run(self) -> None:
        """Log the numbers of suppressed lines, until cancelled."""
        while True:
            await trio.sleep(PERIOD_SECONDS / 4)
            self.summarize()

    def summarize(self) -> None:
        """Log the numbers of suppressed lines in finished periods, and drop these."""
        now = self._clock()
        for key, period in [period for period in self._periods.items() if period[1].ends <= now]:
            self._end(key, period)

    def _end(self, key: tuple[str, str], period: _Period) -> None:
        kind, source = key
        del self._periods[key]
        self._sources[kind] -= 1
        if period.left_out:
            period.logger.log(
                period.level,
                "%d more %s from %s within %d s",
                period.left_out,
                kind,
                source,
                round(PERIOD_SECONDS),
            )
