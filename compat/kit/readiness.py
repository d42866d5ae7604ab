"""Waiting for a file or a socket, whatever its descriptor's number: select() takes none above 1023."""

from __future__ import annotations

import select
from typing import Protocol


class HasDescriptor(Protocol):
    """A file or a socket."""

    def fileno(self) -> int:
        """Return its descriptor."""


def is_readable(file: HasDescriptor, within_s: float) -> bool:
    """Return whether there is something to read, or the end, within that time."""
    poll = select.poll()
    poll.register(file.fileno(), select.POLLIN)
    return bool(poll.poll(within_s * 1000))
