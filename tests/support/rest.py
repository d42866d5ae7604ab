"""A REST API of a broker in the loop of the test, and a client that asks it over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from http.client import HTTPConnection
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import trio

from barnabas.client import ClientSettings, parse_bootstrap
from barnabas.network.visitors import Address
from barnabas.registry.client_settings import RegistryAt
from barnabas.rest.backend import Cluster, SettingsOf
from barnabas.rest.serving import RestServer
from barnabas.testing import KafkaBroker, start_thread
from tests.support.hosted import QUICK_GROUPS
from tests.support.registries import registry

SECONDS_MAX = 60.0
V3_TYPE = "application/json"
JSON_V2, BINARY_V2 = "application/vnd.kafka.json.v2+json", "application/vnd.kafka.binary.v2+json"
AVRO_V2, PROTOBUF_V2 = "application/vnd.kafka.avro.v2+json", "application/vnd.kafka.protobuf.v2+json"
JSONSCHEMA_V2, V2 = "application/vnd.kafka.jsonschema.v2+json", "application/vnd.kafka.v2+json"


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
    """Send a request on a new connection."""
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
        """Send a request; a body other than bytes is sent as JSON."""
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
    bootstrap: str, registry_at: RegistryAt | None = None, settings_of: SettingsOf | None = None
) -> AsyncIterator[Rest]:
    """Serve the REST API of a broker for the length of a block."""
    server = RestServer(Address("127.0.0.1", 0), may_be_reached=False)
    cluster = Cluster(tuple(parse_bootstrap(bootstrap)), ClientSettings(), settings_of, registry_at)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run, cluster)
        yield Rest(server.url)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def world(*, has_registry: bool = True) -> AsyncIterator[tuple[Rest, str, KafkaBroker]]:
    """Yield the REST API of a broker with topic `t` (two partitions) and a registry, the cluster's path, and the broker."""
    broker = start_thread(settings=QUICK_GROUPS, seeds={"topics": {"t": {"partitions": 2}}})
    try:
        async with AsyncExitStack() as stack:
            at = None
            if has_registry:
                at = RegistryAt((await stack.enter_async_context(registry(broker.bootstrap))).url)
            server = await stack.enter_async_context(rest(broker.bootstrap, at))
            yield server, await server.cluster(), broker
    finally:
        broker.close()


async def records_of(server: Rest, instance: str, count: int, accept: str = "*/*") -> list[Any]:
    """Read until a consumer has returned `count` records; returns them."""
    records: list[Any] = []
    with trio.fail_after(60):
        while len(records) < count:
            answer = await server.ask("GET", f"{instance}/records?timeout=500", Accept=accept)
            assert answer.status == 200, answer
            records += answer.json
    return records
