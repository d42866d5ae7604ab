"""Schema registries beside a broker, in the loop of the test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from barnabas.client import ClientSettings, parse_bootstrap
from barnabas.network.visitors import Address
from barnabas.registry.client import RegistryClient
from barnabas.registry.errors import RegistryError
from barnabas.registry.records import Record
from barnabas.registry.serving import RegistryServer
from barnabas.registry.state import State


@asynccontextmanager
async def registry(bootstrap: str, topic: str = "_schemas") -> AsyncIterator[RegistryClient]:
    """Serve a registry that a broker keeps, and give a client for it."""
    server = RegistryServer(Address("127.0.0.1", 0), may_be_reached=False)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run, parse_bootstrap(bootstrap), ClientSettings(), None, topic)
        yield RegistryClient(server.url)
        nursery.cancel_scope.cancel()


async def refused(client: RegistryClient, method: str, path: str, body: Any = None) -> tuple[int, int, str]:
    """Return status, code and text of a refusal."""
    try:
        found = await client.ask(method, path, body)
    except RegistryError as error:
        return error.status, error.code, error.message
    raise AssertionError(f"{method} {path} is answered with {found}")


class Written:
    """A store without a topic, which keeps what it would have written."""

    def __init__(self) -> None:
        self.state = State()
        self.records: list[Record] = []

    async def write(self, decide: Any) -> Any:
        """Decide, and take what was decided."""
        records, answer = await decide(self.state)
        for key, value in records:
            self.state.apply(key, value)
        self.records += records
        return answer
