"""Files that can be rebuilt from the log: indexes, producer snapshots, leader epochs.

The rule: on a full disk they are not written: memory has their content, and the next start rebuilds them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from barnabas.errors import lacks_room

log = logging.getLogger(__name__)


class DerivedFiles:
    """Writes the derived files of one log; warnings name its directory."""

    __slots__ = ("_directory", "_is_full_logged")

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._is_full_logged = False

    def write(self, write: Callable[[], None]) -> None:
        """Write a derived file, if there is room for it. Raises OSError for any other reason."""
        try:
            write()
        except OSError as error:
            if not lacks_room(error):
                raise
            if not self._is_full_logged:
                self._is_full_logged = True
                log.warning(
                    "%s: no room for indexes and snapshots, they are kept in memory: %s",
                    self._directory,
                    error,
                )
