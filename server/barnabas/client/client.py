"""The client of Trio programs: connections by broker, which any number of tasks share.

The rule: as in `base_client`; a connection is opened by a separate task, which a caller's cancellation does not end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import trio

from barnabas.client.background import background
from barnabas.client.base_client import BaseClient
from barnabas.client.connection import Connection, Dial, InTrio, dial_tcp, start_connection
from barnabas.client.errors import ClientError, ClosedError
from barnabas.client.settings import ClientSettings, Endpoint, parse_bootstrap

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


@dataclass(slots=True)
class _Opening:
    """A connection that is being opened, shared by all tasks that wait for it."""

    done: trio.Event = field(default_factory=trio.Event)
    failure: ClientError | None = None


class Client(InTrio, BaseClient[Connection]):
    """Lifecycle: `open_client`. Any number of tasks may ask at the same time."""

    def __init__(
        self, nursery: trio.Nursery, bootstrap: Iterable[Endpoint], settings: ClientSettings, dial: Dial
    ) -> None:
        super().__init__(bootstrap, settings)
        self._nursery = nursery
        self._dial = dial
        self._opening: dict[tuple[Endpoint, str], _Opening] = {}

    async def sleep(self, seconds: float) -> None:
        """Wait, and let other tasks run."""
        await trio.sleep(seconds)

    async def each(self, keys: Iterable[K], ask: Callable[[K], Awaitable[T]]) -> dict[K, T | ClientError]:
        """Call a function for each key, each in a separate task."""
        unique = list(dict.fromkeys(keys))
        results: dict[K, T | ClientError] = {}

        async def run(key: K) -> None:
            try:
                results[key] = await ask(key)
            except ClientError as error:
                results[key] = error

        async with trio.open_nursery() as nursery:
            for key in unique:
                nursery.start_soon(run, key)
        return {key: results[key] for key in unique}

    async def open_connection(self, endpoint: Endpoint, lane: str) -> Connection:
        """Connect to an address, once for all tasks that ask for it."""
        place = endpoint, lane
        opening = self._opening.get(place)
        if opening is None:
            # A task of the client: a caller's cancellation does not abort an attempt that others share.
            opening = self._opening[place] = _Opening()
            self._nursery.start_soon(self._open, place, opening)
        await opening.done.wait()
        if opening.failure is not None:
            raise type(opening.failure)(*opening.failure.args) from opening.failure
        return self._connections[place]

    async def _open(self, place: tuple[Endpoint, str], opening: _Opening) -> None:
        try:
            self._connections[place] = await start_connection(
                self._nursery, place[0], self.settings, dial=self._dial
            )
        except ClientError as error:
            opening.failure = error
        except trio.Cancelled:
            opening.failure = ClosedError("the client is closed")
            raise
        finally:
            del self._opening[place]
            opening.done.set()


@asynccontextmanager
async def open_client(
    bootstrap: str | Iterable[Endpoint],
    settings: ClientSettings | None = None,
    *,
    dial: Dial = dial_tcp,
) -> AsyncIterator[Client]:
    """Create a client; connections are opened when they are needed and closed at the end of the block.

    Errors of the block are raised unchanged, not in an exception group.
    """
    endpoints = parse_bootstrap(bootstrap) if isinstance(bootstrap, str) else list(bootstrap)
    async with background() as nursery:
        client = Client(nursery, endpoints, settings or ClientSettings(), dial)
        try:
            yield client
        finally:
            client.close()
