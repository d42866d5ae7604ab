"""Connections that have not authenticated: limited in number and time.

The rule: an address that opens many of them evicts its own. At the limit a new connection is still accepted: the oldest
connection of the address with the most is evicted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.serving.connection import Connection


class UnauthenticatedConnections:
    """Connections in a TLS handshake or a login, by the address of the client."""

    def __init__(self, count_max: int = 1000, seconds_max: float = 60.0) -> None:
        self._count_max = count_max
        self.seconds_max = seconds_max
        self._count = 0
        self._by_host: dict[str, dict[Connection, float]] = {}

    def __len__(self) -> int:
        return self._count

    def add(self, connection: Connection, now_s: float) -> Connection | None:
        """Count a connection; returns the connection to evict for it, if any."""
        host = connection.info.peer_address[0]
        gone = None
        if self._count >= self._count_max:
            crowd = max(self._by_host.values(), key=len)
            gone = next(iter(crowd))
            self.discard(gone)
        self._by_host.setdefault(host, {})[connection] = now_s
        self._count += 1
        return gone

    def discard(self, connection: Connection) -> None:
        """Count a connection no longer: it has authenticated, or is closed."""
        host = connection.info.peer_address[0]
        of_host = self._by_host.get(host, {})
        if of_host.pop(connection, None) is not None:
            self._count -= 1
            if not of_host:
                del self._by_host[host]

    def overdue(self, now_s: float) -> Iterator[Connection]:
        """Yield connections that have not authenticated in time."""
        limit = now_s - self.seconds_max
        for of_host in tuple(self._by_host.values()):
            for connection, since_s in tuple(of_host.items()):
                if since_s > limit:
                    break
                yield connection
