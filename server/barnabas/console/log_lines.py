"""The newest lines of the broker's log, for the console."""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

LINES_MAX = 1_000
LINE_CHARS_MAX = 2_000


class Lines(logging.Handler):
    """The newest lines of a log."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[dict[str, Any]] = deque(maxlen=LINES_MAX)
        self._count = 0

    def since(self, number: int) -> list[dict[str, Any]]:
        """Return the lines after a number, oldest first."""
        return [line for line in self._lines if line["id"] > number]

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        self._count += 1
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += f" ({type(record.exc_info[1]).__name__}: {record.exc_info[1]})"
        self._lines.append(
            {
                "id": self._count,
                "at": int(record.created * 1000),
                "level": record.levelname.lower(),
                "logger": record.name,
                "text": text[:LINE_CHARS_MAX],
            }
        )
