"""A write that a thread does before its records are appended, so that no other task waits for the disk.

The rule: the owner of the log begins it, and ends it: by an append of exactly these records to where they were written, or
by giving it up. What it writes is behind the end of the log until then. Whatever else changes the file ends it first.
"""

from __future__ import annotations

import threading
from typing import Final

from barnabas.log.disk import Buffer, File
from barnabas.records.batch import HEADER_SIZE

BACKGROUND_BYTES: Final = 256 << 10
"""From this size on it is worth it: fewer are written in less time than to hand them over takes."""


class BackgroundWrite:
    """Records of one batch on their way into a file. Lifecycle: `run` in any thread, then `take` or `give_up`."""

    __slots__ = ("_error", "_file", "_head", "_is_ended", "_is_written", "_lock", "_position", "_records")

    def __init__(self, file: File, records: Buffer, position: int) -> None:
        self._file = file
        self._records = records
        self._position = position
        # With the place in the log, which each append gives anew.
        self._head = bytes(records[:HEADER_SIZE])
        self._lock = threading.Lock()
        self._is_ended = False
        self._is_written = False
        self._error: OSError | None = None

    def run(self) -> None:
        """Write, unless it was ended before; may take long. What fails is raised by `take`."""
        with self._lock:
            if self._is_ended:
                return
            self._is_written = True
            try:
                self._file.write(self._records, self._position)
            except OSError as error:
                self._error = error

    def take(self, records: Buffer, position: int) -> bool:
        """End it; return whether these records, as they are now, are what was written, and there.

        Waits for a thread that is writing. Raises the OSError of a write that failed.
        """
        if not self.give_up() or records is not self._records or position != self._position:
            return False
        if bytes(records[:HEADER_SIZE]) != self._head:
            return False
        if self._error is not None:
            raise self._error
        return True

    def give_up(self) -> bool:
        """End it; return whether anything was perhaps written. Waits for a thread that is writing."""
        with self._lock:
            self._is_ended = True
        return self._is_written
