"""Schema registries beside a broker, in the loop of the test, and one with scripted responses."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
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
    """Serve a registry that stores its schemas in a broker; yields a client for it."""
    server = RegistryServer(Address("127.0.0.1", 0), may_be_reached=False)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run, parse_bootstrap(bootstrap), ClientSettings(), None, topic)
        yield RegistryClient(server.url)
        nursery.cancel_scope.cancel()


async def refused(client: RegistryClient, method: str, path: str, body: Any = None) -> tuple[int, int, str]:
    """Send a request that must fail; returns the HTTP status, the error code and the message."""
    try:
        answer = await client.ask(method, path, body)
    except RegistryError as error:
        return error.status, error.code, error.message
    raise AssertionError(f"{method} {path} is answered with {answer}")


class Written:
    """A store without a topic, which records what it would have written."""

    def __init__(self) -> None:
        self.state = State()
        self.records: list[Record] = []

    async def write(self, decide: Any) -> Any:
        """Call `decide`, and apply its result."""
        records, answer = await decide(self.state)
        for key, value in records:
            self.state.apply(key, value)
        self.records += records
        return answer


@dataclass
class Standin:
    """A registry with a table of responses, which records its requests."""

    answers: dict[str, Any]
    port: int = 0
    asked: list[str] = field(default_factory=list)
    heads: list[bytes] = field(default_factory=list)
    delay_s: float = 0.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, stream: trio.SocketStream) -> None:
        async with stream:
            with suppress(trio.BrokenResourceError):  # of one who does not wait
                await self._answer(stream)

    async def _answer(self, stream: trio.SocketStream) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += await stream.receive_some(65536)
        self.heads.append(head)
        method, target, _ = head.split(b"\r\n")[0].decode().split(" ")
        self.asked.append(f"{method} {target}")
        await trio.sleep(self.delay_s)
        answer = self.answers.get(target, (404, {"error_code": 40403, "message": "Schema not found"}))
        status, value, *headers = answer if isinstance(answer, tuple) else (200, answer)
        content = value if isinstance(value, bytes) else json.dumps(value).encode()
        if status:
            head = "\r\n".join([f"HTTP/1.1 {status} x", f"Content-Length: {len(content)}", *headers, "", ""])
            await stream.send_all(head.encode())
        await stream.send_all(content)


@asynccontextmanager
async def standin(answers: dict[str, Any]) -> AsyncIterator[Standin]:
    registry = Standin(answers)
    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        registry.port = listener.socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, registry.serve, [listener])
        yield registry
        nursery.cancel_scope.cancel()
