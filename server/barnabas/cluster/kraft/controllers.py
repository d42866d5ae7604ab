"""Connections to the controllers of a quorum: one at a time, TLS and SASL by the settings of the client.

The rule: a missing capability of a controller, and each failure of a connection, raises a ControllerError that names the
cause; the connection is closed then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import trio

from barnabas.client import ClientError, ClientSettings, Connection, Endpoint
from barnabas.client.connection import Dial, dial_tcp, start_connection
from barnabas.cluster.kraft.follower import ControllerError, RefusedError
from barnabas.cluster.kraft.observer import FETCH_VERSION_MIN
from barnabas.config.quorum import Address

FETCH, FETCH_SNAPSHOT, METADATA = 1, 59, 3
REQUEST_TIMEOUT_MS: Final = 2_000


def reason_against(versions: dict[int, tuple[int, int]]) -> str:
    """Return why a node with these versions of APIs cannot be observed; empty if it can."""
    if FETCH_SNAPSHOT not in versions or METADATA in versions:
        return "is no listener of a controller: name one of controller.quorum.bootstrap.servers"
    if versions.get(FETCH, (0, 0))[1] < FETCH_VERSION_MIN:
        return f"serves Fetch below v{FETCH_VERSION_MIN}: it is older than Kafka 3.3"
    return ""


class ControllerConnections:
    """Sends requests to one controller after the other. Lifecycle: `run` in a task; requests wait for it."""

    def __init__(
        self,
        settings: ClientSettings,
        *,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
        dial: Dial = dial_tcp,
    ) -> None:
        """`request_timeout_ms` covers connecting and the answer together (controller.quorum.request.timeout.ms)."""
        self._settings = settings
        self._timeout_s = request_timeout_ms / 1000
        self._dial = dial
        self._connection: Connection | None = None
        self._nursery: trio.Nursery | None = None
        self._has_begun = trio.Event()

    async def run(self) -> None:
        """Keep the connection until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._has_begun.set()
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None
                self._close()

    async def ask(self, address: Address, make: Callable[[int], Any]) -> Any:
        """Return the answer to a request, made for the version of Fetch that both sides support. Raises ControllerError."""
        await self._has_begun.wait()
        answered = False
        try:
            with trio.fail_after(self._timeout_s):
                connection = await self._connected(Endpoint(*address))
                response = await connection.ask(make(connection.version_of(FETCH)))
            answered = True
            return response
        except trio.TooSlowError:
            raise ControllerError(f"no answer in {self._timeout_s:g} s") from None
        except ClientError as error:
            is_refused = isinstance(error.__cause__, ConnectionRefusedError)
            raise (RefusedError if is_refused else ControllerError)(str(error)) from error
        finally:
            if not answered:
                self._close()

    async def _connected(self, endpoint: Endpoint) -> Connection:
        connection = self._connection
        if connection is not None and connection.is_open and connection.peer == endpoint:
            return connection
        self._close()
        if self._nursery is None:
            raise ControllerError("the connections are closed")
        connection = self._connection = await start_connection(
            self._nursery, endpoint, self._settings, dial=self._dial
        )
        reason = reason_against(connection.versions)
        if reason:
            raise ControllerError(f"{endpoint} {reason}")
        return connection

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
