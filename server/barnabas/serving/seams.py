"""Hooks around a broker's requests, connections and store of segments: for faults, recorders, taps.

The rule: a hook that is not set is None, and costs one check for None.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from barnabas.network.transport import Transport
    from barnabas.serving.request_parts import Interceptor, Sender
    from barnabas.tiered.storage import RemoteStorage

Taker = Callable[["Transport"], Awaitable[bool]]
"""Takes an accepted connection first; true when the broker is to serve it then, otherwise it is closed."""
Doorkeeper = Callable[[str, "Transport"], "Taker | None"]
"""Asked for each accepted connection on the listener of this name: its first taker, None for the broker at once."""


class Seams(NamedTuple):
    """Hooks around a broker's requests, connections and store of segments; None where nothing stands."""

    interceptor: Interceptor | None = None
    sender: Sender | None = None
    doorkeeper: Doorkeeper | None = None
    around_store: Callable[[RemoteStorage], RemoteStorage] | None = None
    """Wraps the store of tiered storage."""


NO_SEAMS = Seams()


class Watcher(Protocol):
    """An observer that is shown the requests of a broker with their answers."""

    def attach(self, broker: Any) -> None:
        """Begin to observe this broker."""

    def around(self, inner: Interceptor | None) -> Interceptor:
        """Return an interceptor that observes requests and calls `inner`, if set, for the responses."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """Context in which the watcher runs beside the broker. Raises OSError."""
