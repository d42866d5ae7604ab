"""A REST API of a broker in the loop of the test, and a client that asks it over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http.client import HTTPConnection
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import trio

from barnabas.client import ClientSettings, parse_bootstrap
from barnabas.network.visitors import Address
from barnabas.registry.client_settings import RegistryAt
from barnabas.rest.backend import Cluster, SettingsOf
from barnabas.rest.serving import RestServer

SECONDS_MAX = 60.0
V3_TYPE = "application/json"


class Answer(NamedTuple):
    """An answer: status, headers in lower case, content."""

    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content) if self.content else None

    @property
    def code(self) -> tuple[int, int]:
        """Status and code of an error."""
        return self.status, self.json["error_code"]


def ask(
    url: str, method: str, path: str, content: bytes | None = None, headers: Mapping[str, str] | None = None
) -> Answer:
    """Send a request, on a connection of its own."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=SECONDS_MAX)
    try:
        connection.request(method, path, content, dict(headers or {}))
        answer = connection.getresponse()
        lower = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, lower, answer.read())
    finally:
        connection.close()


class Rest(NamedTuple):
    """A server, and the id of its cluster."""

    url: str

    async def ask(
        self, method: str, path: str, body: Any = None, *, content_type: str = V3_TYPE, **headers: str
    ) -> Answer:
        """Send a request; a body that is no bytes is sent as JSON."""
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if content is not None:
            sent.setdefault("Content-Type", content_type)
        return await trio.to_thread.run_sync(ask, self.url, method, path, content, sent)

    async def cluster(self) -> str:
        """Return the path of the cluster."""
        (cluster,) = (await self.ask("GET", "/v3/clusters")).json["data"]
        return f"/v3/clusters/{cluster['cluster_id']}"


@asynccontextmanager
async def rest(
    bootstrap: str,
    registry: RegistryAt | None = None,
    settings_of: SettingsOf | None = None,
) -> AsyncIterator[Rest]:
    """Serve the REST API of a broker for the length of a block."""
    server = RestServer(Address("127.0.0.1", 0), may_be_reached=False)
    cluster = Cluster(tuple(parse_bootstrap(bootstrap)), ClientSettings(), settings_of, registry)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run, cluster)
        yield Rest(server.url)
        nursery.cancel_scope.cancel()
