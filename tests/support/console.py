"""A console beside a broker in the test's own event loop, and a visitor that asks it over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import trio

from barnabas.client import ProducerSettings, open_producer, parse_bootstrap
from barnabas.client.admin import Admin, NewTopic
from barnabas.client.client import open_client
from barnabas.config.loading import BrokerConfig
from barnabas.console.log_lines import Lines
from barnabas.console.own_broker import OwnBroker
from barnabas.console.server import ConsoleServer
from barnabas.console.target import Cluster, Target, WhereNow
from barnabas.network.visitors import Address
from barnabas.tools.control.host import Host
from tests.support.hosted import QUICK_GROUPS

SECONDS_MAX = 20.0
PASSWORD = "secret"
LOGIN = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:operator",
    "listeners": "PLAINTEXT://127.0.0.1:0,USERS://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,USERS:SASL_PLAINTEXT",
    "listener.name.users.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.users.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        + " ".join(f'user_{name}="{PASSWORD}"' for name in ("operator", "ann", "bob", "eve"))
        + ";"
    ),
}
"""A broker with a user of the console, and visitors with different rights."""


class Answer(NamedTuple):
    """An answer: status, headers in lower case, content."""

    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)


class Visitor:
    """A browser's HTTP side: it stores its cookie, and sends the origin of its requests."""

    def __init__(self, url: str) -> None:
        self.host = url.removeprefix("http://")
        self.origin = url
        self.cookie = ""
        self.csrf = ""

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str | None] | None = None,
        **query: Any,
    ) -> Answer:
        """Send a request; headers that are None are left out."""
        target = path + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body).encode()
        own: dict[str, str | None] = {"Host": self.host, "Cookie": self.cookie or None}
        if method != "GET":
            own |= {"Origin": self.origin, "X-Console-CSRF": self.csrf}
        sent = {name: value for name, value in {**own, **(headers or {})}.items() if value is not None}
        return await trio.to_thread.run_sync(self._ask, method, target, data, sent)

    def _ask(self, method: str, target: str, data: bytes | None, headers: dict[str, str]) -> Answer:
        host, _, port = self.origin.removeprefix("http://").rpartition(":")
        connection = HTTPConnection(host, int(port), timeout=SECONDS_MAX)
        try:
            connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name, value)
            if data is not None:
                connection.putheader("Content-Length", str(len(data)))
            connection.endheaders(data)
            answer = connection.getresponse()
            fields = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, fields, answer.read())
        finally:
            connection.close()

    async def begin(self, **login: str) -> Any:
        """Begin a session, with a login if given; returns the console's JSON for it."""
        answer = await (self.ask("POST", "/api/session", login) if login else self.ask("GET", "/api/session"))
        assert answer.status == 200, answer
        self.cookie = answer.headers["set-cookie"].partition(";")[0]
        self.csrf = answer.json["csrf"]
        return answer.json

    async def get(self, path: str, **query: Any) -> Any:
        """Return the JSON of a response, which must be successful."""
        answer = await self.ask("GET", path, **query)
        assert answer.status == 200, answer
        return answer.json

    async def do(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request that must succeed; returns the JSON of its response, None without one."""
        answer = await self.ask(method, path, body or {})
        assert answer.status in (200, 204), answer
        return answer.json if answer.content else None

    @asynccontextmanager
    async def events(self, path: str, **query: Any) -> AsyncIterator[Events]:
        """Yield the events of a path for the length of the block."""
        host, _, port = self.origin.removeprefix("http://").rpartition(":")
        connection = HTTPConnection(host, int(port), timeout=SECONDS_MAX)

        def begin() -> HTTPResponse:
            connection.request("GET", f"{path}?{urlencode(query)}", headers={"Cookie": self.cookie})
            return connection.getresponse()

        answer = await trio.to_thread.run_sync(begin)
        assert answer.status == 200, answer.read()
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        try:
            yield Events(answer)
        finally:
            answer.close()
            connection.close()


class Events:
    """A stream of server-sent events."""

    def __init__(self, answer: HTTPResponse) -> None:
        self._lines = self._read(answer)

    @staticmethod
    def _read(answer: HTTPResponse) -> Iterator[tuple[str, Any]]:
        name = ""
        for line in iter(answer.readline, b""):
            key, _, value = line.decode().rstrip("\n").partition(": ")
            if key == "event":
                name = value
            elif key == "data":
                yield name, json.loads(value)

    async def next(self, event: str = "") -> Any:
        """Return the value of the next event, or of the next one with that name."""
        while True:
            name, value = await trio.to_thread.run_sync(next, self._lines, ("ended", None))
            if name == "ended" or not event or name == event:
                return value if event and name == event else (name, value)


class Console(NamedTuple):
    """A broker with its console."""

    host: Host
    server: ConsoleServer
    bootstrap: str

    async def visitor(self, **login: str) -> Visitor:
        """Return a visitor with a session."""
        visitor = Visitor(self.server.url)
        await visitor.begin(**login)
        return visitor

    async def make_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        async with open_client(self.bootstrap) as client:
            outcomes = await Admin(client).create_topics([NewTopic(name, partitions, 1, configs)])
            assert outcomes == {name: None}

    async def produce(self, topic: str, *values: bytes | None, **record: Any) -> None:
        """Append records, one after the other."""
        async with open_producer(self.bootstrap, ProducerSettings(linger_ms=0)) as producer:
            for value in values:
                await (await producer.send(topic, value, **record)).wait()


def _cluster(where: WhereNow, options: dict[str, Any], own: OwnBroker | None = None) -> Cluster:
    """Return a cluster with its registry, Connect workers and the like; removes these from `options`."""
    beside = {name: options.pop(name) for name in ("registry", "connects") if name in options}
    return Cluster(where, live_of=lambda: own, **beside)


@asynccontextmanager
async def console_beside(
    data: Path, settings: Mapping[str, str] | None = None, *, address: str = "127.0.0.1", **options: Any
) -> AsyncIterator[Console]:
    """Run a broker and its console for the length of a block."""
    values = {
        "log.dirs": str(data),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "metrics.listener": "127.0.0.1:0",
        **QUICK_GROUPS,
        **(settings or {}),
    }
    host = Host(BrokerConfig(values))
    own = OwnBroker(Lines(), host)
    host.attached = own.attach
    async with trio.open_nursery() as nursery:
        await nursery.start(host.run)
        server = ConsoleServer(Address(address, 0), _cluster(lambda: own.target, options, own), **options)
        await nursery.start(server.run)
        try:
            yield Console(host, server, host.bootstrap)
        finally:
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def console_of(console: Console, **options: Any) -> AsyncIterator[Visitor]:
    """Run another console of the same broker for the length of a block; yields a visitor with a session."""
    target = Target(tuple(parse_bootstrap(console.bootstrap)))
    server = ConsoleServer(Address("127.0.0.1", 0), _cluster(lambda: target, options), **options)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run)
        visitor = Visitor(server.url)
        await visitor.begin()
        yield visitor
        nursery.cancel_scope.cancel()


def part(text: str) -> str:
    """Return a text quoted as a segment of a path."""
    return quote(text, safe="")
