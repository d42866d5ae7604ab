"""A write by a thread before the records are appended, so that no other task waits for the disk.

The rule: the owner of the log begins the write, and ends it: by an append of exactly these records at that position, or
by giving it up. Until then the bytes are beyond the log end. Other changes of the file end the write first.
"""

from __future__ import annotations

import threading
from typing import Final

from barnabas.log.disk import Buffer, File
from barnabas.records.batch import HEADER_SIZE

BACKGROUND_BYTES: Final = 256 << 10
"""Least size of records for which the thread pays: fewer bytes are written sooner than they are handed over."""


class BackgroundWrite:
    """Records of one batch on their way into a file. Lifecycle: `run` in any thread, then `take` or `give_up`."""

    __slots__ = ("_error", "_file", "_head", "_is_ended", "_is_written", "_lock", "_position", "_records")

    def __init__(self, file: File, records: Buffer, position: int) -> None:
        self._file = file
        self._records = records
        self._position = position
        # The fields of the place in the log are excluded: each append sets them anew.
        self._head = bytes(records[:HEADER_SIZE])
        self._lock = threading.Lock()
        self._is_ended = False
        self._is_written = False
        self._error: OSError | None = None

    def run(self) -> None:
        """Write the records, unless the write was ended; may take long. `take` raises the error of a failure."""
        with self._lock:
            if self._is_ended:
                return
            self._is_written = True
            try:
                self._file.write(self._records, self._position)
            except OSError as error:
                self._error = error

    def take(self, records: Buffer, position: int) -> bool:
        """End the write; return whether exactly these records were written at this position.

        Waits for a thread that is writing. Raises the OSError of a failed write.
        """
        if not self.give_up() or records is not self._records or position != self._position:
            return False
        if bytes(records[:HEADER_SIZE]) != self._head:
            return False
        if self._error is not None:
            raise self._error
        return True

    def give_up(self) -> bool:
        """End the write; return whether any bytes may have been written. Waits for a thread that is writing."""
        with self._lock:
            self._is_ended = True
        return self._is_written
