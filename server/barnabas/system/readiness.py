"""Sets of descriptors with their readiness for reading: epoll, and kqueue with the methods of epoll that we use."""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import Any, Final, Protocol

_select: Any = select

READABLE: Final = 1
"""The event that descriptors are watched for: EPOLLIN."""


class ReadableSet(Protocol):
    """Descriptors that are watched for readability, level-triggered. A closed one is removed automatically."""

    def fileno(self) -> int:
        """Return a descriptor that is itself readable while a descriptor in the set is."""

    def register(self, descriptor: int, events: int, /) -> None:
        """Watch a descriptor. Raises OSError."""

    def unregister(self, descriptor: int, /) -> None:
        """Watch a descriptor no longer. Raises OSError."""

    def poll(self, timeout: float, events_max: int, /) -> list[tuple[int, int]]:
        """Return at most this many readable descriptors, as pairs of descriptor and events: the longest waiting first."""


class KqueueSet:
    """A kqueue as a ReadableSet."""

    def __init__(self) -> None:
        self._kqueue = _select.kqueue()

    def fileno(self) -> int:
        """Return the descriptor of the kqueue."""
        return int(self._kqueue.fileno())

    def register(self, descriptor: int, _events: int, /) -> None:
        """Watch a descriptor."""
        self._change(descriptor, _select.KQ_EV_ADD)

    def unregister(self, descriptor: int, /) -> None:
        """Watch a descriptor no longer."""
        self._change(descriptor, _select.KQ_EV_DELETE)

    def poll(self, timeout: float, events_max: int, /) -> list[tuple[int, int]]:
        """Return descriptors that are readable, also those closed by the peer."""
        return [(event.ident, READABLE) for event in self._kqueue.control(None, events_max, timeout)]

    def _change(self, descriptor: int, flags: int) -> None:
        self._kqueue.control([_select.kevent(descriptor, _select.KQ_FILTER_READ, flags)], 0)


new_readable_set: Final[Callable[[], ReadableSet]] = _select.epoll if hasattr(select, "epoll") else KqueueSet
