"""Connections to the other replicas: one for each voter, and one for fetching the log.

The rule: a Fetch that waits for new records does not delay a vote; each failure is a ControllerError that names its
cause.
"""

from __future__ import annotations

from typing import Any, Protocol

import trio

from barnabas.client import ClientSettings
from barnabas.client.connection import Dial
from barnabas.cluster.kraft.controllers import ControllerConnections
from barnabas.cluster.kraft.follower import ControllerError
from barnabas.config.quorum import Address
from barnabas.wire.errors import DecodeError, EncodeError


class Peers(Protocol):
    """Sends requests to other replicas."""

    async def run(self) -> None:
        """Keep the connections until cancelled."""

    async def ask(self, key: int, address: Address, message: Any) -> Any:
        """Return the answer to a request; `key` names the connection. Raises ControllerError."""


class PeerConnections:
    """Connections with the client's TLS and SASL. Lifecycle: `run` in a task; requests wait for it."""

    def __init__(self, settings: ClientSettings, *, request_timeout_ms: int, dial: Dial) -> None:
        self._settings = settings
        self._timeout_ms = request_timeout_ms
        self._dial = dial
        self._connections: dict[int, ControllerConnections] = {}
        self._nursery: trio.Nursery | None = None

    async def run(self) -> None:
        """Keep the connections until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for connections in self._connections.values():
                nursery.start_soon(connections.run)
            await trio.sleep_forever()

    async def ask(self, key: int, address: Address, message: Any) -> Any:
        """Return the answer to a request; `key` names the connection. Raises ControllerError."""
        connections = self._connections.get(key)
        if connections is None:
            connections = self._connections[key] = ControllerConnections(
                self._settings, request_timeout_ms=self._timeout_ms, dial=self._dial
            )
            if self._nursery is not None:
                self._nursery.start_soon(connections.run)
        try:
            return await connections.ask(address, lambda _: message)
        except (EncodeError, DecodeError) as error:
            raise ControllerError(str(error)) from error
